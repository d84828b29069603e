"""grouped_search from stored words to codes and scales, exactly as binary64 sums decide (methods.md).

Some sixty scales compete for a group. All are screened in binary32; only those so close to the best that the
exact rule could prefer them (`search_errors`) are summed in binary64, in order, the first of equals winning.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ninfer_convert.kernels.compile import inline, kernel
from ninfer_convert.kernels.grouped import scale_word as maxabs_word
from ninfer_convert.kernels.scalars import f32_to_f64, f32_word, word_f32, word_f64
from ninfer_convert.kernels.search_errors import estimate_errors, exact_error, fit_scale, limit_of
from ninfer_convert.kernels.search_scales import MOST_FIRST, put_first, put_last, scale_value
from ninfer_convert.kernels.stored import to_f32
from ninfer_convert.kernels.words import F16_INFINITY, F32_MAGNITUDE


class Grid(NamedTuple):
    """What codes and scales may be: the code interval as float32, and whether scales may be negative."""

    qmin: Any
    qmax: Any
    negative: bool


class Candidates(NamedTuple):
    """Scale words in the order that decides ties, and room to judge them; `errors` are estimates."""

    words: Any
    scales: Any
    inverses: Any
    errors: Any


@kernel
def encode_search(
    words: Any,
    half: bool,
    importance: Any,
    group: int,
    qmin: int,
    qmax: int,
    negative: bool,
    codes: Any,
    scales: Any,
) -> int:
    """Encode `words` [rows, K] (see `stored`) into `codes` int8 [rows, K] and `scales` uint16 [rows, ceil(K / group)].

    `importance` is float64 [K], or None. Groups are of at most 64. Returns -1, or the flat index in `scales` of
    the first group that holds a value not finite in binary32 or whose max-abs scale overflows binary16; `codes` and
    `scales` are then incomplete.

    Importances are quotients of two binary32 numbers, which keeps every binary64 sum clear of overflow and underflow.
    """
    rows, columns = words.shape
    groups = scales.shape[1]
    candidates = Candidates(
        np.empty(1 + MOST_FIRST, np.uint16),
        np.empty(1 + MOST_FIRST, np.float32),
        np.empty(1 + MOST_FIRST, np.float32),
        np.empty(1 + MOST_FIRST, np.float32),
    )
    grid = Grid(np.float32(qmin), np.float32(qmax), negative)
    values = np.zeros(groups * group, np.float32)
    chosen = np.empty(group, np.float32)
    padded = pad(importance, groups * group)
    weights = relative(padded, group)
    for row in range(rows):
        for k in range(columns):
            values[k] = word_f32(to_f32(words[row, k], half))
        for g in range(groups):
            begin, end = g * group, (g + 1) * group
            part_weights, part_importance = part(weights, begin, end), part(padded, begin, end)
            scale = search_group(values[begin:end], part_weights, part_importance, grid, candidates, chosen)
            if scale == F16_INFINITY:
                return int(row * groups + g)
            scales[row, g] = scale
            for k in range(min(end, columns) - begin):
                codes[row, begin + k] = np.int8(chosen[k])
    return -1


@inline
def search_group(values: Any, weights: Any, importance: Any, grid: Grid, candidates: Candidates, codes: Any) -> Any:
    """The scale word of one group, its codes into `codes`; an infinity where its max-abs scale is not finite."""
    extreme = f32_word(values[find_extreme(values)])
    best = maxabs_word(np.uint32(extreme & F32_MAGNITUDE), grid.qmax)
    if best == 0 or best >= F16_INFINITY:
        codes[:] = 0
        return min(best, np.uint16(F16_INFINITY))
    words = candidates.words
    for last in (False, True):
        choose_codes(values, best, grid, codes)
        fit = fit_scale(values, importance, codes)
        words[0] = best
        if last:
            count = put_last(words, 1, fit)
        else:
            count = put_first(words, 1, word_f64(f32_to_f64(extreme)), best, fit, grid.qmin, grid.qmax, grid.negative)
        best = pick(values, weights, importance, grid, candidates, count, codes)
    choose_codes(values, best, grid, codes)
    return best


@inline
def pick(values: Any, weights: Any, importance: Any, grid: Grid, candidates: Candidates, count: int, codes: Any) -> Any:
    """The word of least exact error among the first `count` candidates, the first of equals; the first one is usable.

    A skipped word's scale becomes NaN, and so does its estimate: never close. Uses up `candidates` and `codes`.
    """
    words, scales, inverses, errors = candidates
    for c in range(count):
        magnitude = words[c] & 0x7FFF
        usable = (magnitude > 0) & (magnitude < F16_INFINITY) & (grid.negative | (words[c] == magnitude))
        scales[c] = scale_value(words[c]) if usable else np.float32(np.nan)
        inverses[c] = np.float32(1.0) / scales[c]
    estimate_errors(values, weights, scales, inverses, count, grid.qmin, grid.qmax, errors)
    least = f32_word(errors[0])
    for c in range(count):
        least = min(least, f32_word(errors[c]))
    limit = limit_of(word_f32(least))
    close = 0
    for c in range(count):
        if errors[c] <= limit:
            words[close] = words[c]
            close += 1
    best = words[0]
    if close > 1:
        lowest = np.inf
        for i in range(close):
            if words[i] not in words[:i]:
                choose_codes(values, words[i], grid, codes)
                error = exact_error(values, importance, scale_value(words[i]), codes)
                if error < lowest:
                    best, lowest = words[i], error
    return best


@inline
def choose_codes(values: Any, word: Any, grid: Grid, codes: Any) -> None:
    """Codes under a scale by the reciprocal multiply of formats 7.2, as float32."""
    inverse = np.float32(1.0) / scale_value(word)
    for k in range(len(values)):
        codes[k] = min(max(np.rint(values[k] * inverse), grid.qmin), grid.qmax)


@inline
def find_extreme(values: Any) -> int:
    """Index of the first value of largest magnitude; by words, so that NaN is largest and no subnormal is zero."""
    largest = np.uint32(0)
    for k in range(len(values)):
        largest = max(largest, np.uint32(f32_word(values[k]) & F32_MAGNITUDE))
    for k in range(len(values)):
        if f32_word(values[k]) & F32_MAGNITUDE == largest:
            return k
    return 0


@inline
def pad(importance: Any, length: int) -> Any:
    """Importances of whole groups, 0 for padding lanes."""
    if importance is None:
        return None
    padded = np.zeros(length)
    padded[: len(importance)] = importance
    return padded


@inline
def relative(importance: Any, group: int) -> Any:
    """Float32 importances relative to the largest of each group."""
    if importance is None:
        return None
    weights = np.zeros(len(importance), np.float32)
    for begin in range(0, len(importance), group):
        peak = importance[begin : begin + group].max()
        if peak > 0.0:
            for k in range(begin, begin + group):
                weights[k] = importance[k] / peak
    return weights


@inline
def part(vector: Any, begin: int, end: int) -> Any:
    if vector is None:
        return None
    return vector[begin:end]
