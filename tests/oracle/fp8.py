"""fp8_row_maxabs on exact fractions, each step rounded to its binary format (methods.md)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tests.oracle.scalars import BF16, E4M3, F16, F32, Binary, convert

SCALES = {"fp8_e4m3fn_row_bf16": BF16, "fp8_e4m3fn_row_fp16": F16}


class Refused(Exception):
    """Why a row cannot be kept."""


def encode_row(format: str, words: Sequence[int], stored: Binary) -> tuple[list[int], int]:
    """E4M3FN codes and the scale word of a row of `stored` words; raises Refused."""
    lanes = [convert(word, stored, BF16) for word in words]
    if any(lane % BF16.sign > BF16.largest for lane in lanes):
        raise Refused("not finite")
    amax = max(BF16.magnitude(lane) for lane in lanes)
    if amax == 0:
        return [0] * len(lanes), 0
    target = SCALES[format]
    scale = target.nearest(F32.magnitude(F32.nearest(amax / 448))) or 0x0001
    if scale > target.largest:
        raise Refused("scale")
    inverse = F32.nearest(1 / target.magnitude(scale))
    if inverse > F32.largest:
        raise Refused("reciprocal")
    return [code(lane, F32.magnitude(inverse)) for lane in lanes], scale


def code(lane: int, inverse: Fraction) -> int:
    product = F32.nearest(BF16.magnitude(lane) * inverse)
    assert product <= F32.largest
    magnitude = E4M3.nearest(min(F32.magnitude(product), Fraction(448)))
    return magnitude | (E4M3.sign if lane & BF16.sign else 0)
