"""Sums over pairs of values, from which errors are told, in an order that follows from a pair's index alone.

Pairs are summed in chunks of `CHUNK`. Within one, pair i is added to lane i modulo `LANES`, and the lanes are added up
in order at the end: so a piece of whole chunks gives the sums that the whole would, on any machine. The compiler,
which may not reorder a sum, fills its vector registers with neighbouring lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ninfer_convert.kernels.compile import inline, kernel

CHUNK = 1 << 16
LANES = 512

COUNTS = COUNTED, AGREEING = range(2)
SUMS = NOISE, LEFT, RIGHT, PRODUCT, LARGEST = range(5)


@kernel
def sum_pairs(left: Any, right: Any, counts: Any, sums: Any) -> None:
    """The sums of every chunk of `left` and `right` [n], both float32 or both float64, in binary64.

    Summed are the pairs of two finite values. `counts` int64 [chunks, 2] takes how many those are (COUNTED), and how
    many of the others agree: two NaNs, or the same infinity twice (AGREEING). `sums` float64 [chunks, 5] takes the
    squares of left - right (NOISE), of left, of right, left times right, and the largest |left - right|.
    """
    x, y, error = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    lanes = np.empty((5, LANES))
    for chunk in range(len(counts)):
        begin, end = chunk * CHUNK, min((chunk + 1) * CHUNK, len(left))
        lanes[:] = 0.0
        counted = 0
        for first in range(begin, end, LANES):
            last = min(first + LANES, end)
            width = last - first
            a, b, e = x[:width], y[:width], error[:width]
            counted += _take_finite(left[first:last], right[first:last], a, b)
            _subtract(a, b, e)
            _add_products(e, e, lanes[NOISE])
            _add_products(a, a, lanes[LEFT])
            _add_products(b, b, lanes[RIGHT])
            _add_products(a, b, lanes[PRODUCT])
            _keep_larger(e, lanes[LARGEST])
        for kind in range(LARGEST):
            sums[chunk, kind] = _sum(lanes[kind])
        sums[chunk, LARGEST] = lanes[LARGEST].max()
        counts[chunk, COUNTED] = counted
        counts[chunk, AGREEING] = _agreeing(left[begin:end], right[begin:end]) if counted < end - begin else 0


@inline
def _take_finite(left: Any, right: Any, x: Any, y: Any) -> int:
    """Pairs of finite values into `x` and `y`, zeros in place of the others; returns how many are finite."""
    counted = 0
    for i in range(len(left)):
        a, b = np.float64(left[i]), np.float64(right[i])
        finite = (abs(a) < np.inf) & (abs(b) < np.inf)
        x[i] = a if finite else 0.0
        y[i] = b if finite else 0.0
        counted += finite
    return counted


@inline
def _subtract(x: Any, y: Any, error: Any) -> None:
    for i in range(len(x)):
        error[i] = x[i] - y[i]


@inline
def _add_products(x: Any, y: Any, lanes: Any) -> None:
    for i in range(len(x)):
        lanes[i] += x[i] * y[i]


@inline
def _keep_larger(error: Any, lanes: Any) -> None:
    for i in range(len(error)):
        magnitude = abs(error[i])
        lanes[i] = magnitude if magnitude > lanes[i] else lanes[i]


@inline
def _sum(lanes: Any) -> float:
    total = 0.0
    for i in range(len(lanes)):
        total += lanes[i]
    return total


@inline
def _agreeing(left: Any, right: Any) -> int:
    """Pairs of two NaNs, or of the same infinity."""
    total = 0
    for i in range(len(left)):
        a, b = np.float64(left[i]), np.float64(right[i])
        total += (np.isnan(a) and np.isnan(b)) or (np.isinf(a) and a == b)
    return total
