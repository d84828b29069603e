"""Weights whose scales form a grid: each one for so many rows and columns of codes (encoded-sources.md 4.3, 4.4, 6)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.sources.encoded.base import groups
from ninfer_convert.sources.encoded.weight import EncodedWeight

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class ScaledWeight(EncodedWeight):
    """Codes of one byte and a grid of scales, of every bank a grid of its own; or one scale for everything."""

    codes: str
    scale: str
    block: tuple[int, int]
    """Rows and columns that one scale serves; the last blocks may be partial."""

    def decode(self, begin: int, end: int) -> NDArray[np.float32]:
        """(code - zero point) * scale, rounded once."""
        rows, scales = self.scales_of(begin, end)
        codes = self.read_codes(begin, end)
        return decode_rows(codes, self.meanings(), scales, rows, self.column_groups, self.zeros(begin, end))

    def read_codes(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Rows [begin, end) of codes: uint8 [rows, K]."""
        return self.row_bytes(self.codes, begin, end)

    def meanings(self) -> NDArray[np.float64]:
        """What each code means."""
        return signed(8)

    def zeros(self, begin: int, end: int) -> NDArray[np.float64] | None:
        """Zero points of rows [begin, end), one for each of their scales."""
        return None

    @property
    def column_groups(self) -> ColumnGroups:
        return ColumnGroups.even(self.columns, self.block[1])

    def scales_of(self, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """For rows [begin, end): which of the scale rows serves each, and those scale rows, float64 [rows, G]."""
        rows = self.scale_rows(begin, end)
        width = groups(self.columns, self.block[1])
        first, last = int(rows[0]), int(rows[-1]) + 1
        return rows - first, self.scales(self.scale, first * width, last * width).reshape(-1, width)

    def scale_rows(self, begin: int, end: int) -> NDArray[np.int64]:
        """The row of the grid, of all banks one after the other, that serves each of the rows [begin, end)."""
        import numpy as np

        if prod(self.tensors[self.scale].shape) == 1:
            return np.zeros(end - begin, np.int64)
        bank, row = np.divmod(np.arange(begin, end), self.shape[-2])
        found: NDArray[np.int64] = bank * groups(self.shape[-2], self.block[0]) + row // self.block[0]
        return found


@dataclass(frozen=True)
class ColumnGroups:
    """Which columns share a scale: group g has those from `edges[g]` to `edges[g + 1]`, taken in `order`.

    Both are int64 arrays; `order` is None where columns stand by group.
    """

    edges: NDArray[np.int64]
    order: NDArray[np.int64] | None = None

    @classmethod
    def even(cls, columns: int, size: int) -> ColumnGroups:
        """Groups of `size` columns, the last perhaps partial."""
        import numpy as np

        return cls(np.minimum(np.arange(groups(columns, size) + 1) * size, columns))

    @classmethod
    def of(cls, index: NDArray[np.int64], count: int) -> ColumnGroups:
        """`index` gives each column's group, one of `count`."""
        import numpy as np

        order = np.argsort(index, kind="stable")
        edges = np.searchsorted(index[order], np.arange(count + 1))
        return cls(edges, None if (index[1:] >= index[:-1]).all() else order)


def decode_rows(
    codes: NDArray[np.uint8],
    meanings: NDArray[np.float64],
    scales: NDArray[np.float64],
    scale_rows: NDArray[np.int64],
    columns: ColumnGroups,
    zeros: NDArray[np.float64] | None = None,
) -> NDArray[np.float32]:
    """(meaning - zero) * scale, rounded once: float32 [rows, K] (`kernels.encoded.decode_scaled`)."""
    import numpy as np

    from ninfer_convert.kernels.encoded import decode_scaled

    ordered = codes if columns.order is None else np.take(codes, columns.order, axis=1)
    decoded = np.empty(codes.shape, np.uint32)
    decode_scaled(ordered, meanings, scales, zeros, scale_rows, columns.edges, decoded)
    if columns.order is None:
        return decoded.view(np.float32)
    out = np.empty(codes.shape, np.float32)
    out[:, columns.order] = decoded.view(np.float32)
    return out


def times(values: NDArray[np.float32], factors: NDArray[np.float64]) -> NDArray[np.float32]:
    """Values [rows, K], each times the factor of its column, rounded once more."""
    import numpy as np

    from ninfer_convert.kernels.encoded import multiply_columns

    out = np.empty(values.shape, np.uint32)
    multiply_columns(values.view(np.uint32), factors, out)
    return out.view(np.float32)


@cache
def signed(bits: int) -> NDArray[np.float64]:
    """Two's complement codes of so many bits."""
    import numpy as np

    codes = np.arange(1 << bits)
    return np.where(codes < 1 << (bits - 1), codes, codes - (1 << bits)).astype(np.float64)


@cache
def unsigned(bits: int) -> NDArray[np.float64]:
    """Codes of so many bits that are whole numbers from 0 on."""
    import numpy as np

    return np.arange(1 << bits, dtype=np.float64)


@cache
def e4m3() -> NDArray[np.float64]:
    """E4M3FN words."""
    import numpy as np

    from ninfer_convert.kernels.encoded import e4m3_values

    values = np.empty(256, np.float64)
    e4m3_values(values)
    return values


@cache
def e2m1() -> NDArray[np.float64]:
    """E2M1 words."""
    import numpy as np

    from ninfer_convert.kernels.encoded import e2m1_values

    values = np.empty(16, np.float64)
    e2m1_values(values)
    return values
