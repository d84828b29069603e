"""Direct formats: one word per element, nothing scaled (formats 3.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DirectFormat:
    """`bits` wide words, carried in numpy dtype `word`."""

    name: str
    bits: int
    word: str
    summary: str
    category: str = "direct"


DIRECT_FORMATS = (
    DirectFormat("bf16", 16, "uint16", "bfloat16 words"),
    DirectFormat("fp32", 32, "uint32", "IEEE-754 binary32 words"),
    DirectFormat("int32", 32, "int32", "32-bit two's-complement integers"),
)
