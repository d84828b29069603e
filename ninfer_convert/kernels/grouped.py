"""grouped_absmax from stored words to codes and scales in one pass over the rows (formats 7.2).

A row is worked on in spans that stay in the first-level cache, each step of a span a loop that fills the vector
registers: widen the words, find each group's largest magnitude, make all scales, make all codes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ninfer_convert.kernels.compile import inline, kernel
from ninfer_convert.kernels.scalars import f16_to_f32, f32_to_f16, f32_word, word_f32
from ninfer_convert.kernels.stored import to_f32
from ninfer_convert.kernels.words import F16_INFINITY, F32_INFINITY, F32_MAGNITUDE

SPAN = 2048
"""Lanes worked on at a time, a multiple of every group size."""
BLOCK = 32
"""Lanes coded at a time: so many that the loop over them, of known length, becomes a few vector instructions."""
SMALLEST_GROUP = 32
ROUNDING = np.float32(1.5 * 2.0**23)
"""Added to a number below 2^22 it leaves no room for a fraction: the sum is rounded to whole, ties to even."""
ROUNDED_ZERO = int(ROUNDING.view(np.uint32))
"""The word of ROUNDING. That of ROUNDING + q is this + q."""


@kernel
def encode_absmax(words: Any, half: bool, group: int, qmin: int, qmax: int, codes: Any, scales: Any) -> int:
    """Encode `words` [rows, K] (see `stored`) into `codes` int8 [rows, K] and `scales` uint16 [rows, ceil(K / group)].

    Returns -1, or the flat index in `scales` of the first group that holds a value not finite in binary32 or
    whose scale overflows binary16; `codes` and `scales` are then incomplete.
    """
    rows, columns = words.shape
    lanes = np.empty(SPAN, np.uint32)
    largest = np.empty(SPAN // SMALLEST_GROUP, np.uint32)
    inverses = np.empty(SPAN // SMALLEST_GROUP, np.float32)
    for row in range(rows):
        for begin in range(0, columns, SPAN):
            count = min(columns - begin, SPAN)
            groups = -(-count // group)
            first_group = begin // group
            span_scales = scales[row, first_group : first_group + groups]
            widen(words[row, begin : begin + count], half, lanes)
            find_largest(lanes[:count], group, largest)
            highest = make_scales(largest[:groups], np.float32(qmax), span_scales, inverses)
            if highest >= F16_INFINITY:
                for i in range(groups):
                    if span_scales[i] >= F16_INFINITY:
                        return int(row * scales.shape[1] + first_group + i)
            make_codes(lanes[:count], group, inverses, qmin, qmax, codes[row, begin : begin + count])
    return -1


@kernel
def find_overflows(words: Any, half: bool, group: int, qmax: int) -> Any:
    """(groups of `words` [rows, K] whose scale overflows binary16, flat index of the first or -1, largest absmax).

    Values that are not finite are passed by; the absmax is a binary32 word.
    """
    rows, columns = words.shape
    groups = -(-columns // group)
    total, first, highest = 0, -1, np.uint32(0)
    for row in range(rows):
        for g in range(groups):
            largest = np.uint32(0)
            for k in range(g * group, min((g + 1) * group, columns)):
                magnitude = np.uint32(to_f32(words[row, k], half) & F32_MAGNITUDE)
                if largest < magnitude < F32_INFINITY:
                    largest = magnitude
            highest = max(highest, largest)
            if scale_word(largest, np.float32(qmax)) >= F16_INFINITY:
                total += 1
                if first < 0:
                    first = row * groups + g
    return total, first, highest


@inline
def widen(words: Any, half: bool, lanes: Any) -> None:
    """Stored words -> the uint32 words of binary32."""
    for k in range(len(words)):
        lanes[k] = to_f32(words[k], half)


@inline
def find_largest(lanes: Any, group: int, largest: Any) -> None:
    """Each group's largest magnitude; as words, so that a NaN is larger than infinity and a subnormal than zero."""
    for begin in range(0, len(lanes), group):
        members = lanes[begin : begin + group]
        word = np.uint32(0)
        for k in range(len(members)):
            word = max(word, np.uint32(members[k] & F32_MAGNITUDE))
        largest[begin // group] = word


@inline
def scale_word(largest: Any, qmax: Any) -> Any:
    """Binary16 scale of a group by its largest magnitude word; a scale that would vanish is 2^-24 instead."""
    word = f32_to_f16(f32_word(word_f32(largest) / qmax))
    if largest != 0:
        word = max(word, np.uint16(1))
    return word


@inline
def make_scales(largest: Any, qmax: Any, scales: Any, inverses: Any) -> Any:
    """Scales and their binary32 reciprocals (0 for a group of zeros); returns the largest scale word."""
    highest = np.uint16(0)
    for g in range(len(largest)):
        scale = scale_word(largest[g], qmax)
        inverse = np.float32(1.0) / word_f32(f16_to_f32(scale))
        scales[g] = scale
        inverses[g] = inverse if scale != 0 else np.float32(0.0)
        highest = max(highest, scale)
    return highest


@inline
def make_codes(lanes: Any, group: int, inverses: Any, qmin: int, qmax: int, codes: Any) -> None:
    whole = len(lanes) // BLOCK * BLOCK
    for begin in range(0, whole, BLOCK):
        make_block(lanes[begin : begin + BLOCK], BLOCK, inverses[begin // group], qmin, qmax, codes[begin:])
    if whole < len(lanes):
        make_block(lanes[whole:], len(lanes) - whole, inverses[whole // group], qmin, qmax, codes[whole:])


@inline
def make_block(lanes: Any, count: int, inverse: Any, qmin: int, qmax: int, codes: Any) -> None:
    """Codes of lanes of one group. The clamp is on words, which order as their numbers do; the low byte is the code."""
    lowest, highest = np.uint32(ROUNDED_ZERO + qmin), np.uint32(ROUNDED_ZERO + qmax)
    for k in range(count):
        word = f32_word(word_f32(lanes[k]) * inverse + ROUNDING)
        codes[k] = np.int8(min(max(word, lowest), highest))
