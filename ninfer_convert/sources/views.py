"""Views of a source: lazy nodes that choose or rearrange its elements and copy nothing until they are read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ninfer_convert.values import Encoding, Origin, Shape, Source, Values, Words


def take_rows(source: Source, begin: int, end: int) -> Source:
    """Rows [begin, end) of the leading axis of `source` (experts of a bank); encoded words allow it too.

    Raises IndexError where the source has no such rows.
    """
    if not source.shape or not 0 <= begin < end <= source.shape[0]:
        raise IndexError(f"{source.name}: rows {begin}:{end} are no part of {list(source.shape)}")
    if isinstance(source, _Rows):
        return _Rows(source.whole, source.begin + begin, source.begin + end)
    return _Rows(source, begin, end)


@dataclass(frozen=True, eq=False)
class _Rows:
    whole: Source
    begin: int
    end: int

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def stored(self) -> str:
        return self.whole.stored

    @property
    def shape(self) -> Shape:
        return (self.end - self.begin, *self.whole.shape[1:])

    @property
    def nbytes(self) -> int:
        return self.whole.nbytes // self.whole.shape[0] * (self.end - self.begin)

    @property
    def origins(self) -> Sequence[Origin]:
        return [replace(origin, selection=f"rows {self.begin}:{self.end}") for origin in self.whole.origins]

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
        begin, end = self.begin * share // rows, -(-self.end * share // rows)
        return replace(encoding, divisors=encoding.divisors[begin:end])

    def values(self, begin: int, end: int) -> Values:
        first = self.begin * prod(self.whole.shape[1:])
        return self.whole.values(first + begin, first + end)

    def words(self, format: str, begin: int, end: int) -> Words:
        first = self.begin * prod(self.whole.shape[1:-1])
        return self.whole.words(format, first + begin, first + end)
