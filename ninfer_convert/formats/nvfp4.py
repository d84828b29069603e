"""nvfp4: E2M1 codes, one E4M3FN scale per 16, one FP32 divisor per stacked source matrix (formats 3.3)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import Problem, WordsError
from ninfer_convert.formats.checks import checked, word_faults

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.formats.base import WordFaults
    from ninfer_convert.values import Words


@dataclass(frozen=True, eq=False)
class Nvfp4Format:
    """W = E2M1(code) * E4M3FN(scale) / divisor of the row's source matrix."""

    name: str = "nvfp4"
    group: int = 16
    category: str = "block-scaled"
    summary: str = "E2M1 codes, 4 bits; one E4M3FN scale per 16, one FP32 divisor per source matrix"

    @property
    def bits_per_weight(self) -> float:
        return 4 + 8 / self.group

    def decode(self, words: Words) -> NDArray[Any]:
        import numpy as np

        from ninfer_convert.kernels.decode import decode_block_scaled

        codes, scales, divisors = self._arrays(words)
        values = np.empty(codes.shape, np.uint32)
        decode_block_scaled(codes, scales, divisors, self.group, values)
        return values.view(np.float32)

    def faults(self, words: Words, limit: int = 10) -> WordFaults:
        from ninfer_convert.kernels import validity

        codes, scales, divisors = self._arrays(words)
        return word_faults(
            lambda found: validity.scan_block_scaled(codes, scales, divisors, found),
            limit,
            {
                validity.CODE: lambda code: f"code 0x{code:02X}, wider than four bits",
                validity.SCALE: _forbidden_scale,
                validity.DIVISOR: lambda word: f"divisor {_float(word)!r}, not finite and positive",
            },
        )

    def _arrays(self, words: Words) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        codes = checked(self.name, "codes", words.codes, "uint8", None, None)
        rows, columns = codes.shape
        if columns % self.group:
            message = f"{self.name}: rows must be a whole number of groups of {self.group}; found {columns} columns"
            raise WordsError(Problem("wrong-words", message))
        scales = checked(self.name, "scales", words.scales, "uint8", rows, columns // self.group)
        return codes, scales, checked(self.name, "divisors", words.divisors, "float32", rows).view("uint32")


def _forbidden_scale(word: int) -> str:
    magnitude = word & 0x7F
    return f"block scale 0x{word:02X} ({'NaN' if magnitude == 0x7F else 'negative' if magnitude else 'negative zero'})"


def _float(word: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", word))[0]
    return value


NVFP4 = Nvfp4Format()
