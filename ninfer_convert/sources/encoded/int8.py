"""INT8 weights with float scales: compressed-tensors int-quantized, ModelOpt W8A16 (encoded-sources.md 4.4, 5.2)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ninfer_convert.sources.encoded.base import FLOATS, Convention, EncodedModule, Module, encoded, one_element
from ninfer_convert.sources.encoded.scaled import ScaledWeight

if TYPE_CHECKING:
    from ninfer_convert.sources.encoded.declared import Declaration


def _recognise(module: Module, declared: Declaration) -> Iterator[EncodedModule]:
    if module.stored("weight") != "I8" or not module.has("weight_scale"):
        return
    shape, found = module.shape("weight"), module.shape("weight_scale")
    by_row = found in (shape[:-1], (*shape[:-1], 1))
    fault = None
    if len(shape) < 2:
        fault = f"is {list(shape)}, where a matrix was expected"
    elif module.stored("weight_scale") not in FLOATS or not (by_row or one_element(found)):
        fault = f"weight_scale is {module.stored('weight_scale')} {list(found)}, no scale of the rows of {list(shape)}"
    details = "one scale a row" if by_row else "one scale"
    read = partial(ScaledWeight, codes="weight", scale="weight_scale", block=(1, shape[-1] if shape else 1))
    yield encoded(module, ("weight", "weight_scale"), "INT8", shape, declared, details, fault, read=read)


INT8 = Convention("INT8", _recognise, companions=("weight_scale", "weight_zero_point"))
