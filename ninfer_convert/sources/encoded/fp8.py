"""FP8 weights with a scale beside them: per tensor, per row, per block or group (encoded-sources.md 4.3, 5, 6).

The names are many (`weight_scale`, `weight_scale_inv`, `scale`, `qscale_weight`), the meaning is one: a multiplier.
Shapes tell the granularity where they can; where one shape has two readings the config decides.
"""

from __future__ import annotations

from collections.abc import Iterator
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


def _judge(module: Module, name: str, scale: str, declared: Declaration) -> EncodedModule:
    scheme = declared.scheme(module.name)
    shape = module.shape(name)
    encoding, details, fault = "FP8_TENSOR", "", None
    if len(shape) < 2:
        fault = f"is {list(shape)}, where a matrix was expected"
    elif module.stored(scale) in EXPONENTS:
        encoding, details, fault = _exponents(scale, module.shape(scale), shape, scheme)
    elif module.stored(scale) not in FLOATS:
        fault = f"{scale} is {module.stored(scale)}, where F32, BF16 or F16 was expected"
    else:
        encoding, details, fault = _multipliers(scale, module.shape(scale), shape, scheme)
    details = f"{scale} {module.stored(scale)}{details}"
    return encoded(module, (name, scale), encoding, shape, declared, details, fault, parameter=name)


def _exponents(scale: str, found: Shape, shape: Shape, scheme: Scheme) -> tuple[str, str, str | None]:
    """E8M0 scales: one for each 32 columns, or one for each block."""
    *rows, columns = shape
    if scheme.block is not None and found == _grid(shape, scheme.block):
        return "FP8_BLOCK", f", blocks of {list(scheme.block)}", None
    expected = (*rows, groups(columns, 32))
    return "MXFP8", ", groups of 32", None if found == expected else wrong_shape(scale, found, expected)


def _multipliers(scale: str, found: Shape, shape: Shape, scheme: Scheme) -> tuple[str, str, str | None]:
    """Encoding, details and fault of float scales of shape `found` for a weight (or bank) of `shape`."""
    *banks, rows, _ = shape
    block = scheme.block or _USUAL_BLOCK
    grid = _grid(shape, block)
    if len(found) == 4 and found[1] == found[3] == 1:
        found = (found[0], found[2])
    by_tensor = one_element(found) or found in (tuple(banks), (*banks, 1), (*banks, 1, 1))
    by_row = found in ((*banks, rows), (*banks, rows, 1))
    blocks = ("FP8_BLOCK", f", blocks of {list(block)}", None)
    if scheme.encoding == "FP8_BLOCK":
        if found == grid:
            return blocks
        if by_tensor:
            # One scale for everything says the same whatever the config calls it.
            return "FP8_BLOCK" if prod(grid) == 1 else "FP8_TENSOR", "", None
        if by_row:
            return "FP8_BLOCK", "", f"config says {scheme.words}, {scale} has {rows} rows"
        return "FP8_BLOCK", "", wrong_shape(scale, found, grid)
    if by_row and (rows != 1 or scheme.encoding == "FP8_ROW"):
        return "FP8_ROW", "", None
    if by_tensor:
        return "FP8_TENSOR", "", None
    return (*blocks[:2], None if found == grid else wrong_shape(scale, found, grid))


def _grid(shape: Shape, block: tuple[int, int]) -> Shape:
    *banks, rows, columns = shape
    return (*banks, groups(rows, block[0]), groups(columns, block[1]))


FP8 = Convention(
    "FP8 with scales", _recognise, companions=("weight_scale", "weight_scale_inv", "qscale_weight", "*_scale_inv")
)
