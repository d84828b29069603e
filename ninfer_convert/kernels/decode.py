"""Words of scaled formats back to the binary32 values they represent (formats 3.3, 3.4, 6.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ninfer_convert.kernels.compile import inline, kernel
from ninfer_convert.kernels.scalars import (
    e2m1_to_f32,
    e4m3_to_f32,
    f16_to_f32,
    f32_to_f64,
    f64_to_f32,
    f64_word,
    word_f32,
    word_f64,
)
from ninfer_convert.kernels.stored import to_f64


@kernel
def decode_grouped(codes: Any, scales: Any, group: int, out: Any) -> None:
    """int8 codes [rows, K] times binary16 scales [rows, ceil(K / group)] into float32 [rows, K].

    No product is a binary32 subnormal, and none needs rounding: 11 bits by 8.
    """
    for row in range(codes.shape[0]):
        for g in range(scales.shape[1]):
            scale = word_f32(f16_to_f32(scales[row, g]))
            members = codes[row, g * group : (g + 1) * group]
            values = out[row, g * group : (g + 1) * group]
            for k in range(len(members)):
                values[k] = scale * np.float32(members[k])


@kernel
def decode_row_scaled(codes: Any, scales: Any, half: bool, out: Any) -> None:
    """E4M3FN codes uint8 [rows, K] times scale words uint16 [rows] into the uint32 words [rows, K] of binary32."""
    products = np.empty(256, np.uint32)
    for row in range(codes.shape[0]):
        scale = word_f64(to_f64(scales[row], half))
        for code in range(256):
            products[code] = rounded_f32(word_f64(f32_to_f64(e4m3_to_f32(code))) * scale)
        for k in range(codes.shape[1]):
            out[row, k] = products[codes[row, k]]


@kernel
def decode_block_scaled(codes: Any, scales: Any, divisors: Any, group: int, out: Any) -> None:
    """E2M1 codes uint8 [rows, K] times E4M3FN scales uint8 [rows, K / group], by the row's binary32 divisor word.

    `out` takes the uint32 words [rows, K] of binary32. All quotients of a divisor are made once, for the rows that
    share it.
    """
    quotients = np.empty((256, 16), np.uint32)
    for row in range(codes.shape[0]):
        if row == 0 or divisors[row] != divisors[row - 1]:
            divisor = word_f64(f32_to_f64(divisors[row]))
            for scale in range(256):
                factor = word_f64(f32_to_f64(e4m3_to_f32(scale)))
                for code in range(16):
                    product = word_f64(f32_to_f64(e2m1_to_f32(code))) * factor
                    quotients[scale, code] = rounded_f32(product / divisor)
        for g in range(scales.shape[1]):
            scaled = quotients[scales[row, g]]
            for k in range(g * group, (g + 1) * group):
                out[row, k] = scaled[codes[row, k] & 0xF]


@inline
def rounded_f32(value: float) -> Any:
    """The uint32 word of a binary64 product or quotient of two short numbers.

    A product of 4 bits by 8 is exact in binary64. A quotient of 6 bits by 24 cannot lie so close to a tie of
    binary32 that its rounding to 53 bits first would hide on which side: it is rounded as if once.
    """
    return f64_to_f32(f64_word(value))
