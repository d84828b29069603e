"""Rows of a source: the only view that any encoded words survive."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.sources.views.base import View, concatenated, spelled
from ninfer_convert.values import joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ninfer_convert.values import Encoding, Runs, Shape, Source, Values, Words


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
        raise IndexError(f"{source.name}: rows {spelled(runs)} are no part of {list(source.shape)}")
    if isinstance(source, _Rows):
        return _Rows(source.whole, tuple(part for begin, end in runs for part in source.parts(begin, end)))
    return _Rows(source, runs)


@dataclass(frozen=True, eq=False)
class _Rows(View):
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
        return f"rows {spelled(self.runs)}"

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
        return concatenated([self.whole.values(*part) for part in parts])

    def words(self, format: str, begin: int, end: int) -> Words:
        """Rows [begin, end), leading axes folded, as words of one of the `exact` formats."""
        rows = prod(self.whole.shape[1:-1])
        parts = list(self.parts(begin, end, rows)) or [(0, 0)]
        return joined([self.whole.words(format, *part) for part in parts])
