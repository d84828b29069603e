"""compressed-tensors' packed weights: NVFP4, MXFP4 and packed integers (encoded-sources.md 4.2, 4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ninfer_convert.sources.encoded.base import (
    EXPONENTS,
    Convention,
    EncodedModule,
    Module,
    encoded,
    groups,
    wrong_shape,
)

if TYPE_CHECKING:
    from ninfer_convert.sources.encoded.declared import Declaration


def _recognise(module: Module, declared: Declaration) -> Iterator[EncodedModule]:
    if not module.has("weight_packed"):
        return
    if module.has("scale_packed", "meta"):
        members = ("weight_packed", "scale_packed", "meta")
        yield encoded(module, members, "compressed-tensors marlin-24", None, declared, "2:4 sparse")
    elif not module.has("weight_scale"):
        return
    elif module.stored("weight_packed") == "I32":
        yield _integers(module, declared)
    elif module.has("weight_global_scale") or module.stored("weight_scale") == "F8_E4M3":
        yield _nvfp4(module, declared)
    else:
        yield _microscaled(module, declared)


def _nvfp4(module: Module, declared: Declaration) -> EncodedModule:
    """U8 [.., N, K/2] codes, F8_E4M3 [.., N, K/16] scales, one F32 divisor."""
    rows, half = module.rows("weight_packed")
    shape = (*rows, half * 2)
    scheme = declared.scheme(module.name)
    scales = module.shape("weight_scale")
    fault = None
    if not module.has("weight_global_scale"):
        fault = "has no weight_global_scale"
    elif module.stored("weight_packed") != "U8" or module.stored("weight_scale") != "F8_E4M3":
        fault = f"weight_scale is {module.stored('weight_scale')}, where F8_E4M3 was expected"
    elif half % 8 or scales != (*rows, half // 8):
        fault = wrong_shape("weight_scale", scales, (*rows, groups(half, 8)))
    elif scheme.group not in (None, 16) or not scheme.symmetric:
        fault = f"config says group_size {scheme.group}, symmetric {scheme.symmetric}; NVFP4 is 16 and symmetric"
    members = ("weight_packed", "weight_scale", "weight_global_scale")
    return encoded(module, members, "NVFP4", shape, declared, "compressed-tensors, groups of 16", fault)


def _microscaled(module: Module, declared: Declaration) -> EncodedModule:
    """U8 codes of 4 bits (MXFP4) or 6 (MXFP6), E8M0 [.., N, K/32] scales."""
    rows, packed = module.rows("weight_packed")
    scale_rows, count = module.rows("weight_scale")
    columns = count * 32
    members = ("weight_packed", "weight_scale")
    if packed * 8 == columns * 6:
        details = "compressed-tensors, 6-bit codes"
        return encoded(module, members, "compressed-tensors MXFP6", (*rows, columns), declared, details)
    fault = None
    if module.stored("weight_packed") != "U8" or module.stored("weight_scale") not in EXPONENTS:
        fault = f"weight_scale is {module.stored('weight_scale')} and there is no weight_global_scale"
    elif scale_rows != rows or packed * 2 != columns:
        fault = wrong_shape("weight_scale", module.shape("weight_scale"), (*rows, groups(packed, 16)))
    details = "compressed-tensors, groups of 32"
    return encoded(module, members, "MXFP4", (*rows, packed * 2), declared, details, fault)


def _integers(module: Module, declared: Declaration) -> EncodedModule:
    """I32 [.., N, ceil(K * bits / 32)] words, one scale for each group of a row."""
    rows, words = module.rows("weight_packed")
    scheme = declared.scheme(module.name)
    members = ("weight_packed", "weight_scale", "weight_shape")
    shape = (*rows, words * 32 // scheme.bits) if scheme.bits else None
    details = f"compressed-tensors, {scheme.bits or '?'}-bit integers, group {scheme.group or '?'}"
    return encoded(module, members, "INT4_PACKED", shape, declared, details)


PACKED = Convention(
    "compressed-tensors packed",
    _recognise,
    companions=(
        "weight_packed",
        "weight_scale",
        "weight_global_scale",
        "weight_shape",
        "weight_zero_point",
        "weight_g_idx",
        "scale_packed",
    ),
)
