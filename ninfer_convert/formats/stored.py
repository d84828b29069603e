"""How checkpoints store a tensor: safetensors tags, ggml block types, and the encodings of several tensors.

These are the words a recipe's `where.dtype` and `[defaults]` speak of (recipes.md, Selecting). Facts only:
sources read them, methods convert them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal

from ninfer_convert.errors import look_up

Kind = Literal["float", "integer", "bool", "block", "encoded", "opaque"]


@dataclass(frozen=True)
class StoredType:
    """A stored type. `opaque` types can be listed, never converted; `remark` says why, where that needs saying.

    Sizes are `block_bytes` for every `block_values` consecutive elements of a row. `numpy` is the dtype in which
    `Values` carries the words. `identical` is the format that keeps the words as they are, if there is one.
    Encodings of several tensors (`kind == "encoded"`) have no size of their own. `precision` are the bits that the
    significand of a value may need, and those of its exponent; values of codes are binary32.
    """

    name: str
    kind: Kind
    block_bytes: int = 0
    block_values: int = 1
    numpy: str | None = None
    precision: tuple[int, int] = (24, 8)
    identical: str | None = None
    ggml: int | None = None
    remark: str = ""

    @property
    def described(self) -> str:
        """The name, for messages that refuse it: with ggml's number where the name alone tells little."""
        return f"ggml type {self.ggml} ({self.remark})" if self.remark else self.name

    @property
    def floating(self) -> bool:
        """Whether float values can be had of it: recipes.md's class `floating`."""
        return self.kind in ("float", "block", "encoded")

    @property
    def quantized(self) -> bool:
        """Whether its values are decoded from codes: recipes.md's class `encoded`."""
        return self.kind in ("block", "encoded")


_PLAIN = (
    StoredType("BF16", "float", 2, numpy="uint16", precision=(8, 8), identical="bf16", ggml=30),
    StoredType("F16", "float", 2, numpy="uint16", precision=(11, 5), ggml=1),
    StoredType("F32", "float", 4, numpy="float32", identical="fp32", ggml=0),
    StoredType("F64", "float", 8, numpy="float64", precision=(53, 11), ggml=28),
    StoredType("I8", "integer", 1, numpy="int8", precision=(7, 0), ggml=24),
    StoredType("I16", "integer", 2, numpy="int16", precision=(15, 0), ggml=25),
    StoredType("I32", "integer", 4, numpy="int32", precision=(31, 0), identical="int32", ggml=26),
    StoredType("I64", "integer", 8, numpy="int64", precision=(63, 0), ggml=27),
    StoredType("U8", "integer", 1, numpy="uint8", precision=(8, 0)),
    StoredType("U16", "integer", 2, numpy="uint16", precision=(16, 0)),
    StoredType("U32", "integer", 4, numpy="uint32", precision=(32, 0)),
    StoredType("U64", "integer", 8, numpy="uint64", precision=(64, 0)),
    StoredType("BOOL", "bool", 1, numpy="uint8", precision=(1, 0)),
    StoredType("F8_E4M3", "opaque", 1),
    StoredType("F8_E5M2", "opaque", 1),
    StoredType("F8_E8M0", "opaque", 1),
    StoredType("F8_E4M3FNUZ", "opaque", 1),
    StoredType("F8_E5M2FNUZ", "opaque", 1),
    StoredType("F6_E2M3", "opaque", 3, 4),
    StoredType("F6_E3M2", "opaque", 3, 4),
    StoredType("F4", "opaque", 1, 2),
    StoredType("C64", "opaque", 8),
)

_BLOCKS = (
    StoredType("Q4_0", "block", 18, 32, identical="gguf_q4_0", ggml=2),
    StoredType("Q4_1", "block", 20, 32, ggml=3),
    StoredType("Q5_0", "block", 22, 32, identical="gguf_q5_0", ggml=6),
    StoredType("Q5_1", "block", 24, 32, ggml=7),
    StoredType("Q8_0", "block", 34, 32, identical="gguf_q8_0", ggml=8),
    StoredType("Q2_K", "block", 84, 256, identical="gguf_q2_k", ggml=10),
    StoredType("Q3_K", "block", 110, 256, identical="gguf_q3_k", ggml=11),
    StoredType("Q4_K", "block", 144, 256, identical="gguf_q4_k", ggml=12),
    StoredType("Q5_K", "block", 176, 256, identical="gguf_q5_k", ggml=13),
    StoredType("Q6_K", "block", 210, 256, identical="gguf_q6_k", ggml=14),
    StoredType("IQ2_XXS", "block", 66, 256, identical="gguf_iq2_xxs", ggml=16),
    StoredType("IQ2_XS", "block", 74, 256, identical="gguf_iq2_xs", ggml=17),
    StoredType("IQ3_XXS", "block", 98, 256, identical="gguf_iq3_xxs", ggml=18),
    StoredType("IQ1_S", "block", 50, 256, identical="gguf_iq1_s", ggml=19),
    StoredType("IQ4_NL", "block", 18, 32, identical="gguf_iq4_nl", ggml=20),
    StoredType("IQ3_S", "block", 110, 256, identical="gguf_iq3_s", ggml=21),
    StoredType("IQ2_S", "block", 82, 256, identical="gguf_iq2_s", ggml=22),
    StoredType("IQ4_XS", "block", 136, 256, identical="gguf_iq4_xs", ggml=23),
    StoredType("IQ1_M", "block", 56, 256, identical="gguf_iq1_m", ggml=29),
    StoredType("TQ1_0", "block", 54, 256, ggml=34),
    StoredType("TQ2_0", "block", 66, 256, ggml=35),
    StoredType("MXFP4", "block", 17, 32, ggml=39),
    StoredType("NVFP4", "block", 36, 64, ggml=40),
    StoredType("Q1_0", "block", 18, 128, ggml=41),
    StoredType("Q2_0", "block", 18, 64, identical="gguf_q2_0", ggml=42),
    StoredType("PQ2_0", "block", 34, 128, ggml=142),
    StoredType("PTQ1_0", "block", 28, 128, ggml=143),
)

_ENCODED = (
    StoredType("FP8_ROW", "encoded"),
    StoredType("FP8_TENSOR", "encoded"),
    StoredType("FP8_BLOCK", "encoded"),
    StoredType("MXFP8", "encoded"),
    StoredType("INT4_PACKED", "encoded"),
    StoredType("INT8", "encoded"),
    StoredType("GPTQ", "encoded"),
    StoredType("AWQ", "encoded"),
    StoredType("BNB_INT8", "encoded"),
    StoredType("BNB_4BIT", "encoded"),
)

STORED_TYPES = MappingProxyType({t.name: t for t in (*_PLAIN, *_BLOCKS, *_ENCODED)})
"""Every stored type by name. NVFP4 and MXFP4 name both the ggml blocks and the safetensors encodings."""

GGML_TYPES = MappingProxyType({t.ggml: t for t in (*_PLAIN, *_BLOCKS) if t.ggml is not None})
"""ggml type id -> stored type (encoded-sources.md 7.1)."""

_WITHOUT_WORDS = {
    4: "Q4_2, removed from ggml",
    5: "Q4_3, removed from ggml",
    9: "Q8_1, for ggml's intermediate results only",
    15: "Q8_K, for ggml's intermediate results only",
    31: "Q4_0_4_4, removed from ggml",
    32: "Q4_0_4_8, removed from ggml",
    33: "Q4_0_8_8, removed from ggml",
    36: "IQ4_NL_4_4, removed from ggml",
    37: "IQ4_NL_4_8, removed from ggml",
    38: "IQ4_NL_8_8, removed from ggml",
}
_BY_NUMBER = "GGML_"

CLASSES = MappingProxyType(
    {
        "floating": frozenset(t.name for t in STORED_TYPES.values() if t.floating),
        "integer": frozenset(t.name for t in STORED_TYPES.values() if t.kind == "integer"),
        "encoded": frozenset(t.name for t in STORED_TYPES.values() if t.quantized),
    }
)
"""The classes of types that `where.dtype` accepts beside single names."""


@cache
def may_round(stored: str, format: str) -> bool:
    """Whether a cast to `format`, if that is a direct one, can change a value; what int32 lacks is refused instead."""
    held = next((t.precision for t in _PLAIN if t.identical == format and t.floating), None)
    needed = stored_type(stored).precision
    return held is not None and any(has < needs for has, needs in zip(held, needed, strict=True))


def ggml_type(number: int) -> StoredType:
    """The stored type of a ggml type id; an opaque one called by its number ("GGML_255") where ggml has none."""
    known = GGML_TYPES.get(number)
    return known or StoredType(
        f"{_BY_NUMBER}{number}", "opaque", ggml=number, remark=_WITHOUT_WORDS.get(number, "unknown")
    )


@cache
def stored_type(name: str) -> StoredType:
    """The stored type called `name`; raises LookupError with the nearest names."""
    number = name.removeprefix(_BY_NUMBER)
    if number != name and number.isdecimal():
        return ggml_type(int(number))
    return look_up("stored type", name, STORED_TYPES)
