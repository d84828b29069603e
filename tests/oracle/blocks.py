"""Blocks decoded one value at a time: the types that ggml's published bindings lack (encoded-sources.md 7.2, 7.4)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


def q2_0(block: bytes) -> Iterator[float]:
    """Q2_0 and PQ2_0: a binary16 scale, then codes of two bits, value code - 1."""
    (d,) = struct.unpack("<e", block[:2])
    for byte in block[2:]:
        for pair in range(4):
            yield ((byte >> (2 * pair)) % 4 - 1) * d


def ptq1_0(block: bytes) -> Iterator[float]:
    """PTQ1_0: in runs of 16 and 8 bytes of five digits and 2 of four, digit t of all bytes, then digit t + 1."""
    (d,) = struct.unpack("<e", block[26:])
    for begin, end, digits in ((0, 16, 5), (16, 24, 5), (24, 26, 4)):
        for t in range(digits):
            for byte in block[begin:end]:
                yield (byte * 3**t % 256 * 3 // 256 - 1) * d


def pack_ptq1_0(trits: Sequence[int], d: float) -> bytes:
    """128 values of -1, 0, 1 as PTQ1_0: a byte is its digits as a fraction of 3^5, in 256ths, rounded up."""
    packed = bytearray()
    position = 0
    for count, digits in ((16, 5), (8, 5), (2, 4)):
        for m in range(count):
            number = 0
            for t in range(5):
                number = 3 * number + (trits[position + count * t + m] + 1 if t < digits else 0)
            packed.append(-(-number * 256 // 243))
        position += count * digits
    return bytes(packed) + struct.pack("<e", d)


DECODERS = {42: (q2_0, 18), 142: (q2_0, 34), 143: (ptq1_0, 28)}


def decode(ggml: int, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Rows of blocks, uint8 [rows, bytes], as float32 [rows, values]."""
    decoder, size = DECODERS[ggml]
    rows = [
        [value for at in range(0, len(row), size) for value in decoder(bytes(row[at : at + size]))] for row in blocks
    ]
    with np.errstate(invalid="ignore"):
        return np.array(rows, dtype=np.float32)
