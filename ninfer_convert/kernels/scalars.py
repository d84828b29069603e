"""Scalar words and the exact steps between them, for use inside kernels.

Every function takes and gives words (bit patterns): narrowing rounds to nearest, ties to even, by whole numbers
alone, and widening is exact, so that a thread that flushes subnormals to zero changes no result. A NaN keeps its
sign and leading fraction bits and has its quiet bit set (methods.md, cast_direct).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from ninfer_convert.kernels.compile import inline
from ninfer_convert.kernels.words import E4M3_NAN, F16_INFINITY, F32_INFINITY, F32_MAGNITUDE


def _bit_cast(argument: Any, result: Any) -> Any:
    """An intrinsic that reads the bits of one machine type as another of the same width."""

    @intrinsic
    def cast(typing_context: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], context.get_value_type(result))

        return result(argument), generate

    return cast


f32_word = _bit_cast(types.float32, types.uint32)
"""float32 -> its uint32 word."""
word_f32 = _bit_cast(types.uint32, types.float32)
"""uint32 word -> the float32 it means."""
f64_word = _bit_cast(types.float64, types.uint64)
"""float64 -> its uint64 word."""
word_f64 = _bit_cast(types.uint64, types.float64)
"""uint64 word -> the float64 it means."""


@inline
def _rounded(magnitude: Any, fraction: int, bias: int, to_fraction: int, to_bias: int) -> Any:
    """Round the magnitude word of a binary format to one with fewer fraction bits and another bias, as int64.

    A subnormal result is a normal one whose exponent is held at 1 while more bits are dropped, so both take the
    same path; a carry out of the fraction runs into the exponent, and past the largest word. The target's bias is
    so much smaller that zero and the source's subnormals lose every bit, the leading one that they lack included.
    """
    exponent = (magnitude >> fraction) - (bias - to_bias)
    significand = (magnitude & ((1 << fraction) - 1)) | (1 << fraction)
    drop = min(fraction - to_fraction + max(1 - exponent, 0), 62)
    odd = (significand >> drop) & 1
    kept = (significand + (1 << (drop - 1)) - 1 + odd) >> drop
    return ((max(exponent, 1) - 1) << to_fraction) + kept


@inline
def _narrow(word: Any, fraction: int, bias: int, to_fraction: int, to_bias: int) -> Any:
    """Round an IEEE word to a narrower IEEE format, infinity and NaN included, as int64."""
    infinity = (2 * bias + 1) << fraction
    to_infinity = (2 * to_bias + 1) << to_fraction
    signed = np.int64(word)
    magnitude = signed & (infinity + (1 << fraction) - 1)
    result = min(_rounded(magnitude, fraction, bias, to_fraction, to_bias), to_infinity)
    if magnitude > infinity:
        quiet = 1 << (to_fraction - 1)
        result = to_infinity | quiet | ((magnitude - infinity) >> (fraction - to_fraction))
    return result + ((signed != magnitude) * (to_infinity + (1 << to_fraction)))


@inline
def bf16_to_f32(word: Any) -> Any:
    """uint16 -> uint32, every bit kept, those of a NaN included (formats 3.1)."""
    return np.uint32(np.uint32(word) << 16)


@inline
def f16_to_f32(word: Any) -> Any:
    """uint16 -> uint32; a subnormal's fraction is a whole number of 2^-24."""
    magnitude = np.uint32(word & 0x7FFF)
    shifted = np.uint32(magnitude << 13)
    result = np.uint32(shifted + (112 << 23))
    if magnitude < 0x0400:
        result = f32_word(np.float32(np.int32(magnitude)) * np.float32(2.0**-24))
    if magnitude >= F16_INFINITY:
        result = np.uint32(shifted | F32_INFINITY | ((magnitude > F16_INFINITY) << 22))
    return np.uint32(((word & 0x8000) << 16) | result)


@inline
def f32_to_f64(word: Any) -> Any:
    """uint32 -> uint64; a subnormal's fraction is a whole number of 2^-149."""
    bits = np.int64(word)
    magnitude = bits & F32_MAGNITUDE
    result = (magnitude << 29) + (896 << 52)
    if magnitude < 0x00800000:
        result = np.int64(f64_word(np.float64(magnitude) * 2.0**-149))
    if magnitude >= F32_INFINITY:
        result += 896 << 52
    if magnitude > F32_INFINITY:
        result |= 1 << 51
    return np.uint64(result) | (np.uint64(bits >> 31) << np.uint64(63))


@inline
def f32_to_bf16(word: Any) -> Any:
    """uint32 -> uint16. Both have the same exponent, so one addition rounds and carries."""
    kept = np.uint32(word >> 16)
    rounded = np.uint32(np.uint32(word + 0x7FFF + (kept & 1)) >> 16)
    if np.uint32(word & F32_MAGNITUDE) > F32_INFINITY:
        rounded = np.uint32(kept | 0x0040)
    return np.uint16(rounded)


@inline
def f32_to_f16(word: Any) -> Any:
    """uint32 -> uint16."""
    return np.uint16(_narrow(word, 23, 127, 10, 15))


@inline
def f64_to_f32(word: Any) -> Any:
    """uint64 -> uint32."""
    return np.uint32(_narrow(word, 52, 1023, 23, 127))


@inline
def f64_to_bf16(word: Any) -> Any:
    """uint64 -> uint16, not by way of binary32."""
    return np.uint16(_narrow(word, 52, 1023, 7, 127))


@inline
def e4m3_to_f32(word: Any) -> Any:
    """uint8 E4M3FN word -> uint32; a subnormal's fraction is a whole number of 2^-9."""
    magnitude = np.uint32(word & 0x7F)
    result = np.uint32((magnitude << 20) + (120 << 23))
    if magnitude < 0x08:
        result = f32_word(np.float32(np.int32(magnitude)) * np.float32(2.0**-9))
    if magnitude == E4M3_NAN:
        result = np.uint32(F32_INFINITY | 1 << 22)
    return np.uint32(((word & 0x80) << 24) | result)


@inline
def e2m1_to_f32(word: Any) -> Any:
    """uint8 E2M1 word (low four bits) -> uint32; the one subnormal magnitude is 0.5."""
    magnitude = np.uint32(word & 0x7)
    result = np.uint32((magnitude << 22) + (126 << 23))
    if magnitude < 2:
        result = np.uint32(magnitude * (126 << 23))
    return np.uint32(((word & 0x8) << 28) | result)
