"""nvfp4: E2M1 codes, one E4M3FN scale per 16, one FP32 divisor per stacked source matrix (formats 3.3)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Nvfp4Format:
    """W = E2M1(code) * E4M3FN(scale) / divisor of the row's source matrix."""

    name: str = "nvfp4"
    group: int = 16
    category: str = "block-scaled"


NVFP4 = Nvfp4Format()
