"""Grouped signed-integer formats: signed codes and one binary16 multiplier per group (formats 3.2, 4 to 6)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GroupedFormat:
    """Codes in [qmin, qmax], `bits` wide, `group` of them along K sharing one binary16 scale.

    `any_finite_scale`: q2's rule (formats 5) - every finite scale word is valid, negative zero included, and a
    zero scale admits any code. The others refuse negative zero, and nonzero codes under a zero scale.
    """

    name: str
    bits: int
    group: int
    qmin: int
    qmax: int
    any_finite_scale: bool = False
    category: str = "grouped"


GROUPED_FORMATS = (
    GroupedFormat("q2_g64_fp16", 2, 64, -1, 2, any_finite_scale=True),
    GroupedFormat("q4_g64_fp16", 4, 64, -8, 7),
    GroupedFormat("q5_g64_fp16", 5, 64, -16, 15),
    GroupedFormat("q6_g64_fp16", 6, 64, -32, 31),
    GroupedFormat("q8_g32_fp16", 8, 32, -127, 127),
    GroupedFormat("t2_g128_fp16", 2, 128, -1, 1),
)
