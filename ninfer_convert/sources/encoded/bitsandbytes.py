"""bitsandbytes: 4-bit blocks with `weight.absmax`, 8-bit rows with `SCB` (encoded-sources.md 8.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from ninfer_convert import strict_json
from ninfer_convert.sources.encoded.base import Convention, EncodedModule, Module, encoded, groups
from ninfer_convert.sources.encoded.bitsandbytes_weight import EightBitWeight, FourBitWeight

if TYPE_CHECKING:
    from ninfer_convert.sources.encoded.declared import Declaration
    from ninfer_convert.values import Shape

_STATE = "weight.quant_state.bitsandbytes__"
_FOUR_BIT = ("weight.absmax", "weight.quant_map", "weight.nested_absmax", "weight.nested_quant_map")
_LARGEST_STATE = 1 << 16
"""Bytes of a state that is still believed to be one."""


def _recognise(module: Module, declared: Declaration) -> Iterator[EncodedModule]:
    if module.has("weight", "weight.absmax"):
        yield _four_bit(module, declared)
    elif module.has("weight", "SCB"):
        yield _eight_bit(module, declared)


def _eight_bit(module: Module, declared: Declaration) -> EncodedModule:
    """weight I8 [N, K], SCB F32 [N]."""
    members = ("weight", "SCB", "weight_format")
    shape, found = module.shape("weight"), module.shape("SCB")
    details = f"weight {module.stored('weight')} with SCB"
    fault = None
    if module.stored("weight") != "I8" or module.stored("SCB") != "F32" or len(shape) != 2 or found != shape[:1]:
        weight = f"weight is {module.stored('weight')} {list(shape)}"
        fault = f"{weight} and SCB {module.stored('SCB')} {list(found)}, where I8 [N, K] and F32 [N] were expected"
    elif module.has("weight_format") and (module.stored("weight_format"), prod(module.shape("weight_format"))) != (
        "U8",
        1,
    ):
        stored = f"{module.stored('weight_format')} {list(module.shape('weight_format'))}"
        fault = f"weight_format is {stored}, where one number of U8 was expected"
    read = partial(EightBitWeight, codes="weight", scale="SCB", block=(1, shape[-1] if shape else 1))
    return encoded(module, members, "BNB_INT8", shape, declared, details, fault, read=read)


def _four_bit(module: Module, declared: Declaration) -> EncodedModule:
    """weight U8, two codes to a byte; what the shapes do not tell is JSON in the bytes of a tensor of its own."""
    states = [name for name in module.tensors if name.startswith(_STATE)]
    kind = states[0].removeprefix(_STATE) if states else "4-bit"
    nested = module.has("weight.nested_absmax")
    details = f"bitsandbytes {kind}, weight {module.stored('weight')} with weight.absmax"
    details += ", scales quantized again" if nested else ""
    shape: Shape | None = None
    read = None
    if len(states) != 1:
        fault: str | None = f"has {len(states)} states ({_STATE}*), where one was expected"
    elif isinstance(state := _read_state(module, states[0], nested), str):
        fault = f"{states[0]} {state}"
    else:
        shape, fault = state.shape, _wrong(module, state)
        read = partial(FourBitWeight, block=state.block, nested=state.nested, offset=state.offset)
    members = ("weight", *_FOUR_BIT, *states)
    return encoded(module, members, "BNB_4BIT", shape, declared, details, fault, read=read)


@dataclass(frozen=True)
class _State:
    """What a state tells: the logical shape, values of a block, and of scales quantized again blocks and offset."""

    shape: Shape
    block: int
    nested: int | None
    offset: float


def _read_state(module: Module, name: str, nested: bool) -> _State | str:
    """The state, or what is wrong with it."""
    tensor = module.tensors[name]
    if tensor.nbytes > _LARGEST_STATE:
        return f"is {tensor.nbytes} bytes long, no state"
    try:
        state = strict_json.parse(tensor.read(0, tensor.nbytes).tobytes())
    except strict_json.JsonFault as error:
        return str(error)
    if not isinstance(state, dict):
        return "is no JSON object"
    shape, block = state.get("shape"), state.get("blocksize", 0)
    outer, offset = (state.get("nested_blocksize", 0), state.get("nested_offset")) if nested else (1, 0.0)
    if not isinstance(shape, list) or not shape or not all(map(_is_size, (*shape, block, outer))):
        return "tells no shape and block sizes"
    if not isinstance(offset, (int, float)):
        return "tells no nested_offset"
    return _State(tuple(shape), block, outer if nested else None, float(offset))


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


def _wrong(module: Module, state: _State) -> str | None:
    """What is wrong with the tensors of a weight with this state."""
    elements = prod(state.shape)
    blocks = groups(elements, state.block)
    expected = {
        "weight": ("U8", groups(elements, 2)),
        "weight.absmax": ("F32" if state.nested is None else "U8", blocks),
        "weight.quant_map": ("F32", 16),
    }
    if state.nested is not None:
        expected["weight.nested_absmax"] = ("F32", groups(blocks, state.nested))
        expected["weight.nested_quant_map"] = ("F32", 256)
    for member, (stored, count) in expected.items():
        if not module.has(member):
            return f"has no {member}"
        found = module.stored(member), prod(module.shape(member))
        if found != (stored, count):
            return f"{member} is {found[0]} of {found[1]}, where {stored} of {count} was expected"
    return None


BITSANDBYTES = Convention("bitsandbytes", _recognise, companions=(*_FOUR_BIT, f"{_STATE}*", "SCB", "weight_format"))
