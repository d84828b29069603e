"""What every tensor layout offers: geometry in whole numbers, words to bytes and back, row selection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.formats import Format
    from ninfer_convert.values import Shape, Words

TENSOR_ALIGNMENT = 256
"""Bytes to which a tensor object's offset in the logical payload is aligned (container.md 2)."""

Read = Callable[[int, int], "memoryview"]
"""`read(offset, length)`: bytes of one object, offset counted from its start."""


@dataclass(frozen=True)
class Segment:
    """Bytes to write at `offset` from the start of the object; `data` is a C-contiguous uint8 array."""

    offset: int
    data: NDArray[Any]


@dataclass(frozen=True)
class PaddingFault:
    """Bytes or lanes that must hold the canonical padding and do not: offset in the object, what was found."""

    offset: int
    message: str


class Layout(Protocol):
    """A storage layout: one frozen object per name, see `layouts.LAYOUTS`.

    Work is cut along `matrix(shape)`: (rows, columns). For two-dimensional layouts these are [N, K]; for
    `contiguous_le_v1` every element is a row of one column, so that a vector can be cut like a matrix.
    """

    @property
    def name(self) -> str: ...

    @property
    def formats(self) -> tuple[str, ...]:
        """Names of the formats it stores."""

    def misfit(self, format: Format, shape: Shape, divisors: int = 1) -> str | None:
        """Why an object of this shape cannot be stored, as a sentence naming the rule; None if it can."""

    def size(self, format: Format, shape: Shape, divisors: int = 1) -> int:
        """Encoded bytes (layouts.md)."""

    def matrix(self, shape: Shape) -> tuple[int, int]:
        """(rows, columns) along which an object of this shape is cut."""

    def row_quantum(self, format: Format) -> int:
        """Rows at whose multiples pieces may begin and end (128 for nvfp4, else 1)."""

    def encode(
        self, format: Format, shape: Shape, first_row: int, words: Words, divisors: int = 1
    ) -> tuple[Segment, ...]:
        """Place rows [first_row, first_row + rows of words).

        Encoding all rows in pieces cut at multiples of `row_quantum` writes every byte of the object exactly
        once, padding included. Raises WordsError for words of another type or shape.
        """

    def decode(
        self, format: Format, shape: Shape, begin: int, end: int, read: Read, divisors: int = 1
    ) -> Words:
        """The logical words of rows [begin, end)."""

    def padding_faults(
        self, format: Format, shape: Shape, begin: int, end: int, read: Read, divisors: int = 1
    ) -> tuple[PaddingFault, ...]:
        """Padding that is not canonical, in and behind rows [begin, end): lanes, groups, bytes between planes."""

    def take_rows(
        self, format: Format, shape: Shape, rows: Sequence[int], read: Read, divisors: int = 1
    ) -> tuple[bytes, Shape, int]:
        """(payload, shape, divisors) of the object that holds `rows` in order, repeats allowed, nothing decoded.

        Raises WordsError where the result could not be stored (nvfp4).
        """
