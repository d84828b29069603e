"""grouped_absmax one value at a time, on Python floats cut to binary32 and binary16 by `struct` (formats 7.2).

A double holds a product of two binary32 numbers exactly, and a quotient closely enough to round right.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

FORMATS = {
    # group, qmin, qmax
    "q4_g64_fp16": (64, -8, 7),
    "q5_g64_fp16": (64, -16, 15),
    "q6_g64_fp16": (64, -32, 31),
    "q8_g32_fp16": (32, -127, 127),
}

Matrix = Sequence[Sequence[float]]


class Refused(Exception):
    """A value or scale that cannot be kept."""


def f32(number: float) -> float:
    """Rounded to binary32."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return rounded


def f16_word(number: float) -> int:
    """The binary16 word nearest to a number."""
    try:
        word: int = struct.unpack("<H", struct.pack("<e", number))[0]
    except OverflowError:
        return 0x7C00
    return word


def f16_value(word: int) -> float:
    value: float = struct.unpack("<e", struct.pack("<H", word))[0]
    return value


@dataclass(frozen=True)
class Encoder:
    """The steps of the algorithm; a test replaces one to make an encoder that is wrong."""

    denominator: Callable[[int, int], int] = lambda qmin, qmax: qmax
    scale: Callable[[float], int] = f16_word
    rescue: Callable[[int], int] = lambda word: word or 0x0001
    normalize: Callable[[float, float], float] = lambda x, scale: f32(x * f32(1.0 / scale))
    rounded: Callable[[float], int] = round
    lanes: Callable[[Matrix, int, int, int], Sequence[float]] = lambda matrix, row, begin, end: matrix[row][begin:end]
    """The values of a group's row [begin, end) that its absmax is taken over."""

    def encode(self, format: str, matrix: Matrix) -> tuple[list[list[int]], list[list[int]]]:
        """Codes [rows][K] and scale words [rows][groups] of binary32 numbers; raises Refused."""
        group, qmin, qmax = FORMATS[format]
        codes: list[list[int]] = []
        scales: list[list[int]] = []
        for row, values in enumerate(matrix):
            codes.append([])
            scales.append([])
            for begin in range(0, len(values), group):
                members = values[begin : begin + group]
                if not all(math.isfinite(f32(x)) for x in members):
                    raise Refused((row, begin // group))
                word, inverse_of = 0, 0.0
                amax = max(map(abs, self.lanes(matrix, row, begin, begin + group)))
                if amax != 0:
                    word = self.rescue(self.scale(f32(amax / self.denominator(qmin, qmax))))
                    if word >= 0x7C00:
                        raise Refused((row, begin // group))
                    inverse_of = f16_value(word)
                scales[-1].append(word)
                codes[-1] += [self.code(x, inverse_of, qmin, qmax) for x in members]
        return codes, scales

    def code(self, x: float, scale: float, qmin: int, qmax: int) -> int:
        if scale == 0:
            return 0
        return min(max(self.rounded(self.normalize(x, scale)), qmin), qmax)


RIGHT = Encoder()
