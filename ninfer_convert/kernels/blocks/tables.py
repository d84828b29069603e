"""The constant tables that ggml's block types index: grids, sign patterns, code books.

The grids of the i-quants follow no formula; they are taken from the `gguf` package, here alone and when first asked
for.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float32]

IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float32)
DOUBLED_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.float32)
"""ggml stores twice the E2M1 value under half the scale, as whole numbers: its word 8 is +0, not -0."""


@cache
def grid(name: str) -> Table:
    """The points of IQ2_XXS, IQ2_XS, IQ2_S or IQ1_S, [points, 8], or of IQ3_XXS or IQ3_S, [points, 4]."""
    import gguf.quants

    quant = getattr(gguf.quants, name)
    quant.init_grid()
    points: Table = np.ascontiguousarray(quant.grid, dtype=np.float32).reshape(quant.grid_shape)
    return points


@cache
def signs_of_bytes() -> Table:
    """[256, 8]: -1 where the bit of the byte is set, lowest bit first."""
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    return np.asarray(1 - 2 * bits, dtype=np.float32)


@cache
def signs_of_seven_bits() -> Table:
    """[128, 8]: as `signs_of_bytes`, the eighth sign such that there is an even number of minus signs."""
    signs: Table = signs_of_bytes()[:128].copy()
    signs[:, 7] = signs[:, :7].prod(axis=1)
    return signs


@cache
def mxfp4_books() -> Table:
    """[256, 16]: E2M1 times 2^(b - 127) for each scale byte b; 0xFF is no NaN in ggml, and overflows."""
    words = [[_power_word(int(code), byte - 128) for code in DOUBLED_E2M1] for byte in range(256)]
    return np.array(words, dtype=np.uint32).view(np.float32)


def _power_word(factor: int, exponent: int) -> int:
    """The binary32 word of factor * 2^exponent, made of whole numbers so that no subnormal is flushed on the way."""
    if factor == 0:
        return 0
    magnitude = abs(factor)
    sign = (factor < 0) << 31
    lead = exponent + magnitude.bit_length() - 1
    if lead > 127:
        return sign | 0x7F800000
    if lead < -126:
        return sign | magnitude << (exponent + 149)
    fraction = magnitude << (24 - magnitude.bit_length()) & 0x7FFFFF
    return sign | (lead + 127) << 23 | fraction


@cache
def nvfp4_books() -> Table:
    """[256, 16]: E2M1 times the unsigned E4M3 scale; bit 7 is not read, and 0x7F is zero."""
    byte = np.arange(256)
    exponent, fraction = byte >> 3 & 15, byte & 7
    scale = np.where(exponent == 0, fraction * 2.0**-9, np.ldexp(1 + fraction / 8, exponent - 7))
    scale[0x7F] = 0
    return np.outer(scale / 2, DOUBLED_E2M1).astype(np.float32)
