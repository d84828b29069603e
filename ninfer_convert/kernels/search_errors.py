"""How well scales and codes reproduce a group: estimated quickly, summed exactly, fitted by least squares (methods.md).

`values` are a group's float32 values, `codes` whole numbers as float32. `importance` (float64) and `weights`
(float32, the same relative to the group's largest) are None where every lane weighs the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ninfer_convert.kernels.compile import any_order, inline
from ninfer_convert.kernels.scalars import f32_to_f64, f32_word, word_f32, word_f64

if TYPE_CHECKING:
    from ninfer_convert.kernels.search_types import Candidates, Grid, Reach

# An estimate Ê and the binary64 sum E that decides, both for the same scale and the same codes (the reciprocal
# multiply is the same binary32 operation in both). With u = 2^-24, over a group of n <= 64 lanes:
#
# - scale * code has at most 11 + 7 significant bits: exact. The rest is one rounding, its square a second on top of
#   twice the first, the weight one (and one of the division that made it, in binary64), the product one, the sum at
#   most n - 1 in whatever order. Every term is >= 0, so relative errors add up to no more than (n + 4) u in Ê. The
#   same steps in binary64 are below 2^-20 u. Fusing an operation only removes a rounding.
# - Where a binary32 step underflows, or is flushed to zero, it is off by at most 2^-126. Rests stay below 2^23 and
#   weights at or below 1, so a lane is off by less than 2^-79 (a lost weight times the square of a rest is the
#   worst), and a group by less than 2^-73.
#
# So |Ê - E| <= g E + SLACK with g = (n + 6) u (1 + g), SLACK = 2^-73, E in units of the largest weight. Let b have the
# least estimate and let E(a) <= E(b). Then Ê(a) <= (1 + g) E(b) + SLACK <= (1 + g) / (1 - g) (Ê(b) + SLACK) + SLACK,
# and (1 + g) / (1 - g) < 1 + 3 g = 1 + 210 u < 1 + 2^-16 for n = 64, with room for the rounding of the limit.
SLACK = 2.0**-73
CLOSE = 1.0 + 2.0**-16

# In binary64 no step underflows, so a sum in order and one in any order both are within a factor of 1 +- g of the sum
# without rounding, g = (n + 4) 2^-53 (1 + g). Let b have the least sum in any order, a the least in order: that of a in
# any order is no more than ((1 + g) / (1 - g))^2 < 1 + 5 g < 1 + 2^-44 times that of b.
CLOSE_SUMS = 1.0 + 2.0**-44

ROUNDER = np.float32(3 << 22)


@inline
def limit_of(least: Any) -> Any:
    """The largest estimate that a candidate can have whose exact error is the least, or equal to it; float32 words."""
    return f32_word(np.float32((np.float64(word_f32(least)) + SLACK) * CLOSE + SLACK))


@inline
def whole(value: Any) -> Any:
    """The nearest whole number of a float32 of magnitude up to 2^22, ties to even, as the sum keeps no fraction.

    Two additions go beside multiplications where rounding takes their place. No `any_order`: it would cancel them.
    """
    return (value + ROUNDER) - ROUNDER


@any_order
def estimate_errors(values: Any, weights: Any, reach: Reach, grid: Grid, candidates: Candidates, count: int) -> None:
    """Approximate error of each of the first `count` scales, into `candidates.errors`; NaN for NaN.

    Groups of 64 have code of their own, whose loop is of known length: 5 % more weights a second.
    """
    least, most = unclamped(reach, grid)
    if len(values) == 64:
        estimate_lanes(64, values, weights, least, most, grid, candidates, count)
    else:
        estimate_lanes(len(values), values, weights, least, most, grid, candidates, count)


@any_order
def estimate_lanes(
    lanes: int, values: Any, weights: Any, least: Any, most: Any, grid: Grid, candidates: Candidates, count: int
) -> None:
    for c in range(count):
        scale, inverse, total = candidates.scales[c], candidates.inverses[c], np.float32(0.0)
        clamped = not (least <= inverse <= most)
        for k in range(lanes):
            position = values[k] * inverse
            if clamped:
                position = min(max(position, grid.qmin), grid.qmax)
            rest = values[k] - scale * whole(position)
            if weights is None:
                total += rest * rest
            else:
                total += weights[k] * (rest * rest)
        candidates.errors[c] = f32_word(total)


# A position x * inverse grows, or falls, with x, so the extremes tell whether any is rounded beyond qmin or qmax. Three
# roundings change 127.4 by less than 0.1. Where an extreme is 0, the sign of the zero makes the infinity that is right.
@inline
def unclamped(reach: Reach, grid: Grid) -> Any:
    """The least reciprocal of a scale (negative) and the largest with which no code of a group has to be clamped."""
    highest, lowest = word_f32(reach.above), -word_f32(reach.below)
    low, high = grid.qmin - np.float32(0.4), grid.qmax + np.float32(0.4)
    return max(low / highest, high / lowest), min(high / highest, low / lowest)


def weighted_squares(values: Any, importance: Any, scale: Any, codes: Any) -> float:
    """The weighted squared error by the rule of methods.md: one binary64 sum, ascending."""
    total = 0.0
    for k in range(len(values)):
        rest = word_f64(f32_to_f64(f32_word(values[k]))) - np.float64(scale) * np.float64(codes[k])
        if importance is None:
            total += rest * rest
        else:
            total += importance[k] * (rest * rest)
    return total


exact_error = inline(weighted_squares)
sum_errors = any_order(weighted_squares)
"""The same, of terms in any order, several times as fast."""


@inline
def fit_scale(values: Any, importance: Any, codes: Any) -> float:
    """The least-squares scale of `codes`, sums ascending; NaN where the denominator is zero."""
    if importance is None:
        return fit_unweighted(values, codes)
    over, under = 0.0, 0.0
    for k in range(len(values)):
        code = np.float64(codes[k])
        over += importance[k] * np.float64(values[k]) * code
        under += importance[k] * code * code
    return np.nan if under == 0.0 else over / under


# Without weights both sums are exact, so the order of their terms is free. `under` is a sum of at most 64 whole numbers
# up to 2^14. A non-zero code of scale s comes from a value of at least 0.49 s, so every product is a multiple of
# 2^-26 s; the sum of their magnitudes is at most 64 * 128 * amax; and amax <= 2^12 s for every scale that is tried
# (at worst a third of a half of the fit, which is at least half the max-abs scale, amax / 127). Hence 51 bits at most.
@any_order
def fit_unweighted(values: Any, codes: Any) -> float:
    over, under = 0.0, 0.0
    for k in range(len(values)):
        code = np.float64(codes[k])
        over += np.float64(values[k]) * code
        under += code * code
    return np.nan if under == 0.0 else over / under
