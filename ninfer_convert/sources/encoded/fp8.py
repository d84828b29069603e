"""FP8 weights with a scale beside them: per tensor, per row, per block or group (encoded-sources.md 4.3, 5, 6).

The names are many (`weight_scale`, `weight_scale_inv`, `scale`, `qscale_weight`), the meaning is one: a multiplier.
Shapes tell the granularity where they can; where one shape has two readings the config decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
    groups,
    one_element,
    wrong_shape,
)
from ninfer_convert.sources.encoded.fp8_weight import Fp8RowWeight, Fp8Weight

if TYPE_CHECKING:
    from ninfer_convert.sources.encoded.declared import Declaration, Scheme
    from ninfer_convert.values import Shape

_USUAL_BLOCK = (128, 128)
_ALIASES = ("scale", "qscale_weight")


def _recognise(module: Module, declared: Declaration) -> Iterator[EncodedModule]:
    for name in module.tensors:
        if module.stored(name) != "F8_E4M3" or "scale" in name:
            continue
        scales = [f"{name}_scale", f"{name}_scale_inv", f"{name}_weight_scale"]
        if name == "weight":
            scales += _ALIASES
        scale = next((scale for scale in scales if module.has(scale)), None)
        if scale is not None:
            yield _judge(module, name, scale, declared)


@dataclass(frozen=True)
class _Grain:
    """Which encoding the scales make, how many rows and columns each serves, what is wrong with them."""

    encoding: str
    block: tuple[int, int]
    fault: str | None = None

    @property
    def details(self) -> str:
        if self.encoding == "FP8_BLOCK":
            return f", blocks of {list(self.block)}"
        return ", groups of 32" if self.encoding == "MXFP8" else ""


def _judge(module: Module, name: str, scale: str, declared: Declaration) -> EncodedModule:
    shape = module.shape(name)
    grain = _grain(module, name, scale, declared.scheme(module.name))
    row_scaled = grain.encoding in ("FP8_ROW", "FP8_TENSOR")
    read = partial(Fp8RowWeight if row_scaled else Fp8Weight, codes=name, scale=scale, block=grain.block)
    details = f"{scale} {module.stored(scale)}{grain.details}"
    return encoded(module, (name, scale), grain.encoding, shape, declared, details, grain.fault, name, read)


def _grain(module: Module, name: str, scale: str, scheme: Scheme) -> _Grain:
    shape, found = module.shape(name), module.shape(scale)
    if len(shape) < 2:
        return _Grain("FP8_TENSOR", (1, 1), f"is {list(shape)}, where a matrix was expected")
    if module.stored(scale) in EXPONENTS:
        return _exponents(scale, found, shape, scheme)
    if module.stored(scale) not in FLOATS:
        fault = f"{scale} is {module.stored(scale)}, where F32, BF16 or F16 was expected"
        return _Grain("FP8_TENSOR", (1, 1), fault)
    return _multipliers(scale, found, shape, scheme)


def _exponents(scale: str, found: Shape, shape: Shape, scheme: Scheme) -> _Grain:
    """E8M0 scales: one for each 32 columns, or one for each block."""
    *rows, columns = shape
    if scheme.block is not None and found == _grid(shape, scheme.block):
        return _Grain("FP8_BLOCK", scheme.block)
    expected = (*rows, groups(columns, 32))
    return _Grain("MXFP8", (1, 32), None if found == expected else wrong_shape(scale, found, expected))


def _multipliers(scale: str, found: Shape, shape: Shape, scheme: Scheme) -> _Grain:
    """Float scales of shape `found` for a weight (or bank) of `shape`."""
    *banks, rows, columns = shape
    block = scheme.block or _USUAL_BLOCK
    grid = _grid(shape, block)
    if len(found) == 4 and found[1] == found[3] == 1:
        found = (found[0], found[2])
    by_tensor = one_element(found) or found in (tuple(banks), (*banks, 1), (*banks, 1, 1))
    by_row = found in ((*banks, rows), (*banks, rows, 1))
    whole = _Grain("FP8_TENSOR", (rows, columns))
    if scheme.encoding == "FP8_BLOCK":
        if found == grid:
            return _Grain("FP8_BLOCK", block)
        if by_tensor:
            # One scale for everything says the same whatever the config calls it.
            return _Grain("FP8_BLOCK", block) if prod(grid) == 1 else whole
        if by_row:
            return _Grain("FP8_BLOCK", block, f"config says {scheme.words}, {scale} has {rows} rows")
        return _Grain("FP8_BLOCK", block, wrong_shape(scale, found, grid))
    if by_row and (rows != 1 or scheme.encoding == "FP8_ROW"):
        return _Grain("FP8_ROW", (1, columns))
    if by_tensor:
        return whole
    return _Grain("FP8_BLOCK", block, None if found == grid else wrong_shape(scale, found, grid))


def _grid(shape: Shape, block: tuple[int, int]) -> Shape:
    *banks, rows, columns = shape
    return (*banks, groups(rows, block[0]), groups(columns, block[1]))


FP8 = Convention(
    "FP8 with scales", _recognise, companions=("weight_scale", "weight_scale_inv", "qscale_weight", "*_scale_inv")
)
