"""Row-scaled FP8: E4M3FN codes and one 16-bit multiplier per row (formats 3.4)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RowScaledFormat:
    """`scale` is the multiplier's direct word type: "bf16" or "fp16"."""

    name: str
    scale: str
    category: str = "row-scaled"


ROW_SCALED_FORMATS = (
    RowScaledFormat("fp8_e4m3fn_row_bf16", "bf16"),
    RowScaledFormat("fp8_e4m3fn_row_fp16", "fp16"),
)
