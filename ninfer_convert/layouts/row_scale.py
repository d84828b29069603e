"""row_scale_v1: a plane of E4M3FN codes, then one bf16 multiplier a row (layouts.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer_convert.layouts.planes import Plane, PlaneLayout, stack
from ninfer_convert.values import Words

if TYPE_CHECKING:
    from ninfer_convert.layouts.base import Tensor
    from ninfer_convert.layouts.planes import Bytes
    from ninfer_convert.values import Shape


@dataclass(frozen=True, eq=False)
class RowScale(PlaneLayout):
    def planes(self, tensor: Tensor) -> tuple[Plane, ...]:
        rows, columns = tensor.shape
        return stack(rows, ("codes", columns, 1), ("scales", 2, 1))

    def word_arrays(self, tensor: Tensor, rows: int) -> Mapping[str, tuple[str, Shape]]:
        return {"codes": ("uint8", (rows, tensor.shape[1])), "scales": ("uint16", (rows,))}

    def pack(self, tensor: Tensor, first_row: int, words: Words) -> Iterable[Bytes]:
        assert words.scales is not None
        return words.codes.reshape(-1), words.scales.view("uint8")

    def unpack(self, tensor: Tensor, begin: int, end: int, parts: Sequence[Bytes]) -> Words:
        codes, scales = parts
        return Words(codes.reshape(end - begin, -1), scales.view("uint16"))


ROW_SCALE = RowScale("row_scale_v1", ("fp8_e4m3fn_row_bf16",))
