"""Encoded weights decoded one value at a time on exact fractions, as encoded-sources.md writes the rules.

Arrays come as the checkpoint stores them; words of scales are unsigned integers, `kind` is their dtype tag. Results are
binary32 words, uint32 [N, K].
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.oracle.scalars import BF16, E2M1, E4M3, F16, F32

Array = NDArray[Any]
Words = NDArray[np.uint32]

_FLOATS = {"F32": F32, "BF16": BF16, "F16": F16}


def f32(number: Fraction, negative: bool = False) -> int:
    """The binary32 word nearest to a number, ties to even; `negative` is the sign of a zero."""
    sign = 1 << 31 if number < 0 or (number == 0 and negative) else 0
    size = abs(number)
    if size == 0:
        return sign
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    exponent = max(exponent, -126)
    steps = round(size / Fraction(2) ** (exponent - 23))  # Python rounds halves to even
    return sign | min(((exponent + 126) << 23) + steps, 0x7F800000)


def scale(word: int, kind: str) -> Fraction:
    """What a word of a scale means; bytes are powers of two."""
    return Fraction(2) ** (word - 127) if kind in ("U8", "F8_E8M0") else _FLOATS[kind].value(word)


def each(shape: tuple[int, int], value: Callable[[int, int], tuple[Fraction, bool]]) -> Words:
    """A matrix whose element [n, k] is the number, and the sign of a zero, that `value` gives."""
    words = [[f32(*value(n, k)) for k in range(shape[1])] for n in range(shape[0])]
    return np.array(words, np.uint32).reshape(shape)


def fp8(codes: Array, scales: Array, kind: str, block: tuple[int, int]) -> Words:
    """Codes [N, K], scales [ceil(N / rows), ceil(K / columns)]: both are multiplied, whatever the tensor's name."""

    def value(n: int, k: int) -> tuple[Fraction, bool]:
        code = int(codes[n, k])
        return E4M3.value(code) * scale(int(scales[n // block[0], k // block[1]]), kind), code >= 0x80

    return each(codes.shape, value)


def int8(codes: Array, scales: Array, kind: str, divisor: int = 1) -> Words:
    """Signed codes [N, K], a scale for each row or one for all; bitsandbytes divides by 127."""

    def value(n: int, k: int) -> tuple[Fraction, bool]:
        code = int(codes[n, k])
        return code * scale(int(scales[n % len(scales)]), kind) / divisor, code < 0

    return each(codes.shape, value)


def nibbles(packed: Array) -> Array:
    """Bytes [N, K / 2]: the low nibble of byte j is column 2j, the high one 2j + 1."""
    rows = [[nibble for byte in row for nibble in (byte % 16, byte // 16)] for row in packed.tolist()]
    return np.array(rows, np.uint8)


def nvfp4(packed: Array, scales: Array, factor: float, multiplies: bool) -> Words:
    """E2M1 times the E4M3 scale of its sixteen columns, by or times a factor of the matrix; rounded once."""
    codes = nibbles(packed)
    last = Fraction(factor) if multiplies else 1 / Fraction(factor)

    def value(n: int, k: int) -> tuple[Fraction, bool]:
        return E2M1.value(int(codes[n, k])) * E4M3.value(int(scales[n, k // 16])) * last, codes[n, k] >= 8

    return each(codes.shape, value)


def mxfp4(packed: Array, exponents: Array) -> Words:
    """E2M1 times the power of two of its 32 columns."""
    codes = nibbles(packed)

    def value(n: int, k: int) -> tuple[Fraction, bool]:
        return E2M1.value(int(codes[n, k])) * scale(int(exponents[n, k // 32]), "U8"), codes[n, k] >= 8

    return each(codes.shape, value)


def stream(row: Array, bits: int, count: int) -> list[int]:
    """The elements of a row of I32 words as one long number, the first in its lowest bits."""
    number = int.from_bytes(row.astype("<u4").tobytes(), "little")
    return [number >> (bits * k) & ((1 << bits) - 1) for k in range(count)]


def packed_integers(
    words: Array,
    bits: int,
    columns: int,
    scales: Array,
    kind: str,
    group_of: Callable[[int], int],
    zeros: Array | None = None,
) -> Words:
    """compressed-tensors: (u - 2^(bits - 1)) * scale, or (u - z) * scale with z packed along the rows."""
    codes = [stream(row, bits, columns) for row in words]
    points = None if zeros is None else [stream(column, bits, len(words)) for column in zeros.T]

    def value(n: int, k: int) -> tuple[Fraction, bool]:
        group = group_of(k)
        zero = 1 << (bits - 1) if points is None else points[group][n]
        return (codes[n][k] - zero) * scale(int(scales[n, group]), kind), codes[n][k] < zero

    return each((len(words), columns), value)


def paired_rows(packed: Array, scales: Array, kind: str, group: int) -> Words:
    """ModelOpt INT4: the low nibble of byte [i, k] is row 2i, the high one row 2i + 1, two's complement."""

    def value(n: int, k: int) -> tuple[Fraction, bool]:
        nibble = int(packed[n // 2, k]) >> 4 * (n % 2) & 15
        return (nibble - 16 * (nibble >= 8)) * scale(int(scales[n, k // group]), kind), nibble >= 8

    return each((2 * packed.shape[0], packed.shape[1]), value)


def channels(words: Words, factors: Array, kind: str) -> Words:
    """Values, each times its column's factor."""

    def value(n: int, k: int) -> tuple[Fraction, bool]:
        word = int(words[n, k])
        return F32.value(word) * scale(int(factors[k]), kind), word >= 1 << 31

    return each((words.shape[0], words.shape[1]), value)


def gptq(qweight: Array, bits: int, scales: Array, group_of: Callable[[int], int], zero: int) -> Words:
    """Word [r, n], bits i * b: column r * (32 / b) + i of row n."""
    fields = 32 // bits

    def value(n: int, k: int) -> tuple[Fraction, bool]:
        code = int(qweight[k // fields, n]) >> bits * (k % fields) & ((1 << bits) - 1)
        return (code - zero) * scale(int(scales[group_of(k), n]), "F16"), code < zero

    return each((qweight.shape[1], qweight.shape[0] * fields), value)


def awq(qweight: Array, qzeros: Array, scales: Array, group: int) -> Words:
    """Row 8c + j of eight lies at nibble 0, 4, 1, 5, 2, 6, 3, 7 of word c for j = 0 .. 7."""

    def nibble(words: Array, line: int, n: int) -> int:
        return int(words[line, n // 8]) >> 4 * (n % 8 % 2 * 4 + n % 8 // 2) & 15

    def value(n: int, k: int) -> tuple[Fraction, bool]:
        code, zero = nibble(qweight, k, n), nibble(qzeros, k // group, n)
        return (code - zero) * scale(int(scales[k // group, n]), "F16"), code < zero

    return each((qweight.shape[1] * 8, qweight.shape[0]), value)


def four_bit(packed: Array, table: Array, absmax: Array, block: int, count: int) -> Words:
    """bitsandbytes: element i of the flat weight is the high nibble of byte i / 2 where i is even. [1, count]."""

    def value(_: int, i: int) -> tuple[Fraction, bool]:
        code = int(packed[i // 2]) >> 4 * (1 - i % 2) & 15
        word, largest = int(table[code]), int(absmax[i // block])
        return F32.value(word) * F32.value(largest), (word ^ largest) >= 1 << 31

    return each((1, count), value)


def nested_absmax(codes: Array, table: Array, outer: Array, block: int, offset: float) -> Array:
    """Largest magnitudes that are quantized again: a table's value times that of its block, plus an offset."""
    words = [
        f32(F32.value(f32(F32.value(int(table[code])) * F32.value(int(outer[i // block])))) + Fraction(offset))
        for i, code in enumerate(codes.tolist())
    ]
    return np.array(words, np.uint32)
