"""fp8_row_maxabs beside grouped_absmax of q8, from stored words in memory, interleaved, on one thread.

    python benchmarks/fp8_row_maxabs.py [--rows 4096] [--runs 9] [--json]

Both read the same matrix of Gaussian weights [rows, 4096]; a line for each stored type gives both rates and the median
of the runs' ratios of times.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_convert.kernels.fp8 import encode_fp8
from ninfer_convert.kernels.grouped import encode_absmax

COLUMNS = 4096


def stored(values: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """The values' words in each stored type."""
    return {
        "BF16": (values.view(np.uint32) >> 16).astype(np.uint16),
        "F16": values.astype(np.float16).view(np.uint16),
        "F32": values.view(np.uint32),
        "F64": values.astype(np.float64).view(np.uint64),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    values = np.random.default_rng(1).standard_normal((options.rows, COLUMNS), dtype=np.float32) * np.float32(0.02)
    fp8_codes, fp8_scales = np.empty(values.shape, np.uint8), np.empty(options.rows, np.uint16)
    q8_codes, q8_scales = np.empty(values.shape, np.int8), np.empty((options.rows, COLUMNS // 32), np.uint16)
    figures = {}
    for name, words in stored(values).items():

        def fp8(words: NDArray[Any] = words, half: bool = name == "F16") -> None:
            assert encode_fp8(words, half, True, fp8_codes, fp8_scales) < 0

        def q8(words: NDArray[Any] = words, half: bool = name == "F16") -> None:
            assert encode_absmax(words, half, 32, -127, 127, q8_codes, q8_scales) < 0

        fp8()
        q8()
        times = []
        for _ in range(options.runs):
            start = time.perf_counter()
            fp8()
            middle = time.perf_counter()
            q8()
            times.append((middle - start, time.perf_counter() - middle))
        figures[name] = {
            "fp8_row_maxabs": values.size / statistics.median(a for a, _ in times),
            "grouped_absmax_q8": values.size / statistics.median(b for _, b in times),
            "ratio": statistics.median(a / b for a, b in times),
        }
    if options.json:
        print(json.dumps({"machine": platform.machine(), "weights": values.size, "stored": figures}))
        return
    print(f"{values.size / 1e6:.1f} M weights, one thread, {platform.machine()}, median of {options.runs} runs")
    print("stored  fp8_row_maxabs  grouped_absmax q8   M weights/s; time of the first over the second")
    for name, figure in figures.items():
        fp8_rate, q8_rate = figure["fp8_row_maxabs"] / 1e6, figure["grouped_absmax_q8"] / 1e6
        print(f"{name:6}  {fp8_rate:14.0f}  {q8_rate:17.0f}   {figure['ratio']:.2f}")


if __name__ == "__main__":
    main()
