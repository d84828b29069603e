"""Quantizers that are only named, and words that mean nothing without a scale (encoded-sources.md 3, 8.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ninfer_convert.formats.stored import STORED_TYPES
from ninfer_convert.sources.encoded.base import Convention, EncodedModule, Module, encoded

if TYPE_CHECKING:
    from ninfer_convert.sources.encoded.declared import Declaration

_QUANTIZERS = (
    ("HQQ", ("W_q",)),
    ("quanto", ("weight._data", "weight._scale")),
    ("AQLM", ("codes", "codebooks")),
    ("EETQ", ("weight", "weight_scales")),
    ("GPTQ Marlin", ("B", "s", "workspace")),
    ("compressed-tensors sparse", ("bitmask", "compressed")),
)
"""Name of the quantizer, and the members by which it is known; all other members of the module go with them."""


def _quantizers(module: Module, declared: Declaration) -> Iterator[EncodedModule]:
    for name, marks in _QUANTIZERS:
        if module.has(*marks):
            yield encoded(module, tuple(module.tensors), name, None, declared)
            return


def _bare(module: Module, declared: Declaration) -> Iterator[EncodedModule]:
    for name, tensor in module.tensors.items():
        opaque = tensor.stored in STORED_TYPES and STORED_TYPES[tensor.stored].kind == "opaque"
        if "scale" not in name and (opaque or (name == "weight" and tensor.stored == "U8")):
            fault = f"{tensor.stored} weight without a scale"
            yield encoded(module, (name,), tensor.stored, tensor.shape, declared, "bare", fault, parameter=name)


UNREAD = Convention("other quantizers", _quantizers)
BARE = Convention("words without a scale", _bare)
