"""Scans for words that a format forbids (formats 3 to 5): all are counted, the first are noted.

A scan fills `found` int64 [limit, 4] with (kind, row, column, word), column -1 where there is none, in row order, and
returns the total. `word` is the code, the scale word or the divisor's word. Rows without a fault, nearly all of
them, pass by a test that fills the vector registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ninfer_convert.kernels.compile import inline, kernel
from ninfer_convert.kernels.stored import excess
from ninfer_convert.kernels.words import E4M3_LARGEST, E4M3_NAN, F16_INFINITY, F32_INFINITY

CODE, SCALE, ZERO_SCALE, DIVISOR = range(4)


@kernel
def scan_grouped(codes: Any, scales: Any, group: int, qmin: int, qmax: int, any_finite_scale: bool, found: Any) -> int:
    """Codes int8 [rows, K], scales uint16 [rows, ceil(K / group)] (formats 5)."""
    total = 0
    for row in range(codes.shape[0]):
        if within(codes[row], qmin, qmax) and plain_scales(scales[row]):
            continue
        for g in range(scales.shape[1]):
            begin = g * group
            members = codes[row, begin : begin + group]
            scale = scales[row, g]
            if excess(scale, True) >= 0 or (scale == 0x8000 and not any_finite_scale):
                total = note(found, total, SCALE, row, g, scale)
            elif scale == 0 and not any_finite_scale and not within(members, 0, 0):
                total = note(found, total, ZERO_SCALE, row, g, scale)
            for k in range(len(members)):
                if not qmin <= members[k] <= qmax:
                    total = note(found, total, CODE, row, begin + k, members[k])
    return total


@kernel
def scan_row_scaled(codes: Any, scales: Any, half: bool, found: Any) -> int:
    """E4M3FN codes uint8 [rows, K], scale words uint16 [rows] (formats 3.4)."""
    total = 0
    for row in range(codes.shape[0]):
        scale = scales[row]
        largest = np.uint8(0)
        for k in range(codes.shape[1]):
            largest = max(largest, np.uint8(codes[row, k] & 0x7F))
        if scale >= 0x8000 or excess(scale, half) >= 0:
            total = note(found, total, SCALE, row, -1, scale)
        elif scale == 0 and largest > 0:
            total = note(found, total, ZERO_SCALE, row, -1, scale)
        if largest == E4M3_NAN:
            for k in range(codes.shape[1]):
                if codes[row, k] & 0x7F == E4M3_NAN:
                    total = note(found, total, CODE, row, k, codes[row, k])
    return total


@kernel
def scan_block_scaled(codes: Any, scales: Any, divisors: Any, found: Any) -> int:
    """E2M1 codes uint8 [rows, K], E4M3FN scales uint8 [rows, K / 16], binary32 divisor words uint32 [rows].

    A divisor that consecutive rows share is one word, noted at the first of them (formats 3.3).
    """
    total = 0
    for row in range(codes.shape[0]):
        divisor = divisors[row]
        if (row == 0 or divisor != divisors[row - 1]) and not 0 < divisor < F32_INFINITY:
            total = note(found, total, DIVISOR, row, -1, divisor)
        if not within(scales[row], 0, E4M3_LARGEST):
            for g in range(scales.shape[1]):
                if scales[row, g] > E4M3_LARGEST:
                    total = note(found, total, SCALE, row, g, scales[row, g])
        if not within(codes[row], 0, 15):
            for k in range(codes.shape[1]):
                if codes[row, k] > 15:
                    total = note(found, total, CODE, row, k, codes[row, k])
    return total


@inline
def within(words: Any, lowest: int, highest: int) -> bool:
    """Whether all words lie in [lowest, highest]."""
    outside = False
    for i in range(len(words)):
        outside |= (words[i] < lowest) | (words[i] > highest)
    return not outside


@inline
def plain_scales(scales: Any) -> bool:
    """Whether all binary16 scales are finite and not zero."""
    special = False
    for g in range(len(scales)):
        magnitude = np.uint16(scales[g] & 0x7FFF)
        special |= (magnitude == 0) | (magnitude >= F16_INFINITY)
    return not special


@inline
def note(found: Any, total: int, kind: int, row: int, column: int, word: Any) -> int:
    """Keep a fault if there is room; returns the new total."""
    if total < len(found):
        found[total, 0] = kind
        found[total, 1] = row
        found[total, 2] = column
        found[total, 3] = word
    return total + 1
