"""bitsandbytes' weights as sources, decoded only (encoded-sources.md 8.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.sources.encoded.scaled import ColumnGroups, ScaledWeight, decode_rows
from ninfer_convert.sources.encoded.weight import EncodedWeight
from ninfer_convert.stages import stage
from ninfer_convert.values import Encoding, Values

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ROWS = 0
"""The `weight_format` of plain rows; others are tiled for old graphics cards."""


@dataclass(frozen=True, eq=False)
class EightBitWeight(ScaledWeight):
    """Signed codes, and for each row the largest magnitude, which code 127 stands for."""

    @cached_property
    def encoding(self) -> Encoding:
        """Raises SourceError for codes that do not stand in rows."""
        tensor = self.tensors.get("weight_format")
        stored = int(tensor.values(0, 1).array[0]) if tensor is not None else _ROWS
        if tensor is not None and stored != _ROWS:
            raise self.error("tiled", tensor.name, f"is {stored}: codes tiled for a graphics card; only rows are read")
        return super().encoding

    def scales_of(self, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Largest magnitudes / 127. Rounding that to binary64 first hides no tie of the binary32 values: a quotient by
        127 of 32 bits cannot lie so close to one."""
        _ = self.encoding
        rows, largest = super().scales_of(begin, end)
        return rows, largest / 127


@dataclass(frozen=True, eq=False)
class FourBitWeight(EncodedWeight):
    """Codes of a table of 16 values, the high nibble first, in flat blocks that share a largest magnitude.

    That is F32, or one of a table's 256 values times a magnitude of its own block of `nested` blocks, plus `offset`.
    """

    block: int
    nested: int | None
    offset: float

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order as float32: table value * largest magnitude, rounded once."""
        import numpy as np

        if not 0 <= begin <= end <= prod(self.shape):
            raise IndexError(f"{self.name}: elements {begin}:{end} are no part of its {prod(self.shape)}")
        if begin == end:
            return Values(np.empty(0, np.float32), "F32")
        packed = self.tensors["weight"].read(begin // 2, -(-end // 2))
        codes = np.stack([packed >> 4, packed & 15], axis=1).reshape(1, -1)[:, begin % 2 :][:, : end - begin]
        first, last = begin // self.block, -(-end // self.block)
        edges = np.clip(np.arange(first, last + 1) * self.block, begin, end) - begin
        scales = self._largest(first, last)[None, :]
        table = self.scales("weight.quant_map")
        groups = ColumnGroups(edges)
        with stage("decode"):
            decoded = decode_rows(np.ascontiguousarray(codes), table, scales, np.zeros(1, np.int64), groups)
        return Values(decoded.reshape(-1), "F32")

    def _largest(self, begin: int, end: int) -> NDArray[np.float64]:
        """The largest magnitude of blocks [begin, end)."""
        import numpy as np

        if self.nested is None:
            return self.scales("weight.absmax", begin, end)
        codes = self.tensors["weight.absmax"].read(begin, end)
        first, last = begin // self.nested, -(-end // self.nested)
        outer = self.scales("weight.nested_absmax", first, last)
        edges = np.clip(np.arange(first, last + 1) * self.nested, begin, end) - begin
        table = self.scales("weight.nested_quant_map")
        inner = decode_rows(codes[None, :], table, outer[None, :], np.zeros(1, np.int64), ColumnGroups(edges))[0]
        largest: NDArray[np.float64] = (inner + np.float32(self.offset)).astype(np.float64)
        return largest
