"""What a GGUF says of itself under `general.file_type`: the scheme of most tensors, by llama.cpp's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_FIRST = ("F32", "F16", "Q4_0", "Q4_1")
_FROM_7 = (
    *("Q8_0", "Q5_0", "Q5_1", "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K"),
    *("IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ3_M", "IQ2_S", "IQ2_M"),
    *("IQ4_XS", "IQ1_M", "BF16"),
)
_FROM_36 = ("TQ1_0", "TQ2_0", "MXFP4_MOE", "NVFP4", "Q1_0")

SCHEMES = MappingProxyType({**dict(enumerate(_FIRST)), **dict(enumerate(_FROM_7, 7)), **dict(enumerate(_FROM_36, 36))})
"""Names by number; numbers that llama.cpp has given up are left out."""

KEY = "general.file_type"


def declared_scheme(metadata: Mapping[str, Any]) -> str | None:
    """The scheme that a GGUF's metadata declares; None where it declares none, or one of no known number."""
    number = metadata.get(KEY)
    return SCHEMES.get(number) if type(number) is int else None
