"""Whole conversions against `cp` and `sync` of the same file, interleaved, in one run.

    python benchmarks/against_copy.py [--gib 1] [--dtype BF16|F16|F32|Q8_0] [--recipe q4] [--runs 5] [--folder DIR]

A checkpoint of Gaussian weights, for Q8_0 a GGUF of them, is made in DIR (default: a temporary folder beside the
current one, so that the same disk is measured). Each round copies it (`cp INPUT COPY && sync COPY`) and converts it by
the installed command with all defaults, or the options that are given behind these; the table shows medians and the
median of the rounds' ratios. `--json` prints the figures.
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
from collections.abc import Callable
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

ROWS, COLUMNS = 4096, 4096
ITEM = {"BF16": 2, "F16": 2, "F32": 4}


def make_checkpoint(path: Path, gib: float, dtype: str) -> int:
    """Write matrices of [4096, 4096] Gaussian weights until `gib` is reached; returns the number of weights."""
    if dtype == "Q8_0":
        return make_gguf(path, gib)
    nbytes = ROWS * COLUMNS * ITEM[dtype]
    count = max(1, round(gib * 2**30 / nbytes))
    header = {
        f"model.layers.{i}.mlp.up_proj.weight": {
            "dtype": dtype,
            "shape": [ROWS, COLUMNS],
            "data_offsets": [i * nbytes, (i + 1) * nbytes],
        }
        for i in range(count)
    }
    text = json.dumps(header).encode()
    random = np.random.default_rng(1)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _ in range(count):
            values = random.standard_normal((ROWS, COLUMNS), dtype=np.float32) * np.float32(0.02)
            if dtype == "BF16":
                file.write((values.view(np.uint32) >> 16).astype("<u2").tobytes())
            else:
                file.write(values.astype({"F16": "<f2", "F32": "<f4"}[dtype]).tobytes())
    return count * ROWS * COLUMNS


def make_gguf(path: Path, gib: float) -> int:
    """The same as Q8_0 blocks, of which each holds a binary16 scale and 32 codes."""
    blocks = np.zeros((ROWS, COLUMNS // 32, 34), np.uint8)
    random = np.random.default_rng(1)
    writer = GGUFWriter(path, "llama")
    count = max(1, round(gib * 2**30 / blocks.nbytes))
    for i in range(count):
        codes = np.clip(random.standard_normal((*blocks.shape[:2], 32), dtype=np.float32) * 40, -127, 127)
        blocks[..., :2] = np.array([0.0005], "<f2").view(np.uint8)
        blocks[..., 2:] = codes.astype(np.int8).view(np.uint8)
        rows = blocks.reshape(ROWS, -1).copy()
        writer.add_tensor(f"blk.{i}.ffn_up.weight", rows, raw_dtype=GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return count * ROWS * COLUMNS


def timed(work: Callable[[], object]) -> float:
    """Wall seconds of `work`."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--dtype", choices=[*ITEM, "Q8_0"], default="BF16")
    parser.add_argument("--recipe", default="q4")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", action="store_true")
    options, extra = parser.parse_known_args()

    with tempfile.TemporaryDirectory(dir=options.folder or Path.cwd()) as folder:
        source = Path(folder) / ("model.gguf" if options.dtype == "Q8_0" else "model.safetensors")
        copy, artifact = Path(folder) / "copy", Path(folder) / "model.ninfer"
        weights = make_checkpoint(source, options.gib, options.dtype)
        command = [sys.executable, "-m", "ninfer_convert", str(source), "-r", options.recipe, "-o", str(artifact)]

        def copy_and_sync() -> None:
            copy.unlink(missing_ok=True)
            subprocess.run(["cp", str(source), str(copy)], check=True)
            subprocess.run(["sync", str(copy)], check=True)

        def convert() -> None:
            artifact.unlink(missing_ok=True)
            subprocess.run([*command, "--quiet", *extra], check=True)

        convert()  # compiles the kernels and warms the page cache
        rounds = [(timed(copy_and_sync), timed(convert)) for _ in range(options.runs)]
    what = f"{options.recipe} of {options.gib} GiB {options.dtype}"
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    figures = {
        "copy_seconds": statistics.median(copied for copied, _ in rounds),
        "convert_seconds": statistics.median(converted for _, converted in rounds),
        "ratio": statistics.median(converted / copied for copied, converted in rounds),
        "weights_per_second": weights / statistics.median(converted for _, converted in rounds),
    }
    if options.json:
        print(json.dumps({"what": what, "machine": machine, **figures}))
    else:
        print(f"{what}, {machine}, median of {options.runs} interleaved runs")
        print(f"cp && sync  {figures['copy_seconds']:.2f} s")
        print(f"convert     {figures['convert_seconds']:.2f} s")
        print(f"ratio       {figures['ratio']:.2f}   ({figures['weights_per_second'] / 1e6:.0f} M weights/s)")


if __name__ == "__main__":
    main()
