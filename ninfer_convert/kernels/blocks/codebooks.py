"""Blocks of four-bit words that index sixteen values: IQ4_NL, IQ4_XS, MXFP4, NVFP4."""

from __future__ import annotations

from typing import Any

from ninfer_convert.kernels.blocks.fields import half, nibble, real, word16
from ninfer_convert.kernels.compile import kernel


@kernel
def decode_iq4_nl(blocks: Any, out: Any, book: Any) -> None:
    """d * book[word]; low nibbles are the first half of the block. `book`: float32 [16]."""
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d = half(block, 0)
        for lane in range(16):
            values[lane] = d * book[block[2 + lane] & 15]
            values[16 + lane] = d * book[block[2 + lane] >> 4]


@kernel
def decode_iq4_xs(blocks: Any, out: Any, book: Any) -> None:
    """d * (scale - 32) * book[word] for each 32 values, each like a block of IQ4_NL.

    d; the two high bits of eight scales; their low nibbles; 128 bytes of words.
    """
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        d, high = half(block, 0), word16(block, 2)
        for group in range(8):
            scale = d * real((nibble(block[4:], group) | ((high >> (2 * group)) & 3) << 4) - 32)
            for lane in range(16):
                words = block[8 + 16 * group + lane]
                values[32 * group + lane] = scale * book[words & 15]
                values[32 * group + 16 + lane] = scale * book[words >> 4]


@kernel
def decode_mxfp4(blocks: Any, out: Any, books: Any) -> None:
    """A scale byte, then words as in IQ4_NL. `books`: the sixteen values under each scale, float32 [256, 16]."""
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        book = books[block[0]]
        for lane in range(16):
            values[lane] = book[block[1 + lane] & 15]
            values[16 + lane] = book[block[1 + lane] >> 4]


@kernel
def decode_nvfp4(blocks: Any, out: Any, books: Any) -> None:
    """Four scale bytes, then for each 16 values eight bytes; low nibbles are the first eight. `books` as MXFP4's."""
    for index in range(blocks.shape[0]):
        block, values = blocks[index], out[index]
        for group in range(4):
            book = books[block[group]]
            for lane in range(8):
                words = block[4 + 8 * group + lane]
                values[16 * group + lane] = book[words & 15]
                values[16 * group + 8 + lane] = book[words >> 4]
