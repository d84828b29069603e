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

Read = Callable[[int, int], memoryview]
"""`read(offset, length)`: bytes of one object, offset counted from its start."""


@dataclass(frozen=True)
class Tensor:
    """What a tensor object holds: a format, a logical shape, and nvfp4's count of weight divisors."""

    format: Format
    shape: Shape
    divisors: int = 1


@dataclass(frozen=True)
class Segment:
    """Bytes to write at `offset` from the object's start; `data` is a one-dimensional uint8 array."""

    offset: int
    data: NDArray[Any]


@dataclass(frozen=True)
class PaddingFault:
    """Padding that is not canonical: where in the object, and what was found."""

    offset: int
    message: str


class Layout(Protocol):
    """A storage layout: one frozen object per name, see `layouts.LAYOUTS`.

    Work is cut along `matrix(shape)`: (rows, columns). For two-dimensional layouts these are [N, K]; for
    `contiguous_le_v1` every element is a row of one column, so that a vector is cut like a matrix.
    """

    @property
    def name(self) -> str: ...

    @property
    def formats(self) -> tuple[str, ...]:
        """Names of the formats it stores."""

    def misfit(self, tensor: Tensor) -> str | None:
        """Why it cannot store this, as a sentence naming the rule (pairing, rank, geometry); None if it can."""

    def size(self, tensor: Tensor) -> int:
        """Encoded bytes of a tensor that fits (layouts.md)."""

    def matrix(self, shape: Shape) -> tuple[int, int]:
        """(rows, columns) along which a tensor of this shape is cut."""

    @property
    def row_quantum(self) -> int:
        """Rows at whose multiples pieces begin and end (128 for nvfp4's layout, else 1)."""

    def encode(self, tensor: Tensor, first_row: int, words: Words) -> tuple[Segment, ...]:
        """Place rows [first_row, first_row + rows of `words`).

        Encoding all rows in pieces cut at multiples of `row_quantum` writes every byte of the object exactly
        once, padding included. Raises WordsError for words of another type or shape.
        """

    def decode(self, tensor: Tensor, begin: int, end: int, read: Read) -> Words:
        """The logical words of rows [begin, end); their arrays may look into the memory that `read` returned."""

    def padding_faults(self, tensor: Tensor, begin: int, end: int, read: Read) -> tuple[PaddingFault, ...]:
        """Padding in rows [begin, end) that is not canonical: lanes, groups, and the bytes behind a plane
        when `end` is the last row."""

    def take_rows(self, tensor: Tensor, rows: Sequence[int], read: Read) -> tuple[bytes, Tensor]:
        """The object that holds `rows` of the first axis in order, repeats allowed: its payload and what it holds.

        No word is decoded. An nvfp4 row keeps its own divisor; the result has the fewest that equal shares of rows
        allow. Raises WordsError where the result could not be stored, IndexError for a row that is not there.
        """
