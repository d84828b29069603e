"""ModelOpt's packed bytes: NVFP4, MXFP4 and INT4 AWQ, all a U8 `weight` (encoded-sources.md 5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ninfer_convert.sources.encoded.base import (
    EXPONENTS,
    FLOATS,
    Convention,
    EncodedModule,
    Module,
    encoded,
    one_element,
    wrong_shape,
)

if TYPE_CHECKING:
    from ninfer_convert.sources.encoded.declared import Declaration

_SWIZZLED = frozenset(("_quantization_metadata", "quantization_config"))
"""Header keys of the exports that may reorder scales without a word."""


def _recognise(module: Module, declared: Declaration) -> Iterator[EncodedModule]:
    for name in module.tensors:
        if module.stored(name) != "U8" or "scale" in name:
            continue
        scale = next((scale for scale in (f"{name}_scale", f"{name}_weight_scale") if module.has(scale)), None)
        if scale is None:
            continue
        if module.stored(scale) == "F8_E4M3":
            yield _nvfp4(module, name, scale, declared)
        elif module.stored(scale) in EXPONENTS:
            yield _mxfp4(module, name, scale, declared)
        elif module.stored(scale) in FLOATS and not one_element(module.shape(scale)):
            yield _int4(module, name, scale, declared)


def _nvfp4(module: Module, name: str, scale: str, declared: Declaration) -> EncodedModule:
    """U8 [.., N, K/2] codes, F8_E4M3 [.., N, K/16] scales, an F32 multiplier."""
    rows, half = module.rows(name)
    found = module.shape(scale)
    fault = None
    if not module.has(f"{scale}_2"):
        fault = f"has no {scale}_2"
    elif half % 8 or found != (*rows, half // 8):
        fault = f"{wrong_shape(scale, found, (*rows, half // 8))}: the last axis must be the packed one"
    elif _SWIZZLED & declared.header_keys:
        fault = f"the file's metadata has {min(_SWIZZLED & declared.header_keys)}: its scales may be reordered"
    members = (name, scale, f"{scale}_2")
    return encoded(module, members, "NVFP4", (*rows, half * 2), declared, "ModelOpt, groups of 16", fault, name)


def _mxfp4(module: Module, name: str, scale: str, declared: Declaration) -> EncodedModule:
    rows, half = module.rows(name)
    found, expected = module.shape(scale), (*rows, half // 16)
    fault = wrong_shape(scale, found, expected) if half % 16 or found != expected else None
    return encoded(module, (name, scale), "MXFP4", (*rows, half * 2), declared, "ModelOpt, groups of 32", fault, name)


def _int4(module: Module, name: str, scale: str, declared: Declaration) -> EncodedModule:
    """U8 [.., N/2, K]: two rows to a byte; scales [.., N, K/G]."""
    rows, columns = module.rows(name)
    shape = (*rows[:-1], rows[-1] * 2, columns) if rows else None
    found = module.shape(scale)
    fits = shape is not None and found[:-1] == shape[:-1] and found[-1] > 0 and columns % found[-1] == 0
    fault = None if fits else f"{scale} is {list(found)}, no scales of {list(module.shape(name))} packed bytes"
    return encoded(module, (name, scale), "ModelOpt INT4 AWQ", shape, declared, "two rows to a byte", fault, name)


MODELOPT = Convention("ModelOpt packed", _recognise, companions=("weight_scale", "weight_scale_2", "pre_quant_scale"))
