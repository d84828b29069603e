"""ModelOpt's packed bytes: NVFP4, MXFP4 and INT4 AWQ, all a U8 `weight` (encoded-sources.md 5)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ninfer_convert.sources.encoded.base import (
    EXPONENTS,
    FLOATS,
    Convention,
    EncodedModule,
    Module,
    encoded,
    one_element,
    wrong_factor,
    wrong_shape,
)
from ninfer_convert.sources.encoded.integers import PairedIntegers
from ninfer_convert.sources.encoded.mxfp4_weight import Mxfp4Weight
from ninfer_convert.sources.encoded.nvfp4_weight import Nvfp4Weight

if TYPE_CHECKING:
    from ninfer_convert.sources.encoded.declared import Declaration

_PRE_QUANT = "pre_quant_scale"
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
    """U8 [.., N, K/2] codes, F8_E4M3 [.., N, K/16] scales, an F32 multiplier; with AWQ a factor of each channel."""
    rows, half = module.rows(name)
    shape = (*rows, half * 2)
    found = module.shape(scale)
    if not module.has(f"{scale}_2"):
        fault: str | None = f"has no {scale}_2"
    elif half % 8 or found != (*rows, half // 8):
        fault = f"{wrong_shape(scale, found, (*rows, half // 8))}: the last axis must be the packed one"
    elif _SWIZZLED & declared.header_keys:
        fault = f"the file's metadata has {min(_SWIZZLED & declared.header_keys)}: its scales may be reordered"
    else:
        fault = wrong_factor(module, f"{scale}_2", shape) or _wrong_channels(module, shape[-1])
    members = (name, scale, f"{scale}_2", *_before(module))
    before = next(iter(_before(module)), None)
    details = "ModelOpt, groups of 16" + (f", {before}" if before else "")
    read = partial(Nvfp4Weight, codes=name, scale=scale, factor=f"{scale}_2", multiplies=True, before=before)
    return encoded(module, members, "NVFP4", shape, declared, details, fault, name, read)


def _mxfp4(module: Module, name: str, scale: str, declared: Declaration) -> EncodedModule:
    rows, half = module.rows(name)
    found, expected = module.shape(scale), (*rows, half // 16)
    fault = wrong_shape(scale, found, expected) if half % 16 or found != expected else None
    read = partial(Mxfp4Weight, codes=name, scale=scale)
    details = "ModelOpt, groups of 32"
    return encoded(module, (name, scale), "MXFP4", (*rows, half * 2), declared, details, fault, name, read)


def _int4(module: Module, name: str, scale: str, declared: Declaration) -> EncodedModule:
    """U8 [.., N/2, K]: two rows to a byte; scales [.., N, K/G]; with AWQ a factor of each channel."""
    rows, columns = module.rows(name)
    shape = (*rows[:-1], rows[-1] * 2, columns) if rows else None
    found = module.shape(scale)
    fits = shape is not None and found[:-1] == shape[:-1] and found[-1] > 0 and columns % found[-1] == 0
    if not fits:
        fault: str | None = f"{scale} is {list(found)}, no scales of {list(module.shape(name))} packed bytes"
    elif module.has(f"{scale}_2"):
        fault = f"has {scale}_2, by which values are rounded once more (W4A8), which is not decoded"
    else:
        fault = _wrong_channels(module, columns)
    size = columns // found[-1] if fits else 0
    before = next(iter(_before(module)), None)
    details = f"ModelOpt, two rows to a byte, group {size}" + (f", {before}" if before else "")
    read = partial(PairedIntegers, codes=name, scale=scale, block=(1, size), before=before)
    members = (name, scale, f"{scale}_2", *_before(module))
    return encoded(module, members, "INT4_PACKED", shape, declared, details, fault, name, read)


def _before(module: Module) -> tuple[str, ...]:
    """The factor of each input channel that the runtime applies, if there is one."""
    return (_PRE_QUANT,) if module.has(_PRE_QUANT) else ()


def _wrong_channels(module: Module, columns: int) -> str | None:
    if not module.has(_PRE_QUANT) or (
        module.stored(_PRE_QUANT) in FLOATS and module.shape(_PRE_QUANT) in ((columns,), (1, columns))
    ):
        return None
    found = list(module.shape(_PRE_QUANT))
    return (
        f"{_PRE_QUANT} is {module.stored(_PRE_QUANT)} {found}, where a float for each of {columns} columns was expected"
    )


MODELOPT = Convention("ModelOpt packed", _recognise, companions=("weight_scale", "weight_scale_2", _PRE_QUANT))
