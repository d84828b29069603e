"""grouped_search against the same method written plainly in PyTorch, interleaved, in one run.

    python benchmarks/grouped_search.py [--format q4_g64_fp16] [--rows 1024] [--runs 5] [--threads N] [--weighted]
                                        [--negative-scales] [--json]

Both quantize one matrix of Gaussian weights [rows, 4096] in memory, on the same number of threads; ours on one thread,
too. Groups that come out otherwise are counted: the peer's sums run in PyTorch's own order, so that a tie may fall to
another scale. Needs torch, which the package does not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ninfer_convert.formats import GroupedFormat, get_format
from ninfer_convert.kernels.search import encode_search

COLUMNS = 4096
PEER_ROWS = 32
"""Rows the peer works on at a time, which it is fastest with."""
SETTLE = 0.5
"""Seconds of rest behind the peer, whose threads go on turning for a while when they have nothing to do."""


class Peer:
    """methods.md's grouped_search over whole tensors: float32 [groups, G], binary64 errors."""

    def __init__(self, format: GroupedFormat, negative_scales: bool) -> None:
        self.format = format
        self.negative_scales = negative_scales

    def half(self, scale: Any) -> Any:
        """Candidate scales as binary16: through binary32, an underflow rescued, what is skipped as zero."""
        rounded = scale.float().half()
        tiny = torch.copysign(torch.full_like(scale, 2.0**-24), scale).half()
        rounded = torch.where((rounded == 0) & (scale != 0), tiny, rounded)
        usable = rounded.isfinite() if self.negative_scales else rounded.isfinite() & (rounded > 0)
        return torch.where(usable, rounded, torch.zeros_like(rounded))

    def codes(self, values: Any, scale: Any) -> Any:
        """Codes by the reciprocal multiply, float32 whole numbers."""
        inverse = 1.0 / scale.float()
        return (values * inverse[:, None]).round().clamp(self.format.qmin, self.format.qmax)

    def neighbour(self, scale: Any, steps: int) -> Any:
        """Binary16 scales `steps` magnitudes away; zero where there is none."""
        word = scale.view(torch.int16)
        magnitude = (word & 0x7FFF).int() + steps
        usable = (magnitude > 0) & (magnitude < 0x7C00)
        moved = (word.int() & ~0x7FFF | magnitude).to(torch.int16).view(torch.float16)
        return torch.where(usable, moved, torch.zeros_like(moved))

    def fit(self, values: Any, importance: Any, codes: Any) -> Any:
        """Least-squares scales, binary64; NaN where there is none."""
        codes = codes.double()
        return (importance * values.double() * codes).sum(1) / (importance * codes * codes).sum(1)

    def encode(self, values: Any, importance: Any) -> tuple[Any, Any]:
        """Binary16 scales [groups] and codes int8 [groups, G]."""
        wide = values.double()
        amax = wide.abs().amax(1)
        extreme = wide.gather(1, wide.abs().argmax(1, keepdim=True))[:, 0]
        start = self.half((amax.float() / self.format.qmax).double())
        best, best_codes = start, self.codes(values, start)
        start_codes = best_codes
        lowest = self.error(wide, importance, best, best_codes)
        ratios = [hundredths / 100 for hundredths in range(70, 119, 2)]

        def attempt(scale: Any) -> None:
            nonlocal best, best_codes, lowest
            scale = torch.where(scale.isfinite() & (self.negative_scales | (scale > 0)), scale, torch.zeros_like(scale))
            codes = self.codes(values, scale)
            error = self.error(wide, importance, scale, codes)
            better = (scale != 0) & (error < lowest)
            best = torch.where(better, scale, best)
            best_codes = torch.where(better[:, None], codes, best_codes)
            lowest = torch.where(better, error, lowest)

        for ratio in ratios:
            attempt(self.half(ratio * amax / self.format.qmax))
        for ratio in ratios:
            attempt(self.half(ratio * extreme / self.format.qmin))
        for factor in (0.25, 0.5, 2.0, 4.0):
            attempt(self.half(start.double() * factor))
        for steps in (-2, -1, 1, 2):
            attempt(self.neighbour(start, steps))
        fit = self.fit(values, importance, start_codes)
        for factor in (1.0, 0.5, 2.0):
            attempt(self.half(fit * factor))
        for steps in (-2, -1, 1, 2):
            attempt(self.neighbour(fit.float().half(), steps))
        fit = self.fit(values, importance, best_codes)
        attempt(self.half(fit))
        for steps in (-1, 1):
            attempt(self.neighbour(fit.float().half(), steps))
        zero = amax == 0
        best[zero], best_codes[zero] = 0, 0
        return best, best_codes.to(torch.int8)

    def error(self, wide: Any, importance: Any, scale: Any, codes: Any) -> Any:
        """Weighted squared errors, binary64."""
        rest = wide - scale.double()[:, None] * codes.double()
        return (importance * (rest * rest)).sum(1)

    def run(self, values: NDArray[np.float32], importance: NDArray[np.float64]) -> tuple[Any, Any]:
        """Scale words uint16 [rows, groups] and codes int8 [rows, K]."""
        group = self.format.group
        weights = torch.from_numpy(importance).reshape(1, -1, group)
        scales, codes = [], []
        for begin in range(0, len(values), PEER_ROWS):
            part = torch.from_numpy(values[begin : begin + PEER_ROWS])
            repeated = weights.expand(len(part), -1, -1).reshape(-1, group)
            part_scales, part_codes = self.encode(part.reshape(-1, group), repeated)
            scales.append(part_scales.view(torch.int16).reshape(len(part), -1))
            codes.append(part_codes.reshape(len(part), -1))
        return torch.cat(scales).numpy().view(np.uint16), torch.cat(codes).numpy()


def ours(
    values: NDArray[np.float32],
    importance: NDArray[np.float64] | None,
    format: GroupedFormat,
    negative_scales: bool,
    threads: int,
) -> tuple[NDArray[np.uint16], NDArray[np.int8]]:
    """The package's kernel, rows shared out over threads."""
    codes = np.empty(values.shape, np.int8)
    scales = np.empty((len(values), -(-values.shape[1] // format.group)), np.uint16)
    words = values.view(np.uint32)

    def encode(rows: slice) -> None:
        shape = format.group, format.qmin, format.qmax
        assert encode_search(words[rows], False, importance, *shape, negative_scales, codes[rows], scales[rows]) < 0

    step = -(-len(values) // threads)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(encode, [slice(begin, begin + step) for begin in range(0, len(values), step)]))
    return scales, codes


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", default="q4_g64_fp16")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--weighted", action="store_true")
    parser.add_argument("--negative-scales", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    format = get_format(options.format)
    assert isinstance(format, GroupedFormat)
    torch.set_num_threads(options.threads)
    random = np.random.default_rng(1)
    values = random.standard_normal((options.rows, COLUMNS), dtype=np.float32) * np.float32(0.02)
    importance = random.gamma(1.0, 1.0, COLUMNS) if options.weighted else None
    peer = Peer(format, options.negative_scales)

    def run_ours(threads: int) -> tuple[Any, Any]:
        return ours(values, importance, format, options.negative_scales, threads)

    def run_peer() -> tuple[Any, Any]:
        return peer.run(values, np.ones(COLUMNS) if importance is None else importance)

    (scales, codes), (peer_scales, peer_codes) = run_ours(options.threads), run_peer()
    groups = scales != peer_scales
    groups |= (codes != peer_codes).reshape(*scales.shape, -1).any(axis=2)
    times = []
    for _ in range(options.runs):
        time.sleep(SETTLE)
        marks = [time.perf_counter()]
        for run in (partial(run_ours, 1), partial(run_ours, options.threads), run_peer):
            run()
            marks.append(time.perf_counter())
        times.append([after - before for before, after in pairwise(marks)])
    figures = {
        "what": f"grouped_search, {format.name}, {values.size / 1e6:.1f} M weights, {options.threads} threads",
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "ours": values.size / statistics.median(many for _, many, _ in times),
        "peer": values.size / statistics.median(peer for _, _, peer in times),
        "ratio": statistics.median(peer / many for _, many, peer in times),
        "over_one_thread": statistics.median(one / many for one, many, _ in times),
        "groups_otherwise": int(groups.sum()),
    }
    if options.json:
        print(json.dumps(figures))
    else:
        print(f"{figures['what']}, {figures['machine']}, median of {options.runs} interleaved runs")
        print(f"ninfer-convert  {figures['ours'] / 1e6:7.1f} M weights/s")
        print(f"PyTorch         {figures['peer'] / 1e6:7.2f} M weights/s")
        print(f"over one thread {figures['over_one_thread']:7.2f}")
        print(
            f"ratio           {figures['ratio']:7.1f}   ({figures['groups_otherwise']} of {scales.size} groups differ)"
        )


if __name__ == "__main__":
    main()
