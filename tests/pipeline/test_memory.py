"""Memory stays flat: what a run holds does not grow with the tensor."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from tests.support import TINY_LLAMA, command, write_sparse_safetensors

MiB = 1 << 20
ADDRESS_SPACE = 1 << 30
"""Room for the compiler (700 MiB) and for little of a checkpoint."""


def peak_memory(input: Path, recipe: str, *options: str) -> int:
    """The largest resident size of a conversion, in bytes."""
    output = input.with_suffix(".ninfer")
    peak = peak_of(input, "-r", recipe, "-o", output, "--quiet", *options)
    output.unlink()
    return peak


def peak_of(*arguments: str | Path) -> int:
    """The largest resident size of a run, in bytes; files are read, not mapped, so that it is anonymous."""
    process = subprocess.Popen(command(*arguments))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def sparse(folder: Path, name: str, rows: int, columns: int, dtype: str = "BF16", size: int = 2) -> Path:
    """A checkpoint of one zero matrix that takes no room on the disk."""
    return write_sparse_safetensors(folder / name, {"w.weight": (dtype, (rows, columns), rows * columns * size)})


def test_a_tensor_of_1_gib_takes_little_more_memory_than_one_of_1_mib(tmp_path: Path) -> None:
    small = peak_memory(sparse(tmp_path, "small.safetensors", 1024, 512), "q4")
    large = peak_memory(sparse(tmp_path, "large.safetensors", 1 << 17, 1 << 12), "q4")
    assert large - small < 300 * MiB


def test_the_memory_option_is_honoured(tmp_path: Path) -> None:
    small = peak_memory(sparse(tmp_path, "small.safetensors", 1024, 512, "F32", 4), "q6")
    large = sparse(tmp_path, "large.safetensors", 1 << 16, 1 << 12, "F32", 4)
    capped = peak_memory(large, "q6", "--memory", "16MiB", "--jobs", "4")
    assert capped - small < 48 * MiB


def test_a_checkpoint_larger_than_the_address_space_is_converted(tmp_path: Path) -> None:
    input = sparse(tmp_path, "large.safetensors", 3 << 17, 1 << 11)
    assert input.stat().st_size > ADDRESS_SPACE
    arguments = command(input, "-r", "q4", "-o", tmp_path / "large.ninfer", "--quiet", "--jobs", "2")
    subprocess.run(
        arguments,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE)),
    )


def test_what_ends_the_process_while_it_is_loaded_leaves_no_file_behind(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("import os\nos._exit(9)\n")
    output = tmp_path / "out"
    output.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.fspath(tmp_path)}
    arguments = command(TINY_LLAMA, "-r", "q4", "-o", output, "--quiet")
    assert subprocess.run(arguments, cwd=tmp_path, env=environment, check=False).returncode == 9
    assert not list(output.iterdir())


def test_neither_checking_nor_exporting_takes_what_the_model_takes(tmp_path: Path) -> None:
    peaks = []
    for name, rows in (("small", 128), ("large", 1 << 15)):
        input = sparse(tmp_path, f"{name}.safetensors", rows, 1 << 12)
        artifact, output = input.with_suffix(".ninfer"), tmp_path / f"{name}-out.safetensors"
        peak_of(input, "-r", "q4", "-o", artifact, "--quiet")
        checking = peak_of("check", artifact, input, "-r", "q4", "--full", "--quiet")
        exporting = peak_of("export", artifact, "-o", output, "--dtype", "bf16", "--quiet")
        peaks.append((checking, exporting))
        output.unlink()
    assert all(large - small < 64 * MiB for small, large in zip(*peaks, strict=True))
