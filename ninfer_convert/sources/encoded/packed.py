"""compressed-tensors' packed weights: NVFP4, MXFP4 and packed integers (encoded-sources.md 4.2, 4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.sources.encoded.base import (
    EXPONENTS,
    FLOATS,
    Convention,
    EncodedModule,
    Module,
    encoded,
    group_size,
    groups,
    wrong_factor,
    wrong_shape,
)
from ninfer_convert.sources.encoded.integers import PackedIntegers
from ninfer_convert.sources.encoded.mxfp4_weight import Mxfp4Weight
from ninfer_convert.sources.encoded.nvfp4_weight import Nvfp4Weight

if TYPE_CHECKING:
    from ninfer_convert.sources.encoded.declared import Declaration
    from ninfer_convert.values import Shape


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
    elif (factor := wrong_factor(module, "weight_global_scale", shape)) is not None:
        fault = factor
    elif module.stored("weight_packed") != "U8" or module.stored("weight_scale") != "F8_E4M3":
        fault = f"weight_scale is {module.stored('weight_scale')}, where F8_E4M3 was expected"
    elif half % 8 or scales != (*rows, half // 8):
        fault = wrong_shape("weight_scale", scales, (*rows, groups(half, 8)))
    elif scheme.group not in (None, 16) or not scheme.symmetric:
        fault = f"config says group_size {scheme.group}, symmetric {scheme.symmetric}; NVFP4 is 16 and symmetric"
    members = ("weight_packed", "weight_scale", "weight_global_scale")
    read = partial(Nvfp4Weight, codes=members[0], scale=members[1], factor=members[2])
    return encoded(module, members, "NVFP4", shape, declared, "compressed-tensors, groups of 16", fault, read=read)


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
    read = partial(Mxfp4Weight, codes=members[0], scale=members[1])
    return encoded(module, members, "MXFP4", (*rows, packed * 2), declared, details, fault, read=read)


def _integers(module: Module, declared: Declaration) -> EncodedModule:
    """I32 [.., N, ceil(K * bits / 32)] words, one scale for each group of a row, weight_shape [.., N, K]."""
    rows, words = module.rows("weight_packed")
    scheme = declared.scheme(module.name)
    shape = tuple(module.tensors["weight_shape"].values(0, len(rows) + 1).array.tolist()) if _told(module) else None
    bits = scheme.bits or (_bits(words, shape[-1]) if shape else None)
    details = f"compressed-tensors, {bits or '?'}-bit integers, group {scheme.group or '?'}"
    members = ("weight_packed", "weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx")
    fault, read = None, None
    if shape is None or bits is None:
        fault = "has no weight_shape of as many axes as weight_packed, or a config that tells how many bits a code has"
    elif shape[:-1] != rows or not 0 < bits <= 8 or groups(shape[-1] * bits, 32) != words:
        fault = f"weight_packed is {[*rows, words]}, no {list(shape)} codes of {bits} bits"
    else:
        count = module.shape("weight_scale")[-1] if module.shape("weight_scale") else 1
        size = max(shape[-1], 1) if count == 1 else group_size(shape[-1], count, scheme.group)
        fault = _wrong_scales(module, shape, bits, size)
        read = partial(PackedIntegers, codes=members[0], scale=members[1], block=(1, size), bits=bits)
        details = f"compressed-tensors, {bits}-bit integers, group {size}"
        details += "".join(f", {name}" for name in members[3:] if module.has(name))
    return encoded(module, members, "INT4_PACKED", shape, declared, details, fault, read=read)


def _told(module: Module) -> bool:
    """Whether weight_shape can tell the logical shape."""
    axes = len(module.shape("weight_packed"))
    return module.stored("weight_shape") == "I64" and module.shape("weight_shape") == (axes,)


def _bits(words: int, columns: int) -> int | None:
    """The one size of a code for which rows of `columns` fill so many I32 words, if there is one."""
    found = [bits for bits in range(1, 9) if groups(columns * bits, 32) == words]
    return found[0] if len(found) == 1 else None


def _wrong_scales(module: Module, shape: Shape, bits: int, size: int) -> str | None:
    """What is wrong with the scales, zero points or groups of packed integers."""
    *banks, rows, columns = shape
    scales, expected = module.shape("weight_scale"), (*banks, rows, groups(columns, size))
    if module.stored("weight_scale") not in FLOATS:
        return f"weight_scale is {module.stored('weight_scale')}, where {', '.join(FLOATS)} was expected"
    if scales != expected and prod(scales) != 1:
        return wrong_shape("weight_scale", scales, expected)
    zeros = (*banks, groups(rows * bits, 32), expected[-1])
    if module.has("weight_zero_point") and (module.stored("weight_zero_point"), scales) != ("I32", expected):
        return f"weight_zero_point is {module.stored('weight_zero_point')} beside weight_scale {list(scales)}"
    if module.has("weight_zero_point") and module.shape("weight_zero_point") != zeros:
        return wrong_shape("weight_zero_point", module.shape("weight_zero_point"), zeros)
    index = module.stored("weight_g_idx"), module.shape("weight_g_idx") if module.has("weight_g_idx") else None
    if index not in (("", None), ("I32", (columns,))):
        return f"weight_g_idx is {index[0]} {list(index[1] or ())}, where I32 {[columns]} was expected"
    return None


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
