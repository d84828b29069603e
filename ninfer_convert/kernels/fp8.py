"""fp8_row_maxabs from stored words to E4M3FN codes and row multipliers (methods.md; formats 3.4).

Steps whose binary32 operands or results may be subnormal are done in binary64, whose numbers are normal there, and
rounded once to binary32 by words.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ninfer_convert.kernels.compile import inline, kernel
from ninfer_convert.kernels.scalars import (
    f16_to_f32,
    f32_to_bf16,
    f32_to_f16,
    f32_to_f64,
    f32_word,
    f64_to_f32,
    f64_word,
    word_f32,
    word_f64,
)
from ninfer_convert.kernels.stored import to_bf16
from ninfer_convert.kernels.words import BF16_INFINITY, F16_INFINITY, F32_INFINITY, F32_MAGNITUDE

LARGEST = np.float32(448.0)
TINY_ROW = (127 - 100) << 23
"""Rows whose largest magnitude word is below this (2^-100) may hold subnormals that matter."""
NORMAL = 121 << 23
"""The word of 2^-6, E4M3FN's smallest normal number; below it the step stays 2^-9."""
HIDDEN = 20 << 23
"""Added to the word of 2^e: 2^(e + 20), whose own last bit is worth 2^(e - 3), E4M3FN's step in that binade."""


@kernel
def encode_fp8(words: Any, half: bool, bf16_scales: bool, codes: Any, scales: Any) -> int:
    """Encode `words` [rows, K] (see `stored`) into `codes` uint8 [rows, K] and `scales` uint16 [rows].

    Returns -1, or the first row that holds a value not finite in bfloat16 or whose scale or reciprocal scale is not
    finite; `codes` and `scales` are then incomplete.
    """
    rows, columns = words.shape
    lanes = np.empty(columns, np.uint32)
    for row in range(rows):
        largest = widen(words[row], half, lanes)
        scale, inverse = row_scale(largest, bf16_scales)
        if largest >= F32_INFINITY or f32_word(inverse) >= F32_INFINITY:
            return int(row)
        scales[row] = scale
        if largest == 0:
            codes[row] = 0
            continue
        if largest < TINY_ROW:
            normalize_tiny(lanes, inverse)
        else:
            normalize(lanes, inverse)
        round_lanes(lanes, codes[row])
    return -1


@kernel
def find_unscalable(words: Any, half: bool, bf16_scales: bool) -> tuple[int, int, Any]:
    """(rows of finite values without a finite scale and reciprocal, the first or -1, its absmax as a binary32 word)."""
    rows, columns = words.shape
    lanes = np.empty(columns, np.uint32)
    total, first, first_largest = 0, -1, np.uint32(0)
    for row in range(rows):
        largest = widen(words[row], half, lanes)
        _, inverse = row_scale(largest, bf16_scales)
        if largest < F32_INFINITY and f32_word(inverse) >= F32_INFINITY:
            if first < 0:
                first, first_largest = row, largest
            total += 1
    return total, first, first_largest


@inline
def widen(words: Any, half: bool, lanes: Any) -> Any:
    """Stored words -> those of binary32 that hold their bfloat16 values; returns the largest magnitude."""
    largest = np.uint32(0)
    for k in range(len(words)):
        lane = np.uint32(np.uint32(to_bf16(words[k], half)) << 16)
        lanes[k] = lane
        largest = max(largest, np.uint32(lane & F32_MAGNITUDE))
    return largest


@inline
def row_scale(largest: Any, bf16_scales: bool) -> Any:
    """(scale word, float32 reciprocal of the scale) of a row by its largest magnitude; 0 and 0 for zeros.

    The reciprocal is infinite where it, or the scale, is not finite. Where it is finite so is every product with a
    value of the row: the scale is more than half the quotient it was rounded from.
    """
    if largest == 0:
        return np.uint16(0), np.float32(0.0)
    raw = f64_to_f32(f64_word(word_f64(f32_to_f64(largest)) / 448.0))
    scale = f32_to_bf16(raw) if bf16_scales else f32_to_f16(raw)
    scale = max(scale, np.uint16(1))
    if scale >= (BF16_INFINITY if bf16_scales else F16_INFINITY):
        return scale, np.float32(np.inf)
    wide = np.uint32(np.uint32(scale) << 16) if bf16_scales else f16_to_f32(scale)
    return scale, word_f32(f64_to_f32(f64_word(1.0 / word_f64(f32_to_f64(wide)))))


@inline
def normalize(lanes: Any, inverse: Any) -> None:
    """Multiply values by the reciprocal scale, in binary32."""
    for k in range(len(lanes)):
        lanes[k] = f32_word(word_f32(lanes[k]) * inverse)


@inline
def normalize_tiny(lanes: Any, inverse: Any) -> None:
    """The same through binary64, where the product is exact."""
    for k in range(len(lanes)):
        product = word_f64(f32_to_f64(lanes[k])) * np.float64(inverse)
        lanes[k] = f64_to_f32(f64_word(product))


@inline
def round_lanes(lanes: Any, codes: Any) -> None:
    """Clamp values to +-448 and round them to E4M3FN, ties to even, sign kept.

    The step at hand becomes the last bit of a power of two far above the value: their sum is rounded as the code must
    be, and holds how many steps the value has.
    """
    for k in range(len(lanes)):
        magnitude = min(word_f32(np.uint32(lanes[k] & F32_MAGNITUDE)), LARGEST)
        binade = max(np.uint32(f32_word(magnitude) & F32_INFINITY), np.uint32(NORMAL))
        hidden = np.uint32(binade + HIDDEN)
        steps = np.uint32(f32_word(magnitude + word_f32(hidden)) - hidden)
        code = np.uint32(((binade - NORMAL) >> 20) + steps)
        codes[k] = np.uint8(((lanes[k] >> 24) & 0x80) | code)
