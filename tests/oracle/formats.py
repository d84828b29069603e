"""What words of scaled formats mean and which are forbidden, one at a time on exact fractions (formats 3 to 6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache

from tests.oracle.scalars import BF16, E2M1, E4M3, F16, F32, Binary

GROUPED = {
    # group, qmin, qmax
    "q2_g64_fp16": (64, -1, 2),
    "q4_g64_fp16": (64, -8, 7),
    "q5_g64_fp16": (64, -16, 15),
    "q6_g64_fp16": (64, -32, 31),
    "q8_g32_fp16": (32, -127, 127),
    "t2_g128_fp16": (128, -1, 1),
}
ROW_SCALED = {"fp8_e4m3fn_row_bf16": BF16, "fp8_e4m3fn_row_fp16": F16}

Place = tuple[int, int | None]
"""Row, and column or group."""
Rows = Sequence[Sequence[int]]


@cache
def value(word: int, binary: Binary) -> Fraction:
    return binary.value(word)


@cache
def f32_word(number: Fraction) -> int:
    """The binary32 word nearest to a number, of its magnitude alone."""
    return F32.nearest(abs(number))


def signed(number: Fraction, *negative: bool) -> int:
    """The word of a number whose sign is that of its factors, so that a zero has one too."""
    return (F32.sign if sum(negative) % 2 else 0) | f32_word(number)


def decode_grouped(format: str, codes: Rows, scales: Rows) -> list[list[int]]:
    """Binary32 words of valid grouped words; code 0 counts as positive."""
    group = GROUPED[format][0]
    return [
        [
            signed(code * value(scale, F16), code < 0, scale >= F16.sign)
            for k, code in enumerate(row)
            for scale in [row_scales[k // group]]
        ]
        for row, row_scales in zip(codes, scales, strict=True)
    ]


def decode_row_scaled(format: str, codes: Rows, scales: Sequence[int]) -> list[list[int]]:
    binary = ROW_SCALED[format]
    return [
        [signed(value(code, E4M3) * value(scale, binary), code >= E4M3.sign) for code in row]
        for row, scale in zip(codes, scales, strict=True)
    ]


def decode_nvfp4(codes: Rows, scales: Rows, divisors: Sequence[int]) -> list[list[int]]:
    return [
        [
            signed(value(code, E2M1) * value(row_scales[k // 16], E4M3) / value(divisor, F32), code >= E2M1.sign)
            for k, code in enumerate(row)
        ]
        for row, row_scales, divisor in zip(codes, scales, divisors, strict=True)
    ]


def grouped_faults(format: str, codes: Rows, scales: Rows) -> Iterator[Place]:
    """Every forbidden word; of a row group by group, the scale before the codes."""
    group, qmin, qmax = GROUPED[format]
    for row, (row_codes, row_scales) in enumerate(zip(codes, scales, strict=True)):
        for g, scale in enumerate(row_scales):
            members = row_codes[g * group : (g + 1) * group]
            zero_rules = format != "q2_g64_fp16"
            bad_zero = zero_rules and (scale == 0x8000 or (scale == 0 and any(members)))
            if bad_zero or scale % 0x8000 > F16.largest:
                yield row, g
            for k, code in enumerate(members):
                if code < qmin or code > qmax:
                    yield row, g * group + k


def row_scaled_faults(format: str, codes: Rows, scales: Sequence[int]) -> Iterator[Place]:
    """Every forbidden word; of a row the scale before the codes."""
    for row, (row_codes, scale) in enumerate(zip(codes, scales, strict=True)):
        if scale > ROW_SCALED[format].largest or (scale == 0 and any(code % 0x80 for code in row_codes)):
            yield row, None
        for k, code in enumerate(row_codes):
            if code % 0x80 == 0x7F:
                yield row, k


def nvfp4_faults(codes: Rows, scales: Rows, divisors: Sequence[int]) -> Iterator[Place]:
    """Every forbidden word; of a row the divisor (once for rows that share it), the scales, the codes."""
    for row, (row_codes, row_scales) in enumerate(zip(codes, scales, strict=True)):
        shared = row > 0 and divisors[row] == divisors[row - 1]
        if not shared and not 0 < divisors[row] <= F32.largest:
            yield row, None
        yield from ((row, g) for g, scale in enumerate(row_scales) if scale > 0x7E)
        yield from ((row, k) for k, code in enumerate(row_codes) if code > 15)
