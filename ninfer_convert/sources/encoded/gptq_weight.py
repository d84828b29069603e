"""GPTQ and AWQ weights as sources, decoded only (encoded-sources.md 8.1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ninfer_convert.sources.encoded.scaled import ColumnGroups, decode_rows, unsigned
from ninfer_convert.sources.encoded.weight import EncodedWeight, group_index, read_columns, widened

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.values import Encoding

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Row of each eight that nibble i of an AWQ word belongs to."""


@dataclass(frozen=True, eq=False)
class TransposedIntegers(EncodedWeight):
    """GPTQ and AWQ: columns of I32 words are rows of the weight, `scales` and `qzeros` stand by group and row."""

    bits: int
    group: int

    def decode(self, begin: int, end: int) -> NDArray[np.float32]:
        """scale * (code - zero point), rounded once."""
        import numpy as np

        scales, zeros = self._read_scales(begin, end), self.zeros(begin, end)
        codes, rows = self.codes(begin, end), np.arange(end - begin)
        return decode_rows(codes, self.meanings(), scales, rows, self.column_groups, zeros)

    def codes(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Codes of rows [begin, end): uint8 [rows, K]."""
        raise NotImplementedError

    def zeros(self, begin: int, end: int) -> NDArray[np.float64] | None:
        """Zero points of rows [begin, end), float64 [rows, G], where the meaning of codes leaves them out."""
        return None

    def meanings(self) -> NDArray[np.float64]:
        """What each code means."""
        return unsigned(self.bits)

    @property
    def column_groups(self) -> ColumnGroups:
        return ColumnGroups.even(self.columns, self.group)

    def _read_scales(self, begin: int, end: int) -> NDArray[np.float64]:
        import numpy as np

        tensor = self.tensors["scales"]
        words = np.ascontiguousarray(read_columns(tensor, begin, end).T)
        scales = widened(words.reshape(-1), tensor.stored == "F16").reshape(words.shape)
        wrong = ~np.isfinite(scales)
        if wrong.any():
            row, group = divmod(int(np.argmax(wrong)), tensor.shape[0])
            message = f"scale 0x{words[row, group]:04X} at [{group},{begin + row}] is not finite"
            raise self.error("bad-scale", tensor.name, message)
        return scales


@dataclass(frozen=True, eq=False)
class GptqWeight(TransposedIntegers):
    """Symmetric GPTQ: the zero point is 2^(bits - 1), which format v1 stores less one and v2 as it is."""

    @cached_property
    def encoding(self) -> Encoding:
        """Raises SourceError for zero points that are neither all v1's nor all v2's."""
        import numpy as np

        _ = self.column_groups
        tensor = self.tensors.get("qzeros")
        if tensor is not None:
            found = np.unique(self._fields(tensor.read(0, tensor.nbytes).view("<u4").reshape(tensor.shape)))
            middle = 1 << (self.bits - 1)
            if found.tolist() not in ([middle - 1], [middle]):
                stored = ", ".join(map(str, found[:4].tolist())) + (", ..." if len(found) > 4 else "")
                message = (
                    f"stores the zero points {stored}, where symmetric GPTQ has {middle - 1} (v1) or {middle} (v2) "
                    "alone; others cannot be told apart and are not decoded"
                )
                raise self.error("zero-points", tensor.name, message)
        return super().encoding

    def codes(self, begin: int, end: int) -> NDArray[np.uint8]:
        return self._fields(read_columns(self.tensors["qweight"], begin, end))

    def meanings(self) -> NDArray[np.float64]:
        _ = self.encoding
        return unsigned(self.bits) - (1 << (self.bits - 1))

    @cached_property
    def column_groups(self) -> ColumnGroups:
        count = self.tensors["scales"].shape[0]
        index = group_index(self, "g_idx", count)
        return super().column_groups if index is None else ColumnGroups.of(index, count)

    def _fields(self, words: NDArray[Any]) -> NDArray[np.uint8]:
        import numpy as np

        from ninfer_convert.kernels.encoded import unpack_down

        out = np.empty((words.shape[1], words.shape[0] * (32 // self.bits)), np.uint8)
        unpack_down(words, self.bits, out)
        return out


@dataclass(frozen=True, eq=False)
class AwqWeight(TransposedIntegers):
    """AWQ (GEMM): eight rows to a word, in an order of their own; zero points as they are."""

    def codes(self, begin: int, end: int) -> NDArray[np.uint8]:
        return self._fields("qweight", begin, end)

    def zeros(self, begin: int, end: int) -> NDArray[np.float64]:
        import numpy as np

        return self._fields("qzeros", begin, end).astype(np.float64)

    def _fields(self, role: str, begin: int, end: int) -> NDArray[np.uint8]:
        import numpy as np

        from ninfer_convert.kernels.encoded import unpack_across

        first, last = begin // 8, -(-end // 8)
        words = read_columns(self.tensors[role], first, last)
        out = np.empty((8 * (last - first), len(words)), np.uint8)
        unpack_across(words, np.array(AWQ_ORDER), out)
        return out[begin - 8 * first : end - 8 * first]
