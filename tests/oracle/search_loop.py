"""grouped_search a second time: straight binary64 loops over values instead of words, compiled, for large runs.

Binary16 is spelled as arithmetic: a value is rounded to a multiple of its binade's step. Neither `search`, the other
oracle, nor the package is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

TINY = 2.0**-24
LARGEST = 65504.0

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    made: F = numba.njit(function)
    return made


@compiled
def step_of(value: float) -> float:
    """The distance of binary16 numbers in the binade of |value|."""
    _, exponent = math.frexp(value)
    return math.ldexp(1.0, max(exponent - 11, -24))


@compiled
def to_half(value: float) -> float:
    """The nearest binary16 number by way of binary32; 0 becomes +-2^-24 unless `value` is 0."""
    narrow = float(np.float32(value))
    step = step_of(narrow)
    half = np.rint(narrow / step) * step
    if abs(half) > LARGEST:
        return math.copysign(math.inf, value)
    if half == 0.0 and value != 0.0:
        return math.copysign(TINY, value)
    return float(half)


@compiled
def neighbour(half: float, steps: int) -> float:
    """The binary16 number `steps` further from zero, or nearer; 0 where it is none, zero or infinite."""
    sign, magnitude = math.copysign(1.0, half), abs(half)
    if magnitude == math.inf:
        magnitude = LARGEST
        steps += 1
        if steps > 0:
            return 0.0
    for _ in range(abs(steps)):
        if steps > 0:
            magnitude += step_of(magnitude)
        else:
            magnitude -= step_of(magnitude * (1.0 - 2.0**-20)) if magnitude > 2.0**-14 else TINY
    return sign * magnitude if 0.0 < magnitude <= LARGEST else 0.0


@compiled
def code_of(value: Any, scale: float, qmin: int, qmax: int) -> float:
    inverse = np.float32(1.0) / np.float32(scale)
    return min(max(float(np.rint(value * inverse)), float(qmin)), float(qmax))


@compiled
def error_of(values: Any, weights: Any, scale: float, qmin: int, qmax: int) -> float:
    total = 0.0
    for k in range(len(values)):
        rest = float(values[k]) - scale * code_of(values[k], scale, qmin, qmax)
        total += weights[k] * (rest * rest)
    return total


@compiled
def fit_of(values: Any, weights: Any, scale: float, qmin: int, qmax: int) -> float:
    over, under = 0.0, 0.0
    for k in range(len(values)):
        code = code_of(values[k], scale, qmin, qmax)
        over += weights[k] * float(values[k]) * code
        under += weights[k] * code * code
    return over / under if under != 0.0 else math.nan


@compiled
def search_group(values: Any, weights: Any, qmin: int, qmax: int, negative: bool) -> float:
    """The scale of one group; NaN where its max-abs scale is infinite."""
    amax, extreme = 0.0, 0.0
    for k in range(len(values)):
        if abs(float(values[k])) > amax:
            extreme = float(values[k])
            amax = abs(extreme)
    if amax == 0.0:
        return 0.0
    start = to_half(float(np.float32(amax) / np.float32(qmax)))
    if start == 0.0:
        start = TINY
    if start == math.inf:
        return math.nan
    best, lowest = start, error_of(values, weights, start, qmin, qmax)
    tried = np.zeros(80)
    count = 0
    for hundredths in range(70, 119, 2):
        tried[count] = to_half(hundredths / 100 * amax / qmax)
        count += 1
    for hundredths in range(70, 119, 2):
        tried[count] = to_half(hundredths / 100 * extreme / qmin)
        count += 1
    for factor in (0.25, 0.5, 2.0, 4.0):
        tried[count] = to_half(start * factor)
        count += 1
    for steps in (-2, -1, 1, 2):
        tried[count] = neighbour(start, steps)
        count += 1
    fit = fit_of(values, weights, start, qmin, qmax)
    if not math.isnan(fit):
        for factor in (1.0, 0.5, 2.0):
            tried[count] = to_half(fit * factor)
            count += 1
        for steps in (-2, -1, 1, 2):
            tried[count] = neighbour(to_half(fit), steps)
            count += 1
    for last in (False, True):
        if last:
            count = 0
            fit = fit_of(values, weights, best, qmin, qmax)
            if not math.isnan(fit):
                tried[0] = to_half(fit)
                tried[1] = neighbour(tried[0], -1)
                tried[2] = neighbour(tried[0], 1)
                count = 3
        for i in range(count):
            scale = tried[i]
            if scale != 0.0 and abs(scale) != math.inf and (negative or scale > 0.0):
                error = error_of(values, weights, scale, qmin, qmax)
                if error < lowest:
                    best, lowest = scale, error
    return best


@compiled
def search_rows(
    values: Any, weights: Any, group: int, qmin: int, qmax: int, negative: bool, codes: Any, scales: Any
) -> None:
    """float32 [rows, K] and float64 [K] -> codes int8 [rows, K], scales float64 [rows, ceil(K / group)]."""
    rows, columns = values.shape
    for row in range(rows):
        for begin in range(0, columns, group):
            end = min(begin + group, columns)
            scale = search_group(values[row, begin:end], weights[begin:end], qmin, qmax, negative)
            scales[row, begin // group] = scale
            for k in range(begin, end):
                codes[row, k] = 0 if scale == 0.0 else int(code_of(values[row, k], scale, qmin, qmax))


def search(
    values: NDArray[np.float32],
    importance: NDArray[np.float64] | None,
    *,
    group: int,
    qmin: int,
    qmax: int,
    negative_scales: bool,
) -> tuple[NDArray[np.int8], NDArray[np.uint16]]:
    """Codes int8 [rows, K] and scale words uint16 [rows, ceil(K / group)]."""
    rows, columns = values.shape
    codes = np.empty((rows, columns), np.int8)
    scales = np.empty((rows, -(-columns // group)), np.float64)
    weights = np.ones(columns) if importance is None else importance
    search_rows(values, weights, group, qmin, qmax, negative_scales, codes, scales)
    return codes, scales.astype(np.float16).view(np.uint16)
