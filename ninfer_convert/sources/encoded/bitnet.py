"""BitNet as transformers packs it: four ternary rows to a byte, one scale (encoded-sources.md 7.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ninfer_convert.sources.encoded.base import FLOATS, Convention, EncodedModule, Module, encoded, one_element

if TYPE_CHECKING:
    from ninfer_convert.sources.encoded.declared import Declaration


def _recognise(module: Module, declared: Declaration) -> Iterator[EncodedModule]:
    if module.stored("weight") != "U8" or module.stored("weight_scale") not in FLOATS:
        return
    if len(module.shape("weight")) == 2 and one_element(module.shape("weight_scale")):
        packed, columns = module.shape("weight")
        members = ("weight", "weight_scale")
        yield encoded(module, members, "BitNet", (packed * 4, columns), declared, "four rows to a byte")


BITNET = Convention("BitNet", _recognise, companions=("weight_scale",))
