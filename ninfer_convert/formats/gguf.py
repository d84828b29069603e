"""GGUF block formats: ggml's quantized blocks, byte for byte (formats 3.4, last paragraphs)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import Problem, WordsError
from ninfer_convert.formats.base import WordFaults
from ninfer_convert.formats.checks import checked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.values import Words


@dataclass(frozen=True, eq=False)
class GgufFormat:
    """Rows of K / block_values blocks, each the image of ggml's block struct; `ggml` is the type id.

    Every byte is valid.
    """

    name: str
    ggml: int
    block_values: int
    block_bytes: int
    category: str = "gguf"

    @property
    def bits_per_weight(self) -> float:
        return self.block_bytes * 8 / self.block_values

    @property
    def summary(self) -> str:
        return f"ggml {self.name[5:].upper()} blocks of {self.block_values} values in {self.block_bytes} bytes"

    def decode(self, words: Words) -> NDArray[Any]:
        from ninfer_convert.kernels.blocks import decode_blocks

        return decode_blocks(self.ggml, self._blocks(words))

    def faults(self, words: Words, limit: int = 10) -> WordFaults:
        self._blocks(words)
        return WordFaults(0)

    def _blocks(self, words: Words) -> NDArray[Any]:
        blocks = checked(self.name, "blocks", words.codes, "uint8", None, None)
        if blocks.shape[1] % self.block_bytes:
            message = f"{self.name}: rows must be whole blocks of {self.block_bytes} bytes; found {blocks.shape[1]}"
            raise WordsError(Problem("wrong-words", message))
        return blocks


GGUF_FORMATS = (
    GgufFormat("gguf_q8_0", 8, 32, 34),
    GgufFormat("gguf_q4_0", 2, 32, 18),
    GgufFormat("gguf_q5_0", 6, 32, 22),
    GgufFormat("gguf_q2_0", 42, 64, 18),
    GgufFormat("gguf_q2_k", 10, 256, 84),
    GgufFormat("gguf_q3_k", 11, 256, 110),
    GgufFormat("gguf_q4_k", 12, 256, 144),
    GgufFormat("gguf_q5_k", 13, 256, 176),
    GgufFormat("gguf_q6_k", 14, 256, 210),
    GgufFormat("gguf_iq2_xxs", 16, 256, 66),
    GgufFormat("gguf_iq2_xs", 17, 256, 74),
    GgufFormat("gguf_iq3_xxs", 18, 256, 98),
    GgufFormat("gguf_iq1_s", 19, 256, 50),
    GgufFormat("gguf_iq4_nl", 20, 32, 18),
    GgufFormat("gguf_iq3_s", 21, 256, 110),
    GgufFormat("gguf_iq2_s", 22, 256, 82),
    GgufFormat("gguf_iq4_xs", 23, 256, 136),
    GgufFormat("gguf_iq1_m", 29, 256, 56),
)
