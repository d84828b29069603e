"""Super-blocks of 256 values whose codes index points of a grid: IQ1_S to IQ3_S.

`grid` is float32 [points, 8] ([points, 4] for IQ3). `signs` is float32 [n, 8], +1 or -1: of each byte, or of each
seven bits with an even number of minus signs. A scale with code s is d * (s + 1/2) / 4 for IQ2; all products of a
scale and a point are exact in binary32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ninfer_convert.kernels.blocks.fields import half, half_word, nibble, real, word16, word32
from ninfer_convert.kernels.compile import inline, kernel

HALF = np.float32(0.5)
QUARTER = np.float32(0.25)
EIGHTH = np.float32(0.125)


@inline
def _signed(values: Any, at: int, scale: Any, point: Any, signs: Any) -> None:
    """Eight values of one point."""
    for lane in range(8):
        values[at + lane] = scale * point[lane] * signs[lane]


@inline
def _signed_pair(values: Any, at: int, scale: Any, first: Any, second: Any, signs: Any) -> None:
    """Eight values of two points of four."""
    for lane in range(4):
        values[at + lane] = scale * first[lane] * signs[lane]
        values[at + 4 + lane] = scale * second[lane] * signs[4 + lane]


@inline
def _shifted(values: Any, at: int, scale: Any, point: Any, minus: Any) -> None:
    """Eight values of one point, all moved by an eighth, down where `minus` is set."""
    delta = -EIGHTH if minus else EIGHTH
    for lane in range(8):
        values[at + lane] = scale * (point[lane] + delta)


@kernel
def decode_iq2_xxs(blocks: Any, out: Any, grid: Any, signs: Any) -> None:
    """d; then for each 32 values four bytes of points and a word: four times seven bits of signs, then the scale."""
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 0)
        for group in range(8):
            points = block[2 + 8 * group :]
            word = word32(points, 4)
            scale = d * (HALF + real(word >> 28)) * QUARTER
            for part in range(4):
                _signed(values, 32 * group + 8 * part, scale, grid[points[part]], signs[(word >> (7 * part)) & 127])


@kernel
def decode_iq2_xs(blocks: Any, out: Any, grid: Any, signs: Any) -> None:
    """d; 32 words of nine bits of point and seven of signs; 16 nibbles of scale, one for two words."""
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 0)
        for group in range(16):
            scale = d * (HALF + real(nibble(block[66:], group))) * QUARTER
            for part in range(2):
                word = word16(block, 2 + 4 * group + 2 * part)
                _signed(values, 16 * group + 8 * part, scale, grid[word & 511], signs[word >> 9])


@kernel
def decode_iq2_s(blocks: Any, out: Any, grid: Any, signs: Any) -> None:
    """d; 32 low bytes of points; 32 bytes of signs; 8 bytes of the points' high bit pairs; 16 nibbles of scale."""
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 0)
        for group in range(16):
            scale = d * (HALF + real(nibble(block[74:], group))) * QUARTER
            for part in range(2):
                at = 2 * group + part
                high = (block[66 + at // 4] >> (at % 4 * 2)) & 3
                _signed(values, 8 * at, scale, grid[block[2 + at] | high << 8], signs[block[34 + at]])


@kernel
def decode_iq3_xxs(blocks: Any, out: Any, grid: Any, signs: Any) -> None:
    """d; 64 bytes of points; for each 32 values a word as in IQ2_XXS. The scale is d * (s + 1/2) / 2."""
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 0)
        for group in range(8):
            points = block[2 + 8 * group :]
            word = word32(block, 66 + 4 * group)
            scale = d * (HALF + real(word >> 28)) * HALF
            for part in range(4):
                first, second = grid[points[2 * part]], grid[points[2 * part + 1]]
                _signed_pair(values, 32 * group + 8 * part, scale, first, second, signs[(word >> (7 * part)) & 127])


@kernel
def decode_iq3_s(blocks: Any, out: Any, grid: Any, signs: Any) -> None:
    """d; 64 low bytes of points; 8 bytes of their ninth bits; 32 of signs; 8 nibbles of scale, d * (2 s + 1)."""
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 0)
        for group in range(8):
            points = block[2 + 8 * group :]
            scale = d * real(2 * nibble(block[106:], group) + 1)
            for part in range(4):
                ninth = block[66 + group] >> (2 * part)
                first = grid[points[2 * part] | (ninth & 1) << 8]
                second = grid[points[2 * part + 1] | (ninth & 2) << 7]
                _signed_pair(values, 32 * group + 8 * part, scale, first, second, signs[block[74 + 4 * group + part]])


@kernel
def decode_iq1_s(blocks: Any, out: Any, grid: Any) -> None:
    """d; 32 low bytes of points; 8 words of four times three high bits, the scale d * (2 s + 1), the shift's sign."""
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 0)
        for group in range(8):
            word = word16(block, 34 + 2 * group)
            scale = d * real(2 * ((word >> 12) & 7) + 1)
            for part in range(4):
                at = 4 * group + part
                point = grid[block[2 + at] | ((word >> (3 * part)) & 7) << 8]
                _shifted(values, 8 * at, scale, point, word >> 15)


@kernel
def decode_iq1_m(blocks: Any, out: Any, grid: Any) -> None:
    """32 low bytes of points; 32 nibbles: three high bits, the shift's sign; 4 words of four three-bit scales.

    The words' top nibbles, lowest first, are the binary16 d.
    """
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        tops = word16(block, 48) >> 12 | word16(block, 50) >> 12 << 4 | word16(block, 52) >> 12 << 8
        d = half_word(tops | word16(block, 54) >> 12 << 12)
        for group in range(16):
            scale = d * real(2 * ((word16(block, 48 + group // 4 * 2) >> (group % 4 * 3)) & 7) + 1)
            for part in range(2):
                at = 2 * group + part
                high = nibble(block[32:], at)
                _shifted(values, 8 * at, scale, grid[block[at] | (high & 7) << 8], high & 8)
