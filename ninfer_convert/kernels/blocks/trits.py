"""Blocks of three-valued codes: TQ1_0, TQ2_0, PTQ1_0. The scale is the last field of each."""

from __future__ import annotations

from typing import Any

from ninfer_convert.kernels.blocks.fields import half, real
from ninfer_convert.kernels.compile import inline, kernel


@inline
def _decode_run(block: Any, count: int, trits: int, d: Any, values: Any) -> None:
    """`count` bytes of `trits` ternary digits each; digit t of byte m is value count * t + m, 0 to 2 for -1 to +1.

    A byte is the number 0.ttttt in base 3, rounded up to eight bits: times 3^t its fraction begins with digit t.
    """
    power = 1
    for digit in range(trits):
        for lane in range(count):
            fraction = (block[lane] * power) & 255
            values[count * digit + lane] = d * real((fraction * 3 >> 8) - 1)
        power *= 3


@kernel
def decode_tq1_0(blocks: Any, out: Any) -> None:
    """32 and 16 bytes of five digits, 4 of four."""
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 52)
        _decode_run(block, 32, 5, d, values)
        _decode_run(block[32:], 16, 5, d, values[160:])
        _decode_run(block[48:], 4, 4, d, values[240:])


@kernel
def decode_ptq1_0(blocks: Any, out: Any) -> None:
    """16 and 8 bytes of five digits, 2 of four."""
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 26)
        _decode_run(block, 16, 5, d, values)
        _decode_run(block[16:], 8, 5, d, values[80:])
        _decode_run(block[24:], 2, 4, d, values[120:])


@kernel
def decode_tq2_0(blocks: Any, out: Any) -> None:
    """(code - 1) * d; in each half of the block the bit pairs of 32 bytes are four runs of 32 values."""
    lanes = out.shape[1] // 8
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 64)
        for run in range(8):
            codes = block[32 * (run // 4) :]
            shift = run % 4 * 2
            for lane in range(lanes):
                values[32 * run + lane] = d * real(((codes[lane] >> shift) & 3) - 1)
