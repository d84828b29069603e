"""Row-scaled FP8: E4M3FN codes and one 16-bit multiplier per row (formats 3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ninfer_convert.formats.checks import BF16_INFINITY, F16_INFINITY, checked, describe, word_faults

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.formats.base import WordFaults
    from ninfer_convert.values import Words


@dataclass(frozen=True, eq=False)
class RowScaledFormat:
    """`scale` is the multiplier's direct word type: "bf16" or "fp16"."""

    name: str
    scale: str
    category: str = "row-scaled"

    @property
    def bits_per_weight(self) -> float:
        return 8.0

    @property
    def summary(self) -> str:
        return f"E4M3FN codes, 8 bits; one {'binary16' if self._half else 'bfloat16'} scale per row"

    def decode(self, words: Words) -> NDArray[Any]:
        import numpy as np

        from ninfer_convert.kernels.decode import decode_row_scaled

        codes, scales = self._arrays(words)
        values = np.empty(codes.shape, np.uint32)
        decode_row_scaled(codes, scales, self._half, values)
        return values.view(np.float32)

    def faults(self, words: Words, limit: int = 10) -> WordFaults:
        from ninfer_convert.kernels import validity

        codes, scales = self._arrays(words)
        return word_faults(
            lambda found: validity.scan_row_scaled(codes, scales, self._half, found),
            limit,
            {
                validity.CODE: lambda code: f"code 0x{code:02X} (NaN)",
                validity.SCALE: self._forbidden_scale,
                validity.ZERO_SCALE: lambda word: "zero row scale with non-zero codes",
            },
        )

    def _forbidden_scale(self, word: int) -> str:
        what = describe(word, F16_INFINITY if self._half else BF16_INFINITY)
        return f"{'negative ' if word & 0x8000 else ''}row scale 0x{word:04X} ({what})"

    @property
    def _half(self) -> bool:
        return self.scale == "fp16"

    def _arrays(self, words: Words) -> tuple[NDArray[Any], NDArray[Any]]:
        codes = checked(self.name, "codes", words.codes, "uint8", None, None)
        return codes, checked(self.name, "scales", words.scales, "uint16", codes.shape[0])


ROW_SCALED_FORMATS = (
    RowScaledFormat("fp8_e4m3fn_row_bf16", "bf16"),
    RowScaledFormat("fp8_e4m3fn_row_fp16", "fp16"),
)
