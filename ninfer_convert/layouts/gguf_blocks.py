"""gguf_blocks_v1: rows of ggml's own blocks, byte for byte (layouts.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer_convert.formats.gguf import GGUF_FORMATS
from ninfer_convert.layouts.planes import Plane, PlaneLayout, not_multiple, stack
from ninfer_convert.values import Words

if TYPE_CHECKING:
    from ninfer_convert.layouts.base import Tensor
    from ninfer_convert.layouts.planes import Bytes
    from ninfer_convert.values import Shape

_FORMATS = {format.name: format for format in GGUF_FORMATS}


def _row_bytes(tensor: Tensor) -> int:
    format = _FORMATS[tensor.format.name]
    return tensor.shape[1] // format.block_values * format.block_bytes


@dataclass(frozen=True, eq=False)
class GgufBlocks(PlaneLayout):
    def geometry(self, tensor: Tensor) -> Iterable[str | None]:
        columns = tensor.shape[1]
        return (not_multiple(f"K={columns} (row length)", columns, _FORMATS[tensor.format.name].block_values),)

    def planes(self, tensor: Tensor) -> tuple[Plane, ...]:
        return stack(tensor.shape[0], ("blocks", _row_bytes(tensor), 1))

    def word_arrays(self, tensor: Tensor, rows: int) -> Mapping[str, tuple[str, Shape]]:
        return {"codes": ("uint8", (rows, _row_bytes(tensor)))}

    def pack(self, tensor: Tensor, first_row: int, words: Words) -> Iterable[Bytes]:
        return (words.codes.reshape(-1),)

    def unpack(self, tensor: Tensor, begin: int, end: int, parts: Sequence[Bytes]) -> Words:
        return Words(parts[0].reshape(end - begin, -1))


GGUF_BLOCKS = GgufBlocks("gguf_blocks_v1", tuple(_FORMATS))
