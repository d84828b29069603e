"""Bit planes: bits of byte lanes, gathered into dense fields and spread out again; their padding bits (layouts.md).

Lane i owns bits `[i * width, (i + 1) * width)` of a little-endian bit stream; `width` is 1, 2, 4 or 8, so eight
lanes, one 64-bit word, are `width` whole bytes. Both loops halve the gaps between fields three times, for every
width alike. Rows, groups and padding are the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ninfer_convert.kernels.compile import inline, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


def pack(lanes: NDArray[Any], width: int, shift: int = 0, offset: int = 0) -> NDArray[np.uint8]:
    """Bits `[shift, shift + width)` of each lane, plus `offset` modulo `2**width`.

    `lanes` are C-ordered int8 or uint8, a multiple of eight in number; returns uint8 [lanes * width / 8].
    """
    fields = np.empty(lanes.size // 8 * width, np.uint8)
    _pack(lanes.reshape(-1).view(np.uint64), width, shift, offset, fields.view(f"u{width}"))
    return fields


def unpack(
    planes: Sequence[NDArray[np.uint8]], widths: Sequence[int], flip: int = 0, drop: int = 0
) -> NDArray[np.uint8]:
    """Lanes whose bits stand in `planes`, the lowest first: (bits ^ `flip`) - `drop`, modulo 256.

    Each plane is C-ordered uint8 [lanes * width / 8]. With `flip` and `drop` the sign bit's weight, lanes are
    two's complement. Returns uint8 [lanes].
    """
    lanes = np.empty(planes[0].size // widths[0] * 8, np.uint8)
    words = lanes.view(np.uint64)
    for i, (fields, width) in enumerate(zip(planes, widths, strict=True)):
        last = i == len(planes) - 1
        dense = fields.reshape(-1).view(f"u{width}")
        _unpack(dense, width, sum(widths[:i]), flip if last else 0, drop if last else 0, words)
    return lanes


@inline
def _every(stride: int, width: int) -> Any:
    """A 64-bit mask of `width` set bits at every multiple of `stride`."""
    mask = np.uint64(0)
    for start in range(0, 64, stride):
        mask |= ((np.uint64(1) << np.uint64(width)) - np.uint64(1)) << np.uint64(start)
    return mask


@inline
def _plus(lanes: Any, more: Any) -> Any:
    """Eight byte lanes added, each modulo 256: the top bits are added without their carry."""
    top = _every(8, 1) << np.uint64(7)
    return ((lanes & ~top) + (more & ~top)) ^ ((lanes ^ more) & top)


@kernel
def _pack(words: Any, width: int, shift: int, offset: int, fields: Any) -> None:
    by_lane, by_two, by_four = _every(8, width), _every(16, 2 * width), _every(32, 4 * width)
    gap, low = np.uint64(8 - width), np.uint64(shift)
    added = _every(8, 1) * np.uint64(offset)
    for j in range(words.size):
        x = _plus((words[j] >> low) & by_lane, added) & by_lane
        x = (x | (x >> gap)) & by_two
        x = (x | (x >> (np.uint64(2) * gap))) & by_four
        fields[j] = x | (x >> (np.uint64(4) * gap))


@kernel
def _unpack(fields: Any, width: int, shift: int, flip: int, drop: int, words: Any) -> None:
    by_lane, by_two, by_four = _every(8, width), _every(16, 2 * width), _every(32, 4 * width)
    gap, low = np.uint64(8 - width), np.uint64(shift)
    flipped, added = _every(8, 1) * np.uint64(flip), _every(8, 1) * np.uint64(-drop % 256)
    for j in range(words.size):
        x = np.uint64(fields[j])
        x = (x | (x << (np.uint64(4) * gap))) & by_four
        x = (x | (x << (np.uint64(2) * gap))) & by_two
        x = ((x | (x << gap)) & by_lane) << low
        if shift > 0:
            x |= words[j]
        words[j] = _plus(x ^ flipped, added)


@kernel
def differences(rows: Any, mask: Any, expected: Any) -> Any:
    """(bytes of `rows` that differ from `expected` in bits of `mask`, flat index of the first or -1).

    `rows` is uint8 [n, row bytes]; `mask` and `expected` are one row's bytes.
    """
    start = 0
    while start < mask.size and mask[start] == 0:
        start += 1
    bits, right = mask[start:], expected[start:]
    count, first = 0, -1
    for row in range(rows.shape[0]):
        stored = rows[row, start:]
        wrong = np.uint8(0)
        for byte in range(bits.size):
            wrong = np.uint8(wrong | ((stored[byte] ^ right[byte]) & bits[byte]))
        if wrong != 0:
            for byte in range(bits.size):
                if (stored[byte] ^ right[byte]) & bits[byte] != 0:
                    count += 1
                    if first < 0:
                        first = row * mask.size + start + byte
    return count, first
