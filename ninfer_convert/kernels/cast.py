"""cast_direct between scalar words, each value rounded once (methods.md), and the counts behind its refusals.

Arrays are one-dimensional; float words as in `stored`, integers as int64 or uint64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ninfer_convert.kernels.compile import inline, kernel
from ninfer_convert.kernels.scalars import f64_to_bf16, f64_to_f32, f64_word, word_f64
from ninfer_convert.kernels.stored import excess, to_bf16, to_f32, to_f64
from ninfer_convert.kernels.words import F64_MAGNITUDE

F64_ONE = 0x3FF << 52


@kernel
def find_non_finite(words: Any, half: bool) -> tuple[int, int, int]:
    """(NaN, infinities, index of the first of either or -1)."""
    nans, infinities, first = 0, 0, -1
    for i in range(len(words)):
        beyond = excess(words[i], half)
        if beyond >= 0:
            nans += beyond > 0
            infinities += beyond == 0
            if first < 0:
                first = i
    return nans, infinities, first


@kernel
def find_made_infinite(words: Any, half: bool, converted: Any) -> tuple[int, int]:
    """(finite words that `converted`, bfloat16 or binary32, holds as an infinity; index of the first or -1)."""
    total, first = 0, -1
    for i in range(len(words)):
        if excess(words[i], half) < 0 and excess(converted[i], False) >= 0:
            total += 1
            if first < 0:
                first = i
    return total, first


@kernel
def floats_to_bf16(words: Any, half: bool, out: Any) -> int:
    """Into uint16 words; returns how many of them are not finite."""
    total = 0
    for i in range(len(words)):
        word = to_bf16(words[i], half)
        out[i] = word
        total += excess(word, False) >= 0
    return total


@kernel
def floats_to_f32(words: Any, half: bool, out: Any) -> int:
    """Into uint32 words; returns how many of them are not finite."""
    total = 0
    for i in range(len(words)):
        word = to_f32(words[i], half)
        out[i] = word
        total += excess(word, False) >= 0
    return total


@kernel
def floats_to_int32(words: Any, half: bool, out: Any) -> tuple[int, int]:
    """Into int32; returns (words that are no whole number in its range, index of the first or -1)."""
    total, first = 0, -1
    for i in range(len(words)):
        word = to_f64(words[i], half)
        magnitude = np.int64(word) & F64_MAGNITUDE
        value = word_f64(word) if magnitude >= F64_ONE else 0.0
        if (0 < magnitude < F64_ONE) or not (-(2.0**31) <= value < 2.0**31) or value != np.floor(value):
            total += 1
            if first < 0:
                first = i
            value = 0.0
        out[i] = np.int32(value)
    return total, first


@kernel
def integers_to_bf16(values: Any, out: Any) -> None:
    """Into uint16 words."""
    for i in range(len(values)):
        out[i] = f64_to_bf16(f64_word(rounded_to_odd(values[i])))


@kernel
def integers_to_f32(values: Any, out: Any) -> None:
    """Into uint32 words."""
    for i in range(len(values)):
        out[i] = f64_to_f32(f64_word(rounded_to_odd(values[i])))


@inline
def rounded_to_odd(value: Any) -> Any:
    """The integer as a float64 of 53 bits, the last one set where bits were dropped.

    Rounding that to 51 bits or fewer gives what rounding the integer itself would: no tie is made or lost.
    """
    magnitude, unit = np.uint64(value), 1.0
    if value < 0:
        magnitude = np.uint64(0) - magnitude
    if magnitude >> np.uint64(53) != 0:
        dropped = magnitude & np.uint64(0x7FF)
        magnitude, unit = (magnitude >> np.uint64(11)) | np.uint64(dropped != 0), 2048.0
    if value < 0:
        unit = -unit
    return np.float64(magnitude) * unit
