"""The scales that grouped_search tries, as binary16 words in the order that decides ties (methods.md).

Words that the method skips (zero, infinite, negative where not allowed) may be among them; `search` passes them by.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ninfer_convert.kernels.compile import inline
from ninfer_convert.kernels.scalars import F16_INFINITY, f16_to_f32, f32_to_f16, f32_word, word_f32

RATIOS = np.array([hundredths / 100 for hundredths in range(70, 119, 2)])
POWERS = np.array([0.25, 0.5, 2.0, 4.0])
FITTED = np.array([1.0, 0.5, 2.0])
MOST_FIRST = 2 * len(RATIOS) + len(POWERS) + 4 + len(FITTED) + 4
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
def put_neighbours(words: Any, count: int, word: Any, reach: int) -> int:
    """Append the words up to `reach` magnitudes from `word`, lowest first, same sign; returns the new count."""
    for step in range(-reach, reach + 1):
        magnitude = np.int64(word & 0x7FFF) + step
        if step != 0 and 0 < magnitude < F16_INFINITY:
            words[count] = (word & 0x8000) | magnitude
            count += 1
    return count


@inline
def put_first(
    words: Any, count: int, extreme: float, maxabs: Any, fit: float, qmin: float, qmax: float, negative: bool
) -> int:
    """Append families 1 to 5; returns the new count.

    They come from the first value of largest magnitude, the word of the max-abs scale, and the least-squares scale
    of its codes (NaN where there is none).
    """
    count = put_multiples(words, count, RATIOS, abs(extreme), qmax)
    if negative or extreme < 0.0:
        count = put_multiples(words, count, RATIOS, extreme, qmin)
    count = put_multiples(words, count, POWERS, np.float64(scale_value(maxabs)), 1.0)
    count = put_neighbours(words, count, maxabs, 2)
    if not np.isnan(fit):
        count = put_multiples(words, count, FITTED, fit, 1.0)
        count = put_neighbours(words, count, scale_word(fit), 2)
    return count


@inline
def put_last(words: Any, count: int, fit: float) -> int:
    """Append family 6, from the least-squares scale of the best codes so far (NaN: none); returns the new count."""
    if np.isnan(fit):
        return count
    words[count] = scale_word(fit)
    return put_neighbours(words, count + 1, words[count], 1)
