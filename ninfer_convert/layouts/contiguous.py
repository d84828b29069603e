"""contiguous_le_v1: direct words in C order, without header or padding (layouts.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.formats.direct import DIRECT_FORMATS
from ninfer_convert.layouts.planes import Plane, PlaneLayout, stack
from ninfer_convert.values import Words

if TYPE_CHECKING:
    from ninfer_convert.layouts.base import Tensor
    from ninfer_convert.layouts.planes import Bytes
    from ninfer_convert.values import Shape

_FORMATS = {format.name: format for format in DIRECT_FORMATS}


@dataclass(frozen=True, eq=False)
class Contiguous(PlaneLayout):
    def matrix(self, shape: Shape) -> tuple[int, int]:
        return prod(shape), 1

    def planes(self, tensor: Tensor) -> tuple[Plane, ...]:
        return stack(prod(tensor.shape), ("words", _FORMATS[tensor.format.name].bits // 8, 1))

    def word_arrays(self, tensor: Tensor, rows: int) -> Mapping[str, tuple[str, Shape]]:
        return {"codes": (_FORMATS[tensor.format.name].word, (rows,))}

    def pack(self, tensor: Tensor, first_row: int, words: Words) -> Iterable[Bytes]:
        return (words.codes.view("uint8"),)

    def unpack(self, tensor: Tensor, begin: int, end: int, parts: Sequence[Bytes]) -> Words:
        return Words(parts[0].view(_FORMATS[tensor.format.name].word))


CONTIGUOUS = Contiguous("contiguous_le_v1", tuple(_FORMATS), ranks=range(17))
