"""Weights of packed integers as sources, decoded only (encoded-sources.md 4.4, 5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ninfer_convert.sources.encoded.base import groups
from ninfer_convert.sources.encoded.scaled import ColumnGroups, ScaledWeight, signed, times, unsigned
from ninfer_convert.sources.encoded.weight import group_index

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.values import Encoding


@dataclass(frozen=True, eq=False)
class PackedIntegers(ScaledWeight):
    """compressed-tensors: codes of `bits` bits stand densely in a row of I32 words, moved up by 2^(bits - 1).

    The scale of a column is that of its group, of `block[1]` columns; with `weight_g_idx`, of the group given there.
    Zero points, one for each scale, are moved up alike and stand densely along the rows.
    """

    bits: int

    @cached_property
    def encoding(self) -> Encoding:
        """Raises SourceError for a column of no group."""
        _ = self.column_groups
        return super().encoding

    @cached_property
    def column_groups(self) -> ColumnGroups:
        count = groups(self.columns, self.block[1])
        index = group_index(self, "weight_g_idx", count)
        return super().column_groups if index is None else ColumnGroups.of(index, count)

    def read_codes(self, begin: int, end: int) -> NDArray[np.uint8]:
        return _unpacked(self.row_bytes(self.codes, begin, end), self.bits, self.columns)

    def meanings(self) -> NDArray[np.float64]:
        return unsigned(self.bits) - (0 if self._zeros is not None else 1 << (self.bits - 1))

    def zeros(self, begin: int, end: int) -> NDArray[np.float64] | None:
        return None if self._zeros is None else self._zeros[begin:end]

    @cached_property
    def _zeros(self) -> NDArray[np.float64] | None:
        """A zero point for each scale, moved up as codes are: float64 [rows, G]."""
        import numpy as np

        packed = self.tensors.get("weight_zero_point")
        if packed is None:
            return None
        words, count = packed.shape[-2:]
        stored = packed.read(0, packed.nbytes).view("<u4").reshape(-1, words, count)
        along = np.ascontiguousarray(stored.transpose(0, 2, 1)).view(np.uint8).reshape(-1, words * 4)
        zeros = _unpacked(along, self.bits, self.shape[-2]).reshape(-1, count, self.shape[-2])
        return np.ascontiguousarray(zeros.transpose(0, 2, 1).reshape(-1, count), np.float64)


@dataclass(frozen=True, eq=False)
class PairedIntegers(ScaledWeight):
    """ModelOpt: a byte holds two's complement codes of two rows, the even one in the low nibble.

    `before` is a factor of each input channel that the runtime applies to the activations.
    """

    before: str | None = None

    @property
    def unfit(self) -> str:
        if self.before:
            return f"{self.before} changes the weight's meaning and is not supported by import_encoded"
        return super().unfit

    def decode(self, begin: int, end: int) -> NDArray[np.float32]:
        """code * scale, rounded once, then times what the runtime applies."""
        values = super().decode(begin, end)
        return values if self.before is None else times(values, self.scales(self.before))

    def read_codes(self, begin: int, end: int) -> NDArray[np.uint8]:
        import numpy as np

        tensor = self.tensors[self.codes]
        first, last = begin // 2, -(-end // 2)
        pairs = tensor.read(first * self.columns, last * self.columns).reshape(-1, 1, self.columns)
        codes = np.concatenate([pairs & 15, pairs >> 4], axis=1).reshape(-1, self.columns)
        return codes[begin - 2 * first : end - 2 * first]

    def meanings(self) -> NDArray[np.float64]:
        return signed(4)


def _unpacked(rows: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.uint8]:
    """The first `count` codes of each row's bit stream: uint8 [rows, bytes] to [rows, count]."""
    import numpy as np

    from ninfer_convert.kernels.encoded import unpack_dense
    from ninfer_convert.kernels.packing import unpack

    if bits == 8:
        return rows[:, :count]
    if 8 % bits == 0:
        return unpack([rows], [bits]).reshape(len(rows), -1)[:, :count]
    out = np.empty((len(rows), count), np.uint8)
    unpack_dense(rows, bits, out)
    return out
