"""bitsandbytes: 4-bit blocks with `weight.absmax`, 8-bit rows with `SCB` (encoded-sources.md 8.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ninfer_convert.sources.encoded.base import Convention, EncodedModule, Module, encoded

if TYPE_CHECKING:
    from ninfer_convert.sources.encoded.declared import Declaration

_STATE = "weight.quant_state.bitsandbytes__"
_FOUR_BIT = ("weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map")


def _recognise(module: Module, declared: Declaration) -> Iterator[EncodedModule]:
    if module.has("weight", "weight.absmax"):
        states = [name for name in module.tensors if name.startswith(_STATE)]
        kind = states[0].removeprefix(_STATE) if states else "4-bit"
        details = "weight U8 with weight.absmax" + (", scales quantized again" if _nested(module) else "")
        yield encoded(module, ("weight", *_FOUR_BIT, *states), f"bitsandbytes {kind}", None, declared, details)
    elif module.has("weight", "SCB"):
        members = ("weight", "SCB", "weight_format")
        details = f"weight {module.stored('weight')} with SCB"
        yield encoded(module, members, "bitsandbytes 8-bit", module.shape("weight"), declared, details)


def _nested(module: Module) -> bool:
    return module.has("weight.nested_absmax")


BITSANDBYTES = Convention("bitsandbytes", _recognise, companions=(*_FOUR_BIT, f"{_STATE}*", "SCB", "weight_format"))
