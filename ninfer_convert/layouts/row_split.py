"""row_split_k128_v1: planes of base codes, high bits and scales, each row padded to 128 lanes (layouts.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ninfer_convert.formats.grouped import GROUPED_FORMATS, GroupedFormat
from ninfer_convert.layouts.planes import Plane, PlaneLayout, stack
from ninfer_convert.values import Words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.layouts.base import Tensor
    from ninfer_convert.layouts.planes import Bytes
    from ninfer_convert.values import Shape

LANES = 128
"""Rows are padded to a multiple of so many lanes."""


@dataclass(frozen=True)
class _Code:
    """How a signed code becomes bits: plane by plane, the lowest bits first, after adding `offset`."""

    widths: tuple[int, ...]
    offset: int = 0


_CODES = {
    "q2_g64_fp16": _Code((2,), offset=1),
    "q4_g64_fp16": _Code((4,)),
    "q5_g64_fp16": _Code((4, 1)),
    "q6_g64_fp16": _Code((4, 2)),
    "q8_g32_fp16": _Code((8,)),
    "t2_g128_fp16": _Code((2,)),
}
_FORMATS = {format.name: format for format in GROUPED_FORMATS}
_PLANES = ("base codes", "high bits")


@dataclass(frozen=True)
class _Row:
    """One row's geometry: logical and physical lanes, logical and physical groups."""

    format: GroupedFormat
    code: _Code
    columns: int
    lanes: int
    logical_groups: int
    groups: int


def _row(tensor: Tensor) -> _Row:
    format = _FORMATS[tensor.format.name]
    columns = tensor.shape[1]
    lanes = -(-columns // LANES) * LANES
    return _Row(format, _CODES[format.name], columns, lanes, -(-columns // format.group), lanes // format.group)


def _widened(array: NDArray[Any], columns: int) -> NDArray[Any]:
    """The array with zeros behind each row, up to `columns`; itself where it has them already."""
    import numpy as np

    rows, present = array.shape
    if present == columns:
        return array
    wide = np.zeros((rows, columns), array.dtype)
    wide[:, :present] = array
    return wide


def _packed(code: _Code, lanes: NDArray[Any]) -> list[Bytes]:
    from ninfer_convert.kernels.packing import pack

    return [pack(lanes, width, sum(code.widths[:i]), code.offset) for i, width in enumerate(code.widths)]


@dataclass(frozen=True, eq=False)
class RowSplit(PlaneLayout):
    def planes(self, tensor: Tensor) -> tuple[Plane, ...]:
        row = _row(tensor)
        codes = [(name, row.lanes * width // 8, 1) for name, width in zip(_PLANES, row.code.widths, strict=False)]
        return stack(tensor.shape[0], *codes, ("scales", row.groups * 2, 1))

    def word_arrays(self, tensor: Tensor, rows: int) -> Mapping[str, tuple[str, Shape]]:
        row = _row(tensor)
        return {"codes": ("int8", (rows, row.columns)), "scales": ("uint16", (rows, row.logical_groups))}

    def pack(self, tensor: Tensor, first_row: int, words: Words) -> Iterable[Bytes]:
        row = _row(tensor)
        assert words.scales is not None
        scales = _widened(words.scales, row.groups).reshape(-1).view("uint8")
        return (*_packed(row.code, _widened(words.codes, row.lanes)), scales)

    def unpack(self, tensor: Tensor, begin: int, end: int, parts: Sequence[Bytes]) -> Words:
        import numpy as np

        from ninfer_convert.kernels.packing import unpack

        row = _row(tensor)
        *planes, scales = parts
        sign = 0 if row.code.offset else 1 << (row.format.bits - 1)
        lanes = unpack(planes, row.code.widths, flip=sign, drop=sign or row.code.offset)
        return Words(
            np.ascontiguousarray(lanes.view(np.int8).reshape(-1, row.lanes)[:, : row.columns]),
            np.ascontiguousarray(scales.view(np.uint16).reshape(-1, row.groups)[:, : row.logical_groups]),
        )

    def row_padding(self, tensor: Tensor) -> Iterable[tuple[Bytes, Bytes]]:
        import numpy as np

        from ninfer_convert.kernels.packing import pack

        row = _row(tensor)
        padding = np.full(row.lanes, 0xFF, np.uint8)
        padding[: row.columns] = 0
        masks = [pack(padding, width) for width in row.code.widths]
        scales = np.full(row.groups, 0xFFFF, np.uint16)
        scales[: row.logical_groups] = 0
        canonical = _packed(row.code, np.zeros(row.lanes, np.uint8))
        return (*zip(masks, canonical, strict=True), (scales.view(np.uint8), np.zeros(row.groups * 2, np.uint8)))


ROW_SPLIT = RowSplit("row_split_k128_v1", tuple(_CODES))
