"""row_interleaved_v1: each row's E4M3FN codes, then its binary16 multiplier (layouts.md)."""

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

SCALE_BYTES = 2


@dataclass(frozen=True, eq=False)
class RowInterleaved(PlaneLayout):
    def planes(self, tensor: Tensor) -> tuple[Plane, ...]:
        rows, columns = tensor.shape
        return stack(rows, ("rows", columns + SCALE_BYTES, 1))

    def word_arrays(self, tensor: Tensor, rows: int) -> Mapping[str, tuple[str, Shape]]:
        return {"codes": ("uint8", (rows, tensor.shape[1])), "scales": ("uint16", (rows,))}

    def pack(self, tensor: Tensor, first_row: int, words: Words) -> Iterable[Bytes]:
        import numpy as np

        assert words.scales is not None
        scales = words.scales.view(np.uint8).reshape(-1, SCALE_BYTES)
        return (np.concatenate((words.codes, scales), axis=1).reshape(-1),)

    def unpack(self, tensor: Tensor, begin: int, end: int, parts: Sequence[Bytes]) -> Words:
        import numpy as np

        rows = parts[0].reshape(end - begin, -1)
        scales = np.ascontiguousarray(rows[:, -SCALE_BYTES:]).view(np.uint16).reshape(-1)
        return Words(np.ascontiguousarray(rows[:, :-SCALE_BYTES]), scales)


ROW_INTERLEAVED = RowInterleaved("row_interleaved_v1", ("fp8_e4m3fn_row_fp16",))
