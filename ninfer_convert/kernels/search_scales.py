"""The scales that grouped_search tries, as binary16 words in the order that decides ties (methods.md).

Words that the method skips (zero, infinite, NaN, negative where not allowed) are among them; `search` passes them by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ninfer_convert.kernels.compile import inline
from ninfer_convert.kernels.scalars import f16_to_f32, f32_to_f16, f32_word, word_f32
from ninfer_convert.kernels.words import F16_INFINITY

if TYPE_CHECKING:
    from ninfer_convert.kernels.search_types import Grid

RATIOS = np.array([hundredths / 100 for hundredths in range(70, 119, 2)])
POWERS = np.array([0.25, 0.5, 2.0, 4.0])
FITTED = np.array([1.0, 0.5, 2.0])
AROUND = np.array([-2, -1, 1, 2])
BESIDE = np.array([-1, 1])
MOST_FIRST = 2 * len(RATIOS) + len(POWERS) + len(AROUND) + len(FITTED) + len(AROUND)
"""The most words that `put_first` appends."""


@inline
def scale_value(word: Any) -> Any:
    """uint16 -> the float32 it means."""
    return word_f32(f16_to_f32(word))


@inline
def scale_word(value: Any) -> Any:
    """float64 -> its binary16 word by way of binary32; what underflows from a non-zero value becomes +-2^-24."""
    word = f32_to_f16(f32_word(np.float32(value)))
    return np.uint16(word | (((word & 0x7FFF) == 0) & (value != 0.0)))


@inline
def put_multiples(words: Any, count: int, factors: Any, value: float, divisor: float) -> int:
    """Append `factor * value / divisor` for each factor; returns the new count."""
    free = words[count:]
    for i in range(len(factors)):
        free[i] = scale_word(factors[i] * value / divisor)
    return count + len(factors)


@inline
def put_neighbours(words: Any, count: int, word: Any, steps: Any) -> int:
    """Append the words so many magnitudes from `word`, same sign, 0 where there is none; returns the new count."""
    free = words[count:]
    for i in range(len(steps)):
        magnitude = np.int64(word & 0x7FFF) + steps[i]
        usable = (magnitude > 0) & (magnitude < F16_INFINITY)
        free[i] = np.uint16((word & 0x8000) | magnitude) if usable else np.uint16(0)
    return count + len(steps)


@inline
def put_first(words: Any, count: int, extreme: float, maxabs: Any, fit: float, grid: Grid) -> int:
    """Append families 1 to 5; returns the new count.

    They come from the first value of largest magnitude, the word of the max-abs scale, and the least-squares scale
    of its codes (NaN where there is none).
    """
    full_range = len(RATIOS) if grid.negative or extreme < 0.0 else 0
    count = put_multiples(words, count, RATIOS, abs(extreme), grid.qmax)
    count = put_multiples(words, count, RATIOS[:full_range], extreme, grid.qmin)
    count = put_multiples(words, count, POWERS, np.float64(scale_value(maxabs)), 1.0)
    count = put_neighbours(words, count, maxabs, AROUND)
    fitted = count
    count = put_multiples(words, count, FITTED, fit, 1.0)
    return put_neighbours(words, count, words[fitted], AROUND)


@inline
def put_last(words: Any, count: int, fit: float) -> int:
    """Append family 6, from the least-squares scale of the best codes so far (NaN: none); returns the new count."""
    words[count] = scale_word(fit)
    return put_neighbours(words, count + 1, words[count], BESIDE)
