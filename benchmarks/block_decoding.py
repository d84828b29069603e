"""Decoding of ggml's blocks on one core: these kernels, ggml's own C code, gguf-py's numpy, interleaved in one run.

    python benchmarks/block_decoding.py [--types Q4_K,Q6_K] [--millions 16] [--runs 7] [--json]

Random blocks are decoded into memory at hand (gguf-py makes its own). The table shows millions of values a second of
processor time, the best of the runs, and these kernels' ratio to each peer. A type that a peer lacks has no figure
there. Needs `.[test]`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import gguf
import libgguf
import numpy as np
from numpy.typing import NDArray

from ninfer_convert.formats.stored import GGML_TYPES
from ninfer_convert.kernels.blocks import DECODERS, decode_blocks_into

COLUMNS = 4096
PEERS = ("ggml C", "gguf-py")


def contestants(ggml: int, blocks: NDArray[np.uint8], out: NDArray[np.float32]) -> dict[str, Callable[[], object]]:
    """What decodes `blocks` [rows, row bytes], by name; only those that know the type."""
    found: dict[str, Callable[[], object]] = {"ours": lambda: decode_blocks_into(ggml, blocks, out)}
    if libgguf.row_size(ggml, COLUMNS):
        found["ggml C"] = lambda: libgguf.dequantize_rows_into_raw(ggml, blocks, out, len(blocks), COLUMNS)
    try:
        kind = gguf.GGMLQuantizationType(ggml)
        gguf.quants.dequantize(blocks[:1], kind)
    except (ValueError, NotImplementedError):
        return found
    found["gguf-py"] = lambda: gguf.quants.dequantize(blocks, kind)
    return found


def measure(ggml: int, millions: int, runs: int) -> dict[str, float]:
    """Millions of values a second of processor time by contestant, each the best of `runs`."""
    decoder = DECODERS[ggml]
    rows = max(1, millions * 1_000_000 // COLUMNS)
    size = (rows, COLUMNS // decoder.block_values * decoder.block_bytes)
    blocks = np.random.default_rng(ggml).integers(0, 256, size, dtype=np.uint8)
    out = np.empty((rows, COLUMNS), dtype=np.float32)
    with np.errstate(all="ignore"):
        works = contestants(ggml, blocks, out)
        seconds: dict[str, list[float]] = {name: [] for name in works}
        for work in works.values():
            work()
        for _ in range(runs):
            for name, work in works.items():
                start = time.process_time()
                work()
                seconds[name].append(time.process_time() - start)
    return {name: out.size / min(taken) / 1e6 for name, taken in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default=",".join(GGML_TYPES[ggml].name for ggml in DECODERS))
    parser.add_argument("--millions", type=int, default=16, help="values decoded at a time")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    numbers = {GGML_TYPES[ggml].name: ggml for ggml in DECODERS}
    rates = {name: measure(numbers[name], options.millions, options.runs) for name in options.types.split(",")}
    if options.json:
        print(json.dumps(rates))
        return
    print(
        f"{'type':8}" + "".join(f"{name:>10}" for name in ("ours", *PEERS)) + "".join(f"{f'x {p}':>11}" for p in PEERS)
    )
    for name, rate in rates.items():
        figures = "".join(f"{rate[who]:10,.0f}" if who in rate else f"{'-':>10}" for who in ("ours", *PEERS))
        ratios = "".join(f"{rate['ours'] / rate[who]:11.1f}" if who in rate else f"{'-':>11}" for who in PEERS)
        print(f"{name:8}{figures}{ratios}")


if __name__ == "__main__":
    main()
