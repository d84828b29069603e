"""Super-blocks of 256 values with a small scale, some with a small minimum, for each 16 or 32: Q2_K to Q6_K."""

from __future__ import annotations

from typing import Any

import numpy as np

from ninfer_convert.kernels.blocks.fields import half, real
from ninfer_convert.kernels.compile import inline, kernel


@kernel
def decode_q2_k(blocks: Any, out: Any) -> None:
    """code * (d * scale) - dmin * minimum for each 16 values.

    16 bytes of scale (low nibble) and minimum; 64 of codes; d; dmin. A byte of codes holds the same lane of four
    runs of 32 values, and each half of the block has 32 such bytes.
    """
    lanes = out.shape[1] // 16
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d, dmin = half(block, 80), half(block, 82)
        for group in range(16):
            scale = d * real(block[group] & 15)
            minimum = dmin * real(block[group] >> 4)
            codes = block[16 + 32 * (group // 8) + 16 * (group % 2) :]
            shift = group % 8 // 2 * 2
            for lane in range(lanes):
                values[16 * group + lane] = scale * real((codes[lane] >> shift) & 3) - minimum


@kernel
def decode_q3_k(blocks: Any, out: Any) -> None:
    """(code - 4) * (d * (scale - 32)) for each 16 values.

    32 bytes of third bits, bit r of a byte for run r of 32 values; 64 of codes as in Q2_K; 12 of scales, whose low
    four bits are the nibbles of the first eight (low nibbles first) and whose high two the pairs of bits of the last
    four; d.
    """
    lanes = out.shape[1] // 16
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 108)
        for group in range(16):
            low = (block[96 + group % 8] >> (group // 8 * 4)) & 15
            high = (block[104 + group % 4] >> (group // 4 * 2)) & 3
            scale = d * real((low | high << 4) - 32)
            third = block[16 * (group % 2) :]
            codes = block[32 + 32 * (group // 8) + 16 * (group % 2) :]
            shift = group % 8 // 2 * 2
            run = group // 2
            for lane in range(lanes):
                code = ((codes[lane] >> shift) & 3) | ((third[lane] >> run) & 1) << 2
                values[16 * group + lane] = scale * real(code - 4)


@inline
def scale_and_minimum(block: Any, group: int) -> Any:
    """The six-bit scale and minimum of group 0 to 7, in the 12 bytes after d and dmin of Q4_K and Q5_K.

    Groups 0 to 3: the low six bits of bytes 0 to 3 and 4 to 7. Groups 4 to 7: the nibbles of bytes 8 to 11, with the
    two high bits of the first eight bytes on top.
    """
    if group < 4:
        return block[4 + group] & 63, block[8 + group] & 63
    nibbles = block[8 + group]
    return (nibbles & 15) | (block[group] >> 6) << 4, (nibbles >> 4) | (block[4 + group] >> 6) << 4


@kernel
def decode_q4_k(blocks: Any, out: Any) -> None:
    """code * (d * scale) - dmin * minimum for each 32 values.

    d; dmin; 12 bytes of scales and minimums; 128 of codes: the nibbles of 32 bytes are two runs of 32 values.
    """
    lanes = out.shape[1] // 8
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d, dmin = half(block, 0), half(block, 2)
        for pair in range(4):
            low_scale, low_minimum = scale_and_minimum(block, 2 * pair)
            high_scale, high_minimum = scale_and_minimum(block, 2 * pair + 1)
            d_low, d_high = d * real(low_scale), d * real(high_scale)
            m_low, m_high = dmin * real(low_minimum), dmin * real(high_minimum)
            for lane in range(lanes):
                nibbles = block[16 + 32 * pair + lane]
                values[64 * pair + lane] = d_low * real(nibbles & 15) - m_low
                values[64 * pair + 32 + lane] = d_high * real(nibbles >> 4) - m_high


@kernel
def decode_q5_k(blocks: Any, out: Any) -> None:
    """As Q4_K, with 32 bytes of fifth bits before the nibbles: bit r of a byte for run r of 32 values."""
    lanes = out.shape[1] // 8
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d, dmin = half(block, 0), half(block, 2)
        for pair in range(4):
            low_scale, low_minimum = scale_and_minimum(block, 2 * pair)
            high_scale, high_minimum = scale_and_minimum(block, 2 * pair + 1)
            d_low, d_high = d * real(low_scale), d * real(high_scale)
            m_low, m_high = dmin * real(low_minimum), dmin * real(high_minimum)
            for lane in range(lanes):
                nibbles = block[48 + 32 * pair + lane]
                fifths = block[16 + lane] >> (2 * pair)
                values[64 * pair + lane] = d_low * real((nibbles & 15) | (fifths & 1) << 4) - m_low
                values[64 * pair + 32 + lane] = d_high * real((nibbles >> 4) | (fifths & 2) << 3) - m_high


@kernel
def decode_q6_k(blocks: Any, out: Any) -> None:
    """(code - 32) * (d * scale) for each 16 values, the scales signed bytes.

    128 bytes of nibbles; 64 of high bit pairs; 16 scales; d. In each half of the block the low nibbles of 64 bytes
    are two runs of 32 values, the high nibbles two more; the four pairs of a byte belong to one lane of these runs.
    """
    lanes = out.shape[1] // 16
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 208)
        for part in range(4):
            side, begin = part // 2, 16 * (part % 2)
            low = block[64 * side + begin :]
            pairs = block[128 + 32 * side + begin :]
            scales = block[192 + 8 * side + part % 2 :]
            first = 128 * side + begin
            scale_0, scale_1 = d * real(np.int8(scales[0])), d * real(np.int8(scales[2]))
            scale_2, scale_3 = d * real(np.int8(scales[4])), d * real(np.int8(scales[6]))
            for lane in range(lanes):
                near, far, high = low[lane], low[32 + lane], pairs[lane]
                values[first + lane] = scale_0 * real(((near & 15) | (high & 3) << 4) - 32)
                values[first + 32 + lane] = scale_1 * real(((far & 15) | (high & 12) << 2) - 32)
                values[first + 64 + lane] = scale_2 * real(((near >> 4) | (high & 48)) - 32)
                values[first + 96 + lane] = scale_3 * real(((far >> 4) | (high >> 6) << 4) - 32)
