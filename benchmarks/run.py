"""The table of docs/performance.md: every figure beside what it should reach.

    python benchmarks/run.py [--gib 2] [--runs 5] [--folder DIR] [--json FILE]

Ratios are medians of interleaved runs of the installed command. Rows that need torch are there where it is installed.
The kernels should be compiled already: the first run of each work is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROGRAM = [sys.executable, "-m", "ninfer_convert"]


@dataclass(frozen=True)
class Row:
    """One figure; `wanted` says what it should reach."""

    work: str
    figure: float
    unit: str
    wanted: str


def figures(script: str, *arguments: object) -> dict[str, Any]:
    """What one of the scripts beside this one measures."""
    command = [sys.executable, str(HERE / script), *map(str, arguments), "--json"]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return result


def conversions(gib: float, runs: int, folder: Path) -> Iterator[Row]:
    """Whole conversions against a copy of their input."""
    common = ("--gib", gib, "--runs", runs, "--folder", folder)

    def against(dtype: str, recipe: str, *extra: str) -> dict[str, Any]:
        return figures("against_copy.py", *common, "--dtype", dtype, "--recipe", recipe, *extra)

    plain = against("BF16", "q4")
    yield Row("q4 of bf16 / copy", plain["ratio"], "", "at most 0.9")
    yield Row("q4 of float32 / copy", against("F32", "q4")["ratio"], "", "at most 0.7")
    for dtype, recipe in (("BF16", "bf16"), ("Q8_0", "gguf")):
        bare = against(dtype, recipe, "--no-digest")
        yield Row(f"{recipe} of {dtype}, no digest / copy", bare["ratio"], "", "at most 1.2")
        yield Row(f"{recipe} of {dtype} / copy", against(dtype, recipe)["ratio"], "", "at most 1.6")
    again = against("Q8_0", "q4", "--requantize")
    share = again["weights_per_second"] / plain["weights_per_second"]
    yield Row("weights a second, q4 of Q8_0 / of bf16", share, "", "at least 0.6")


def searches(runs: int) -> Iterator[Row]:
    """grouped_search beside its peer, and on two threads beside one."""
    two = figures("grouped_search.py", "--runs", runs, "--threads", 2)
    yield Row("grouped_search / PyTorch", two["ratio"], "", "at least 40")
    yield Row("two threads / one", two["over_one_thread"], "", "at least 1.8")


def sparse(path: Path, tensors: int, rows: int, columns: int) -> Path:
    """A checkpoint of zero bfloat16 matrices that takes no room on the disk."""
    nbytes = 2 * rows * columns
    header = {
        f"layers.{i}.weight": {
            "dtype": "BF16",
            "shape": [rows, columns],
            "data_offsets": [i * nbytes, (i + 1) * nbytes],
        }
        for i in range(tensors)
    }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + tensors * nbytes)
    return path


def large_inputs(runs: int, folder: Path) -> Iterator[Row]:
    """Memory of one large tensor; time for many."""
    input, artifact = folder / "m.safetensors", folder / "m.ninfer"

    def peak(tensors: int, rows: int, columns: int) -> float:
        """MiB of anonymous memory in which a checkpoint becomes `artifact`."""
        sparse(input, tensors, rows, columns)
        artifact.unlink(missing_ok=True)
        return anonymous_bytes([*PROGRAM, str(input), "-r", "q4", "-o", str(artifact), "--quiet"]) / 2**20

    least = peak(1, 128, 4096)
    yield Row("anonymous memory of 8 GiB over that of 1 MiB", peak(1, 1 << 20, 4096) - least, " MiB", "at most 286")
    for tensors, wanted in ((35_000, 1), (100_000, 3)):
        over = peak(tensors, 2, 128) - least
        yield Row(f"anonymous memory of {tensors:,} tensors over that of one", over, " MiB", "at most 286")
        yield Row(f"info of {tensors:,} objects", seconds(runs, "info", artifact), " s", f"under {wanted} s")
    yield Row("plan of 100,000 tensors", seconds(runs, "plan", input, "-r", "q4"), " s", "under 3 s")


def seconds(runs: int, *arguments: str | Path) -> float:
    """Wall seconds of a command, the median of so many runs."""
    command = [*PROGRAM, *map(str, arguments)]
    times = []
    os.sync()  # what was made before is not to be written meanwhile
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def anonymous_bytes(command: list[str]) -> int:
    """The most anonymous memory of a process, looked at every few milliseconds (Linux)."""
    process = subprocess.Popen(command)
    most = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        sizes = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")]
        most = max(most, *(int(size) * 1024 for size in sizes), 0)
        time.sleep(0.005)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command)
    return most


def main() -> None:
    """Measure and print, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--folder", type=Path, default=Path.cwd(), help="where the files lie: the disk that is measured"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()

    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{options.gib} GiB, {options.runs} runs, {machine}\n", flush=True)
    print("| work | measured | wanted |\n|---|---|---|", flush=True)
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        measured = [large_inputs(options.runs, folder), conversions(options.gib, options.runs, folder)]
        if find_spec("torch"):
            measured.append(searches(options.runs))
        for row in (row for group in measured for row in group):
            print(f"| {row.work} | {row.figure:.2f}{row.unit} | {row.wanted} |", flush=True)
            rows.append(asdict(row))
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "gib": options.gib, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
