"""Rows of a source, the only view that any encoded words survive; and rows of several merged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, TypeVar

from ninfer_convert.formats.stored import stored_type
from ninfer_convert.sources.views.base import View, concatenated, indices, numbers, runs_of, spelled
from ninfer_convert.values import Values, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ninfer_convert.values import Encoding, Origin, Runs, Shape, Source, Words

T = TypeVar("T")


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
    if isinstance(source, Rows):
        return Rows(source.whole, tuple(part for begin, end in runs for part in source.parts(begin, end)))
    return Rows(source, runs)


def merge_rows(whole: Source, parts: Iterable[tuple[Runs, Source]]) -> Source:
    """`whole` again, out of data for some runs of its rows each, one run after the other.

    Words are kept as far as all parts keep them. Raises IndexError where a row is in no part, or in two parts.
    """
    taken = []
    for runs, data in parts:
        starts = accumulate((end - begin for begin, end in runs[:-1]), initial=0)
        taken += [(begin, end, start, data) for (begin, end), start in zip(runs, starts, strict=True)]
    pieces: list[tuple[Source, int, int]] = []
    done = 0
    for begin, end, start, data in sorted(taken, key=lambda run: run[:2]):
        if begin > done:
            raise IndexError(f"rows {done}:{begin} are missing")
        if begin < done and pieces[-1][0] is not data:
            raise IndexError(f"rows {begin}:{min(end, done)} are there twice")
        if end > done:
            pieces.append((data, start + done - begin, start + end - begin))
            done = end
    if done < whole.shape[0]:
        raise IndexError(f"rows {done}:{whole.shape[0]} are missing")
    sources = {id(data): data for data, _, _ in pieces}
    if len(sources) > 1:
        return _Merged(whole.name, tuple(pieces))
    runs = runs_of(indices(tuple((begin, end) for _, begin, end in pieces)))
    return pieces[0][0] if runs == ((0, pieces[0][0].shape[0]),) else gather_rows(pieces[0][0], runs)


@dataclass(frozen=True)
class Rows(View):
    """The rows of each run of the leading axis, one run after the other."""

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

    def undone(self, data: Source) -> Source:
        return merge_rows(self.whole, [(self.runs, data)])

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


@dataclass(frozen=True, eq=False)
class _Merged:
    """Rows [begin, end) of one source after the other, all of one width."""

    name: str
    pieces: tuple[tuple[Source, int, int], ...]

    @cached_property
    def _sources(self) -> Sequence[Source]:
        return list({id(source): source for source, _, _ in self.pieces}.values())

    def _common(self, property: Callable[[Source], T]) -> T | None:
        """What all sources say of themselves, None where they differ."""
        first, *others = map(property, self._sources)
        return first if all(other == first for other in others) else None

    @cached_property
    def stored(self) -> str:
        wide = "F64" if any(source.stored == "F64" for source in self._sources) else "F32"
        return self._common(lambda source: source.stored) or wide

    @cached_property
    def shape(self) -> Shape:
        return (self._ends[-1], *self.pieces[0][0].shape[1:])

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(end - begin for _, begin, end in self.pieces))

    @property
    def nbytes(self) -> int:
        return sum(source.nbytes for source in self._sources)

    @cached_property
    def origins(self) -> Sequence[Origin]:
        return [origin for source in self._sources for origin in source.origins]

    @property
    def identical(self) -> str | None:
        return self._common(lambda source: source.identical) if self._alike else None

    @property
    def exact(self) -> Sequence[str]:
        return self._common(lambda source: tuple(source.exact)) or () if self._alike else ()

    @cached_property
    def encoding(self) -> Encoding | None:
        return self._common(lambda source: source.encoding)

    @cached_property
    def _alike(self) -> bool:
        """Whether words of all sources mean the same."""
        return all(source.encoding == self.encoding and source.stored == self.stored for source in self._sources)

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order: as stored where all sources are alike, else as numbers."""
        parts = [source.values(*run) for source, run in self._taken(begin, end, prod(self.shape[1:]))]
        if any(source.stored != self.stored for source in self._sources):
            dtype = stored_type(self.stored).numpy
            parts = [Values(numbers(part).astype(dtype, copy=False), self.stored) for part in parts]
        return concatenated(parts)

    def words(self, format: str, begin: int, end: int) -> Words:
        """Rows [begin, end), leading axes folded, as words of one of the `exact` formats."""
        runs = self._taken(begin, end, prod(self.shape[1:-1]))
        return joined([source.words(format, *run) for source, run in runs])

    def _taken(self, begin: int, end: int, unit: int) -> list[tuple[Source, tuple[int, int]]]:
        """The runs of the sources that [begin, end) is; rows are counted in parts of 1 / `unit`."""
        if not 0 <= begin <= end <= self._ends[-1] * unit:
            raise IndexError(f"{self.name}: {begin}:{end} is no part of {self._ends[-1] * unit}")
        found = []
        at = bisect_right(self._ends, begin // unit)
        while begin < end:
            source, _, stop = self.pieces[at]
            shift, last = (stop - self._ends[at]) * unit, min(end, self._ends[at] * unit)
            found.append((source, (begin + shift, last + shift)))
            begin, at = last, at + 1
        return found or [(self._sources[0], (0, 0))]
