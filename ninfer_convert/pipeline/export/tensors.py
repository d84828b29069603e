"""A parameter's bytes as another format stores them: its words where they are that already, else its values."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ninfer_convert.errors import NumericError, Problem, printable
from ninfer_convert.formats.stored import STORED_TYPES
from ninfer_convert.kernels.cast import find_made_infinite, floats_to_bf16
from ninfer_convert.pipeline.export.files import Region
from ninfer_convert.pipeline.stored import PIECE_ELEMENTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.formats.stored import StoredType
    from ninfer_convert.pipeline.stored import StoredParameter

KEEPING = MappingProxyType({kind.identical: kind for kind in STORED_TYPES.values() if kind.identical is not None})
"""Format -> the stored type that has the same words."""


def region(parameter: StoredParameter, kind: StoredType, offset: int) -> Region:
    """The bytes of `parameter` as `kind`: its words' own type, F32, or BF16, to which values are rounded once."""
    if parameter.formats == (kind.identical,):
        convert = _words
    else:
        convert = _as_bf16 if kind.name == "BF16" else _as_f32

    def make(begin: int, end: int) -> NDArray[Any]:
        return convert(parameter, begin * kind.block_values, end * kind.block_values)

    columns = parameter.columns
    step = max(1, PIECE_ELEMENTS // columns) * columns
    count = parameter.elements // kind.block_values
    return Region(parameter.name, offset, kind.block_bytes, count, step // kind.block_values, make)


def _words(parameter: StoredParameter, begin: int, end: int) -> NDArray[Any]:
    return np.concatenate([span.words().codes.reshape(-1) for span in parameter.cut(begin, end)])


def _as_f32(parameter: StoredParameter, begin: int, end: int) -> NDArray[Any]:
    return parameter.values(begin, end).astype(np.float32, copy=False)


def _as_bf16(parameter: StoredParameter, begin: int, end: int) -> NDArray[Any]:
    words = _as_f32(parameter, begin, end).view(np.uint32)
    rounded = np.empty(words.shape, np.uint16)
    if floats_to_bf16(words, False, rounded):
        beyond, first = find_made_infinite(words, False, rounded)
        if beyond:
            value = float(words.view(np.float32)[first])
            message = (
                f"{printable(parameter.name)}: element {begin + first} is {value!r}, which bfloat16 holds as an "
                "infinity; export it as fp32"
            )
            raise NumericError(Problem("made-infinite", message, tensor=parameter.name))
    return rounded
