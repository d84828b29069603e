"""Blocks of evenly spaced codes under one scale, some with a minimum: Q4_0 to Q8_0, Q1_0, Q2_0, PQ2_0.

In each kernel `block` is the bytes of one block and `values` what it decodes to, see `decode_blocks`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ninfer_convert.kernels.blocks.fields import half, real, word32
from ninfer_convert.kernels.compile import kernel


@kernel
def decode_q4_0(blocks: Any, out: Any) -> None:
    """(code - 8) * d; low nibbles are the first half of the block, high nibbles the second."""
    lanes = out.shape[1] // 2
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 0)
        for lane in range(lanes):
            values[lane] = d * real((block[2 + lane] & 15) - 8)
            values[lanes + lane] = d * real((block[2 + lane] >> 4) - 8)


@kernel
def decode_q4_1(blocks: Any, out: Any) -> None:
    """code * d + m, nibbles as in Q4_0."""
    lanes = out.shape[1] // 2
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d, minimum = half(block, 0), half(block, 2)
        for lane in range(lanes):
            values[lane] = d * real(block[4 + lane] & 15) + minimum
            values[lanes + lane] = d * real(block[4 + lane] >> 4) + minimum


@kernel
def decode_q5_0(blocks: Any, out: Any) -> None:
    """(code - 16) * d; the fifth bits are one word, bit j for value j."""
    lanes = out.shape[1] // 2
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d, fifth = half(block, 0), word32(block, 2)
        for lane in range(lanes):
            nibbles = block[6 + lane]
            values[lane] = d * real(((nibbles & 15) | ((fifth >> lane) & 1) << 4) - 16)
            values[lanes + lane] = d * real(((nibbles >> 4) | ((fifth >> (lanes + lane)) & 1) << 4) - 16)


@kernel
def decode_q5_1(blocks: Any, out: Any) -> None:
    """code * d + m, bits as in Q5_0."""
    lanes = out.shape[1] // 2
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d, minimum, fifth = half(block, 0), half(block, 2), word32(block, 4)
        for lane in range(lanes):
            nibbles = block[8 + lane]
            values[lane] = d * real((nibbles & 15) | ((fifth >> lane) & 1) << 4) + minimum
            values[lanes + lane] = d * real((nibbles >> 4) | ((fifth >> (lanes + lane)) & 1) << 4) + minimum


@kernel
def decode_q8_0(blocks: Any, out: Any) -> None:
    """code * d, the codes signed bytes."""
    lanes = out.shape[1]
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 0)
        for lane in range(lanes):
            values[lane] = d * real(np.int8(block[2 + lane]))


@kernel
def decode_q1_0(blocks: Any, out: Any) -> None:
    """d where the bit is set, else -d; eight values a byte, lowest bit first."""
    lanes = out.shape[1]
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 0)
        for lane in range(lanes):
            values[lane] = d * real(2 * ((block[2 + lane // 8] >> (lane % 8)) & 1) - 1)


@kernel
def decode_q2_0(blocks: Any, out: Any) -> None:
    """(code - 1) * d; four values a byte, lowest bits first. PQ2_0 is the same with 128 values instead of 64."""
    lanes = out.shape[1]
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 0)
        for lane in range(lanes):
            values[lane] = d * real(((block[2 + lane // 4] >> (lane % 4 * 2)) & 3) - 1)
