"""grouped_search from stored words to codes and scales, exactly as binary64 sums decide (methods.md).

Some sixty scales compete for a group. All are screened in binary32, those left over in binary64 in any order; only
those so close to the best that the exact rule could prefer them (`search_errors`) are summed in order, the first of
equals winning.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ninfer_convert.kernels.compile import inline, kernel
from ninfer_convert.kernels.grouped import scale_word as maxabs_word
from ninfer_convert.kernels.scalars import f32_to_f64, f32_word, word_f32, word_f64
from ninfer_convert.kernels.search_errors import (
    CLOSE_SUMS,
    estimate_errors,
    exact_error,
    fit_scale,
    limit_of,
    sum_errors,
)
from ninfer_convert.kernels.search_scales import MOST_FIRST, put_first, put_last, scale_value
from ninfer_convert.kernels.search_types import Candidates, Grid, Reach
from ninfer_convert.kernels.stored import to_f32
from ninfer_convert.kernels.words import F16_INFINITY, F32_MAGNITUDE

F32_SIGN = 1 << 31
MOST = 1 + MOST_FIRST
"""The most candidates at a time: the best so far and the most that are put behind it."""


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
        np.empty(MOST, np.uint16),
        np.empty(MOST, np.float32),
        np.empty(MOST, np.float32),
        np.empty(MOST, np.uint32),
        np.empty(MOST, np.float64),
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
            members = values[begin:end]
            reach = find_reach(members)
            scale = maxabs_word(max(reach.above, reach.below), grid.qmax)
            if scale >= F16_INFINITY:
                return int(row * groups + g)
            if scale == 0:
                chosen[:] = 0
            else:
                its_weights, its_importance = part(weights, begin, end), part(padded, begin, end)
                scale = search_group(members, its_weights, its_importance, reach, grid, scale, candidates, chosen)
            scales[row, g] = scale
            for k in range(min(end, columns) - begin):
                codes[row, begin + k] = np.int8(chosen[k])
    return -1


# Numba counts the references to an array by atomic instructions, a sixth of the time once, and leaves that out only of
# functions that use their arrays alike on every path. So none below returns early or has arrays in a branch: what is
# not to be done is a loop of no rounds.


@inline
def search_group(
    values: Any,
    weights: Any,
    importance: Any,
    reach: Reach,
    grid: Grid,
    maxabs: Any,
    candidates: Candidates,
    codes: Any,
) -> Any:
    """The scale word of a group by that of its max-abs scale, which is not zero; its codes into `codes`."""
    words = candidates.words
    words[0] = maxabs
    fit = fit_codes(values, importance, grid, maxabs, codes)
    count = put_first(words, 1, extreme_value(values, reach), maxabs, fit, grid)
    best = pick(values, weights, importance, reach, grid, candidates, count, codes)
    words[0] = best
    fit = fit_codes(values, importance, grid, best, codes)
    count = put_last(words, 1, fit)
    best = pick(values, weights, importance, reach, grid, candidates, count, codes)
    choose_codes(values, best, grid, codes)
    return best


@inline
def fit_codes(values: Any, importance: Any, grid: Grid, word: Any, codes: Any) -> float:
    """The least-squares scale of the codes under a scale; NaN where there is none."""
    choose_codes(values, word, grid, codes)
    return fit_scale(values, importance, codes)


@inline
def pick(
    values: Any, weights: Any, importance: Any, reach: Reach, grid: Grid, candidates: Candidates, count: int, codes: Any
) -> Any:
    """The word of least exact error among the first `count` candidates, the first of equals; the first one is usable.

    Uses up `candidates` and `codes`.
    """
    fill_scales(candidates, count, grid.negative)
    estimate_errors(values, weights, reach, grid, candidates, count)
    least = least_of(candidates.errors, count)
    count = keep(candidates.words, candidates.errors, count, limit_of(least))
    count = keep_distinct(candidates.words, count)
    count = keep_closest(values, importance, grid, candidates, count, codes)
    return least_exact(values, importance, grid, candidates.words, count, codes)


@inline
def fill_scales(candidates: Candidates, count: int, negative: bool) -> None:
    """Scales of words, and reciprocals. A skipped word's scale becomes NaN, and so does its estimate: never kept."""
    words, scales, inverses = candidates.words, candidates.scales, candidates.inverses
    for c in range(count):
        magnitude = words[c] & 0x7FFF
        usable = (magnitude > 0) & (magnitude < F16_INFINITY) & (negative | (words[c] == magnitude))
        scales[c] = scale_value(words[c]) if usable else np.float32(np.nan)
        inverses[c] = np.float32(1.0) / scales[c]


@inline
def least_of(errors: Any, count: int) -> Any:
    """The least among the first `count`."""
    least = errors[0]
    for c in range(count):
        least = min(least, errors[c])
    return least


@inline
def keep(words: Any, errors: Any, count: int, limit: Any) -> int:
    """Move to the front the words whose error is within `limit`; returns how many."""
    kept = 0
    for c in range(count):
        words[kept] = words[c]
        kept += errors[c] <= limit
    return kept


@inline
def keep_distinct(words: Any, count: int) -> int:
    """Move to the front the first of equal words; returns how many."""
    kept = 0
    for c in range(count):
        words[kept] = words[c]
        repeated = False
        for i in range(kept):
            repeated |= words[i] == words[c]
        kept += not repeated
    return kept


@inline
def keep_closest(values: Any, importance: Any, grid: Grid, candidates: Candidates, count: int, codes: Any) -> int:
    """Move to the front the words, if there are several, that binary64 sums in any order leave; returns how many."""
    words, sums = candidates.words, candidates.sums
    several = count if count > 1 else 0
    least = np.inf
    for c in range(several):
        choose_codes(values, words[c], grid, codes)
        sums[c] = sum_errors(values, importance, scale_value(words[c]), codes)
        least = min(least, sums[c])
    return max(keep(words, sums, several, least * CLOSE_SUMS), 1)


@inline
def least_exact(values: Any, importance: Any, grid: Grid, words: Any, count: int, codes: Any) -> Any:
    """The word of least exact error among the first `count`, the first of equals."""
    best, least = words[0], np.inf
    for c in range(count if count > 1 else 0):
        choose_codes(values, words[c], grid, codes)
        error = exact_error(values, importance, scale_value(words[c]), codes)
        if error < least:
            best, least = words[c], error
    return best


@inline
def choose_codes(values: Any, word: Any, grid: Grid, codes: Any) -> None:
    """Codes under a scale by the reciprocal multiply of formats 7.2, as float32."""
    inverse = np.float32(1.0) / scale_value(word)
    for k in range(len(values)):
        codes[k] = min(max(np.rint(values[k] * inverse), grid.qmin), grid.qmax)


@inline
def find_reach(values: Any) -> Reach:
    """By words, as signed numbers and as unsigned ones, so that NaN is largest and no subnormal is zero."""
    above, below = np.int32(0), np.uint32(F32_SIGN)
    for k in range(len(values)):
        word = f32_word(values[k])
        above = max(above, np.int32(word))
        below = max(below, word)
    return Reach(np.uint32(above), np.uint32(below & F32_MAGNITUDE))


@inline
def extreme_value(values: Any, reach: Reach) -> Any:
    """The first value of largest magnitude, as float64."""
    above, below = reach
    extreme = above if above > below else np.uint32(F32_SIGN | below)
    for k in range(len(values) - 1 if above == below else -1, -1, -1):  # of equals the first is the last to be found
        word = f32_word(values[k])
        if word & F32_MAGNITUDE == above:
            extreme = word
    return word_f64(f32_to_f64(extreme))


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
