"""A source's bytes as another format stores them: its words where they are that already, else its values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ninfer_convert.errors import NumericError, Problem, printable
from ninfer_convert.kernels.cast import find_made_infinite, floats_to_bf16
from ninfer_convert.pipeline.export.files import Region
from ninfer_convert.pipeline.parameters import KEEPING
from ninfer_convert.pipeline.stored import PIECE_ELEMENTS
from ninfer_convert.sources.views import numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.formats.stored import StoredType
    from ninfer_convert.values import Shape, Source


@dataclass(frozen=True)
class Tensor:
    """What is exported under a name; `formats` are those of the parameters it is made of, joined by "+"."""

    name: str
    source: Source
    formats: str

    @property
    def shape(self) -> Shape:
        return self.source.shape

    @cached_property
    def kind(self) -> StoredType | None:
        """The type whose words it gives, row by row as its values stand; None where it has values alone."""
        source = self.source
        if source.identical is None or (source.encoding is not None and source.encoding.columns):
            return None
        return KEEPING[source.identical]


def region(tensor: Tensor, kind: StoredType, offset: int) -> Region:
    """The bytes of a tensor as `kind`: its words' own type, F32, or BF16, to which values are rounded once."""
    name, source = tensor.name, tensor.source
    elements, columns = prod(source.shape), source.shape[-1] if source.shape else 1
    rows = max(1, PIECE_ELEMENTS // columns)
    if kind.kind == "block":
        assert kind.identical is not None
        size = columns // kind.block_values * kind.block_bytes
        return Region(name, offset, size, elements // columns, rows, partial(_blocks, source, kind.identical))
    if source.stored == kind.name:
        return Region(name, offset, kind.block_bytes, elements, PIECE_ELEMENTS, partial(_words, source))
    make = partial(_as_bf16, name, source) if kind.name == "BF16" else partial(_as_f32, source)
    return Region(name, offset, kind.block_bytes, elements, rows * columns, make)


def _blocks(source: Source, format: str, begin: int, end: int) -> NDArray[Any]:
    return np.ascontiguousarray(source.words(format, begin, end).codes)


def _words(source: Source, begin: int, end: int) -> NDArray[Any]:
    return np.ascontiguousarray(source.values(begin, end).array)


def _as_f32(source: Source, begin: int, end: int) -> NDArray[Any]:
    return np.ascontiguousarray(numbers(source.values(begin, end)), np.float32)


def _as_bf16(name: str, source: Source, begin: int, end: int) -> NDArray[Any]:
    words = _as_f32(source, begin, end).view(np.uint32)
    rounded = np.empty(words.shape, np.uint16)
    if floats_to_bf16(words, False, rounded):
        beyond, first = find_made_infinite(words, False, rounded)
        if beyond:
            value = float(words.view(np.float32)[first])
            message = (
                f"{printable(name)}: element {begin + first} is {value!r}, which bfloat16 holds as an infinity; export "
                "it as fp32"
            )
            raise NumericError(Problem("made-infinite", message, tensor=name))
    return rounded
