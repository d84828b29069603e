"""Direct formats: one word per element, nothing scaled (formats 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ninfer_convert.formats.base import WordFaults
from ninfer_convert.formats.checks import checked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.values import Words


@dataclass(frozen=True, eq=False)
class DirectFormat:
    """`bits` wide words, carried in numpy dtype `word`. Every word is valid."""

    name: str
    bits: int
    word: str
    summary: str
    category: str = "direct"

    @property
    def bits_per_weight(self) -> float:
        return float(self.bits)

    def decode(self, words: Words) -> NDArray[Any]:
        import numpy as np

        codes = self._codes(words)
        if self.name == "bf16":
            from ninfer_convert.kernels.cast import floats_to_f32

            wide = np.empty(codes.shape, np.uint32)
            floats_to_f32(codes, False, wide)
            return wide.view(np.float32)
        return codes.view(np.float32) if self.name == "fp32" else codes

    def faults(self, words: Words, limit: int = 10) -> WordFaults:
        self._codes(words)
        return WordFaults(0)

    def _codes(self, words: Words) -> NDArray[Any]:
        return checked(self.name, "words", words.codes, self.word, None)


DIRECT_FORMATS = (
    DirectFormat("bf16", 16, "uint16", "bfloat16 words"),
    DirectFormat("fp32", 32, "uint32", "IEEE-754 binary32 words"),
    DirectFormat("int32", 32, "int32", "32-bit two's-complement integers"),
)
