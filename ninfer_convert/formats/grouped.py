"""Grouped signed-integer formats: signed codes and one binary16 multiplier per group (formats 3.2, 4 to 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ninfer_convert.formats.checks import F16_INFINITY, checked, describe, word_faults

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.formats.base import WordFaults
    from ninfer_convert.values import Words


@dataclass(frozen=True, eq=False)
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

    @property
    def bits_per_weight(self) -> float:
        return self.bits + 16 / self.group

    @property
    def summary(self) -> str:
        return f"codes {self.qmin} to {self.qmax}, {self.bits} bits; one binary16 scale per {self.group}"

    def decode(self, words: Words) -> NDArray[Any]:
        import numpy as np

        from ninfer_convert.kernels.decode import decode_grouped

        codes, scales = self._arrays(words)
        values = np.empty(codes.shape, np.float32)
        decode_grouped(codes, scales, self.group, values)
        return values

    def faults(self, words: Words, limit: int = 10) -> WordFaults:
        from ninfer_convert.kernels import validity

        codes, scales = self._arrays(words)
        return word_faults(
            lambda found: validity.scan_grouped(
                codes, scales, self.group, self.qmin, self.qmax, self.any_finite_scale, found
            ),
            limit,
            {
                validity.CODE: self._forbidden_code,
                validity.SCALE: lambda word: f"scale word 0x{word:04X} ({describe(word, F16_INFINITY)})",
                validity.ZERO_SCALE: lambda word: "zero scale with non-zero codes",
            },
        )

    def _forbidden_code(self, code: int) -> str:
        """The one word that two's complement leaves over (q8, t2) is shown in bits too."""
        word = f" (code word 0b{1 << (self.bits - 1):b})" if code == self.qmin - 1 == -(1 << (self.bits - 1)) else ""
        return f"code {code}{word}, outside [{self.qmin}, {self.qmax}]"

    def _arrays(self, words: Words) -> tuple[NDArray[Any], NDArray[Any]]:
        codes = checked(self.name, "codes", words.codes, "int8", None, None)
        rows, columns = codes.shape
        return codes, checked(self.name, "scales", words.scales, "uint16", rows, -(-columns // self.group))


GROUPED_FORMATS = (
    GroupedFormat("q2_g64_fp16", 2, 64, -1, 2, any_finite_scale=True),
    GroupedFormat("q4_g64_fp16", 4, 64, -8, 7),
    GroupedFormat("q5_g64_fp16", 5, 64, -16, 15),
    GroupedFormat("q6_g64_fp16", 6, 64, -32, 31),
    GroupedFormat("q8_g32_fp16", 8, 32, -127, 127),
    GroupedFormat("t2_g128_fp16", 2, 128, -1, 1),
)
