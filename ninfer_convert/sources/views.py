"""Views of a source: lazy nodes that choose or rearrange its elements and copy nothing until they are read.

Rows keep encoded words, and so does a reshape that leaves the rows as they are; what else is rearranged has values
only. Reading any range of elements costs memory for that range, the rows it touches, and a span of bounded size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, NoReturn

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.sources.labels import label
from ninfer_convert.values import Encoding, Origin, Values, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ninfer_convert.values import Runs, Shape, Source, Words

_SPAN_ELEMENTS = 1 << 20
_WIDE_ROW = 4096


def take_rows(source: Source, begin: int, end: int) -> Source:
    """Rows [begin, end) of the leading axis of `source` (experts of a bank); encoded words allow it too.

    Raises IndexError where the source has no such rows.
    """
    return gather_rows(source, ((begin, end),))


def gather_rows(source: Source, runs: Runs) -> Source:
    """The rows of each run of the leading axis of `source`, one run after the other; encoded words allow it too.

    Raises IndexError where the source has no such rows.
    """
    rows = source.shape[0] if source.shape else 0
    if not runs or not all(0 <= begin < end <= rows for begin, end in runs):
        raise IndexError(f"{source.name}: rows {_spelled(runs)} are no part of {list(source.shape)}")
    if isinstance(source, _Rows):
        return _Rows(source.whole, tuple(part for begin, end in runs for part in source.parts(begin, end)))
    return _Rows(source, runs)


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


@dataclass(frozen=True, eq=False)
class _View(ABC):
    """What every view takes from the source it looks at; here nothing but its values can be had."""

    whole: Source

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def stored(self) -> str:
        return self.whole.stored

    @property
    def nbytes(self) -> int:
        return self.whole.nbytes

    @property
    @abstractmethod
    def selection(self) -> str:
        """What it makes of the source, for provenance."""

    @cached_property
    def origins(self) -> Sequence[Origin]:
        return [
            Origin(
                origin.source,
                origin.file,
                origin.tensor,
                origin.stored,
                f"{origin.selection}, {self.selection}" if origin.selection else self.selection,
            )
            for origin in self.whole.origins
        ]

    @property
    def identical(self) -> str | None:
        return None if stored_type(self.stored).quantized else self.whole.identical

    @property
    def exact(self) -> Sequence[str]:
        return ()

    @property
    def encoding(self) -> Encoding | None:
        encoding = self.whole.encoding
        unfit = "its elements are rearranged, which encoded words cannot be"
        return encoding and Encoding(details=encoding.details, unfit=unfit, activations=encoding.activations)

    def words(self, format: str, begin: int, end: int) -> Words:
        self._refuse(format)

    def _refuse(self, format: str) -> NoReturn:
        message = f"{label(self.name)}: its elements are rearranged, so it holds no words of {format}"
        raise SourceError(Problem("not-encoded", message, path=self.origins[0].file, tensor=self.name))


@dataclass(frozen=True, eq=False)
class _Rows(_View):
    runs: Runs

    @cached_property
    def shape(self) -> Shape:
        return (self._ends[-1], *self.whole.shape[1:])

    @cached_property
    def _ends(self) -> list[int]:
        """Where each run ends in the result."""
        return list(accumulate(end - begin for begin, end in self.runs))

    def parts(self, begin: int, end: int, unit: int = 1) -> Iterator[tuple[int, int]]:
        """The runs of the source that rows [begin, end) of the result are; rows are counted in parts of 1 / `unit`."""
        if not 0 <= begin <= end <= self._ends[-1] * unit:
            raise IndexError(f"{self.name}: {begin}:{end} is no part of {self._ends[-1] * unit}")
        at = bisect_right(self._ends, begin // unit)
        while begin < end:
            first = self.runs[at][1] - self._ends[at]
            last = min(end, self._ends[at] * unit)
            yield begin + first * unit, last + first * unit
            begin, at = last, at + 1

    @property
    def nbytes(self) -> int:
        return self.whole.nbytes * self._ends[-1] // self.whole.shape[0]

    @property
    def selection(self) -> str:
        return f"rows {_spelled(self.runs)}"

    @property
    def identical(self) -> str | None:
        return self.whole.identical

    @property
    def exact(self) -> Sequence[str]:
        return self.whole.exact

    @property
    def encoding(self) -> Encoding | None:
        encoding = self.whole.encoding
        if encoding is None or len(encoding.divisors) < 2:
            return encoding
        rows, share = self.whole.shape[0], len(encoding.divisors)
        touched = (range(begin * share // rows, -(-end * share // rows)) for begin, end in self.runs)
        return replace(encoding, divisors=tuple(encoding.divisors[index] for run in touched for index in run))

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order."""
        width = prod(self.whole.shape[1:])
        parts = list(self.parts(begin, end, width)) or [(0, 0)]
        return _concatenated([self.whole.values(*part) for part in parts])

    def words(self, format: str, begin: int, end: int) -> Words:
        """Rows [begin, end), leading axes folded, as words of one of the `exact` formats."""
        rows = prod(self.whole.shape[1:-1])
        parts = list(self.parts(begin, end, rows)) or [(0, 0)]
        return joined([self.whole.words(format, *part) for part in parts])


@dataclass(frozen=True, eq=False)
class _Reshaped(_View):
    shape: Shape

    @property
    def selection(self) -> str:
        return f"as {list(self.shape)}"

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
        return self.whole.words(format, begin, end) if self._keeps_rows else self._refuse(format)


@dataclass(frozen=True, eq=False)
class _Transposed(_View):
    @property
    def shape(self) -> Shape:
        *banks, rows, columns = self.whole.shape
        return (*banks, columns, rows)

    @property
    def selection(self) -> str:
        return "transposed"

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order; the columns of the source that they lie in are read whole."""
        if begin == end:
            return self.whole.values(0, 0)
        *_, rows, columns = self.whole.shape
        first, last = begin // rows, -(-end // rows)
        matrices = range(first // columns, -(-last // columns))
        values = _concatenated(
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


def _concatenated(parts: list[Values]) -> Values:
    if len(parts) == 1:
        return parts[0]
    import numpy as np

    return replace(parts[0], array=np.concatenate([part.array for part in parts]))


def _spelled(runs: Runs) -> str:
    return "+".join(f"{begin}:{end}" for begin, end in runs)
