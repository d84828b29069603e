"""The same elements in another order, or under another shape."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.sources.views.base import View, concatenated, indices, inverted, runs_of, spelled
from ninfer_convert.values import Encoding

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.values import Runs, Shape, Source, Values, Words

_SPAN_ELEMENTS = 1 << 20
_WIDE_ROW = 4096


def reshape(source: Source, shape: Shape) -> Source:
    """The same elements in C order under another shape; encoded words only where the last axis stays.

    Raises IndexError where their number differs.
    """
    if prod(shape) != prod(source.shape):
        raise IndexError(f"{source.name}: {list(source.shape)} cannot be taken as {list(shape)}")
    return _Reshaped(source, shape)


def transpose(source: Source) -> Source:
    """The last two axes exchanged: [.., K, N] as [.., N, K]. Raises IndexError where there are no two."""
    if len(source.shape) < 2:
        raise IndexError(f"{source.name}: {list(source.shape)} has no two axes to exchange")
    return _Transposed(source)


def gather_columns(source: Source, runs: Runs) -> Source:
    """The columns of each run of the last axis, one run after the other; they must be all columns, each once.

    A `gguf_*` format keeps its words as they are: its columns then stand as `encoding.columns` tells, and a use of them
    must say so. Raises IndexError where the runs are no permutation.
    """
    columns = source.shape[-1] if source.shape else 0
    edges = [0, *(edge for run in sorted(runs) for edge in run), columns]
    if any(begin != end for begin, end in zip(edges[::2], edges[1::2], strict=True)):
        raise IndexError(f"{source.name}: columns {spelled(runs)} are no permutation of {list(source.shape)}")
    if isinstance(source, _Columns):
        runs = runs_of(source.order[indices(runs)])
        source = source.whole
    return source if runs == ((0, columns),) else _Columns(source, runs)


@dataclass(frozen=True)
class _Reshaped(View):
    shape: Shape

    @property
    def selection(self) -> str:
        return f"as {list(self.shape)}"

    def undone(self, data: Source) -> Source:
        return reshape(data, self.whole.shape)

    @property
    def _keeps_rows(self) -> bool:
        return self.shape[-1:] == self.whole.shape[-1:]

    @property
    def identical(self) -> str | None:
        return self.whole.identical if self._keeps_rows else super().identical

    @property
    def exact(self) -> Sequence[str]:
        return self.whole.exact if self._keeps_rows else ()

    @property
    def encoding(self) -> Encoding | None:
        return self.whole.encoding if self._keeps_rows else super().encoding

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order."""
        return self.whole.values(begin, end)

    def words(self, format: str, begin: int, end: int) -> Words:
        """Rows [begin, end), leading axes folded, as words of one of the `exact` formats."""
        return self.whole.words(format, begin, end) if self._keeps_rows else self.refuse(format)


@dataclass(frozen=True)
class _Transposed(View):
    @property
    def shape(self) -> Shape:
        *banks, rows, columns = self.whole.shape
        return (*banks, columns, rows)

    @property
    def selection(self) -> str:
        return "transposed"

    def undone(self, data: Source) -> Source:
        return transpose(data)

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order; the columns of the source that they lie in are read whole."""
        if begin == end:
            return self.whole.values(0, 0)
        *_, rows, columns = self.whole.shape
        first, last = begin // rows, -(-end // rows)
        matrices = range(first // columns, -(-last // columns))
        values = concatenated(
            [
                self._columns(matrix, max(first - matrix * columns, 0), min(last - matrix * columns, columns))
                for matrix in matrices
            ]
        )
        return replace(values, array=values.array[begin - first * rows : end - first * rows])

    def _columns(self, matrix: int, begin: int, end: int) -> Values:
        """Columns [begin, end) of one of the source's matrices, one after the other.

        Of wide rows just those columns are read, row by row; of others many rows whole, as that costs less.
        """
        import numpy as np

        *_, rows, columns = self.whole.shape
        wide = columns >= _WIDE_ROW and end - begin < columns
        step = 1 if wide else max(1, _SPAN_ELEMENTS // columns)
        blocks = []
        for row in range(0, rows, step):
            at, count = (matrix * rows + row) * columns, min(step, rows - row)
            if wide:
                read = self.whole.values(at + begin, at + end)
                blocks.append(read.array[None, :])
            else:
                read = self.whole.values(at, at + count * columns)
                blocks.append(read.array.reshape(count, columns)[:, begin:end].copy())
        return replace(read, array=np.concatenate(blocks).T.reshape(-1))


@dataclass(frozen=True)
class _Columns(View):
    runs: Runs

    @property
    def shape(self) -> Shape:
        return self.whole.shape

    @property
    def selection(self) -> str:
        return f"columns {spelled(self.runs)}"

    def undone(self, data: Source) -> Source:
        return gather_columns(data, inverted(self.order))

    @property
    def identical(self) -> str | None:
        return super().identical or next(iter(self.exact), None)

    @property
    def exact(self) -> Sequence[str]:
        return tuple(format for format in self.whole.exact if format.startswith("gguf_"))

    @property
    def encoding(self) -> Encoding | None:
        if not self.exact:
            return super().encoding
        unfit = "its columns stand in another order, which only a gguf_* format can be told"
        return Encoding("columns in an order of their own", unfit, columns=self.runs)

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """The source's column that each of its own is."""
        return indices(self.runs)

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order; the rows that they lie in are read whole."""
        columns = self.shape[-1]
        first, last = begin // columns, -(-end // columns)
        values = self.whole.values(first * columns, last * columns)
        rows = values.array.reshape(-1, columns)[:, self.order].reshape(-1)
        return replace(values, array=rows[begin - first * columns : end - first * columns])

    def words(self, format: str, begin: int, end: int) -> Words:
        """Rows [begin, end), leading axes folded, as words of one of the `exact` formats, their columns as stored."""
        return self.whole.words(format, begin, end) if format in self.exact else self.refuse(format)
