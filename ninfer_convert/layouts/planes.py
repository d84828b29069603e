"""The one mechanism behind every layout: an object is a few planes, a plane equal blocks of rows.

A layout says where its planes lie, how words become the planes' bytes and back, and which of those bytes are
padding. Cutting by rows, the zero bytes between planes, row selection and padding checks follow from that here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import Problem, WordsError
from ninfer_convert.layouts.base import PaddingFault, Read, Segment, Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.values import Shape, Words

    Bytes = NDArray[np.uint8]

PLANE_ALIGNMENT = 256


@dataclass(frozen=True)
class Plane:
    """`block_bytes` bytes for every `block_rows` consecutive rows, in row order, from `offset` on."""

    name: str
    offset: int
    rows: int
    block_bytes: int
    block_rows: int = 1

    @property
    def end(self) -> int:
        return self.start(self.rows)

    def start(self, row: int) -> int:
        """Where the first block lies that begins at `row` or behind it."""
        return self.offset + -(-row // self.block_rows) * self.block_bytes

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """(offset, length) of the blocks that hold rows [begin, end)."""
        start = self.offset + begin // self.block_rows * self.block_bytes
        return start, self.start(end) - start


def stack(rows: int, *blocks: tuple[str, int, int]) -> tuple[Plane, ...]:
    """Planes of (name, block bytes, block rows) one after the other, each at a multiple of 256."""
    planes: list[Plane] = []
    offset = 0
    for name, block_bytes, block_rows in blocks:
        planes.append(Plane(name, offset, rows, block_bytes, block_rows))
        offset = -(-planes[-1].end // PLANE_ALIGNMENT) * PLANE_ALIGNMENT
    return tuple(planes)


def gaps(planes: Sequence[Plane]) -> list[tuple[int, int]]:
    """(offset, length) of the zero bytes between planes."""
    return [(a.end, b.offset - a.end) for a, b in pairwise(planes) if b.offset > a.end]


def runs(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """`rows` as maximal half-open runs of consecutive numbers, in order."""
    begin = 0
    for i in range(1, len(rows) + 1):
        if i == len(rows) or rows[i] != rows[i - 1] + 1:
            yield rows[begin], rows[i - 1] + 1
            begin = i


def not_multiple(what: str, number: int, unit: int) -> str | None:
    """The sentence for a number that `unit` must divide; None where it does."""
    if number % unit == 0:
        return None
    return f"{what} must be a multiple of {unit}; {number % unit} are left over"


@dataclass(frozen=True, eq=False)
class PlaneLayout(ABC):
    """A storage layout made of planes; see `layouts.base.Layout` for what its users are promised."""

    name: str
    formats: tuple[str, ...]
    ranks: range = range(2, 3)
    row_quantum: int = 1

    @abstractmethod
    def planes(self, tensor: Tensor) -> tuple[Plane, ...]:
        """Where the planes of a tensor that fits lie, in order."""

    @abstractmethod
    def word_arrays(self, tensor: Tensor, rows: int) -> Mapping[str, tuple[str, Shape]]:
        """(dtype, shape) of each array of `Words` that `rows` rows have."""

    @abstractmethod
    def pack(self, tensor: Tensor, first_row: int, words: Words) -> Iterable[Bytes]:
        """The bytes of each plane for checked, C-ordered words: all blocks that begin in their rows."""

    @abstractmethod
    def unpack(self, tensor: Tensor, begin: int, end: int, parts: Sequence[Bytes]) -> Words:
        """The words of rows [begin, end), from the blocks of each plane that hold them."""

    def geometry(self, tensor: Tensor) -> Iterable[str | None]:
        """Sentences for what does not divide, of a positive shape of a rank that the layout stores."""
        return ()

    def divisor_misfit(self, tensor: Tensor) -> str | None:
        """Why it cannot keep that many weight divisors."""
        return None if tensor.divisors == 1 else f"{self.name} keeps no weight divisors; divisors={tensor.divisors}"

    def row_padding(self, tensor: Tensor) -> Iterable[tuple[Bytes, Bytes]]:
        """For each plane of one-row blocks: which bits of a row are padding, and what they must hold."""
        return ()

    def matrix(self, shape: Shape) -> tuple[int, int]:
        rows, columns = shape
        return rows, columns

    def misfit(self, tensor: Tensor) -> str | None:
        return _misfit(self, tensor)

    def find_misfit(self, tensor: Tensor) -> str | None:
        """What `misfit` says, found anew."""
        if tensor.format.name not in self.formats:
            return f"{self.name} does not store {tensor.format.name}; it stores {', '.join(self.formats)}"
        shape = list(tensor.shape)
        if len(shape) not in self.ranks:
            only = "matrices [N, K]" if len(self.ranks) == 1 else f"ranks {self.ranks[0]} to {self.ranks[-1]}"
            return f"{self.name} stores {only}; the shape {shape} has rank {len(shape)}"
        if any(extent < 1 for extent in shape):
            return f"every dimension must be positive; the shape is {shape}"
        broken = [rule for rule in (*self.geometry(tensor), self.divisor_misfit(tensor)) if rule]
        return "; ".join(broken) or None

    def size(self, tensor: Tensor) -> int:
        return _size(self, tensor)

    def encode(self, tensor: Tensor, first_row: int, words: Words) -> tuple[Segment, ...]:
        import numpy as np

        words = self._checked(tensor, words)
        rows, _ = self.matrix(tensor.shape)
        end = first_row + len(words.codes)
        if not first_row < end <= rows or first_row % self.row_quantum or end % self.row_quantum:
            cut = f"pieces of {self.name} are cut at multiples of {self.row_quantum}"
            raise refused(f"rows [{first_row}, {end}) are no piece of {rows} rows; {cut}")
        planes = self.planes(tensor)
        parts = self.pack(tensor, first_row, words)
        segments = [Segment(plane.start(first_row), part) for plane, part in zip(planes, parts, strict=True)]
        if end == rows:
            segments += [Segment(offset, np.zeros(length, np.uint8)) for offset, length in gaps(planes)]
        return tuple(segment for segment in segments if segment.data.size)

    def decode(self, tensor: Tensor, begin: int, end: int, read: Read) -> Words:
        import numpy as np

        parts = [np.frombuffer(read(*plane.span(begin, end)), np.uint8) for plane in self.planes(tensor)]
        return self.unpack(tensor, begin, end, parts)

    def padding_faults(self, tensor: Tensor, begin: int, end: int, read: Read) -> tuple[PaddingFault, ...]:
        import numpy as np

        planes = self.planes(tensor)
        faults: list[PaddingFault | None] = []
        for plane, (padding, canonical) in zip(planes, self.row_padding(tensor), strict=False):
            if padding.any():
                offset, length = plane.span(begin, end)
                rows = np.frombuffer(read(offset, length), np.uint8).reshape(end - begin, -1)
                faults.append(_fault(f"in the {plane.name} of rows [{begin}, {end})", offset, rows, padding, canonical))
        if end == self.matrix(tensor.shape)[0]:
            for offset, length in gaps(planes):
                stored = np.frombuffer(read(offset, length), np.uint8).reshape(1, -1)
                ones, zeros = np.full(length, 0xFF, np.uint8), np.zeros(length, np.uint8)
                faults.append(_fault("between planes", offset, stored, ones, zeros))
        return tuple(fault for fault in faults if fault)

    def take_rows(self, tensor: Tensor, rows: Sequence[int], read: Read) -> tuple[bytes, Tensor]:
        if not tensor.shape or len(rows) == 0:
            raise refused(f"there is no object of {len(rows)} rows of the shape {list(tensor.shape)}")
        if min(rows) < 0 or max(rows) >= tensor.shape[0]:
            raise IndexError(f"rows {min(rows)} to {max(rows)} of {tensor.shape[0]}")
        taken = replace(tensor, shape=(len(rows), *tensor.shape[1:]), divisors=self.taken_divisors(tensor, rows, read))
        if misfit := self.misfit(taken):
            raise refused(f"the {len(rows)} rows taken make no object of {self.name}: {misfit}")
        planes = self.planes(taken)
        behind = dict(gaps(planes))
        pieces: list[Any] = []
        for plane, content in zip(planes, self.taken_planes(tensor, taken, rows, read), strict=True):
            pieces.extend(content)
            pieces.append(bytes(behind.get(plane.end, 0)))
        return b"".join(pieces), taken

    def taken_divisors(self, tensor: Tensor, rows: Sequence[int], read: Read) -> int:
        """How many weight divisors `rows` need."""
        return 1

    def taken_planes(self, tensor: Tensor, taken: Tensor, rows: Sequence[int], read: Read) -> Iterable[Iterable[Any]]:
        """Each plane's bytes of the object `taken`, in pieces."""
        inner = self.matrix(tensor.shape)[0] // tensor.shape[0]
        return ((read(*plane.span(a * inner, b * inner)) for a, b in runs(rows)) for plane in self.planes(tensor))

    def _checked(self, tensor: Tensor, words: Words) -> Words:
        """`words` in C order, each array of exactly the dtype and shape that the tensor has."""
        import numpy as np

        from ninfer_convert.values import Words

        expected = self.word_arrays(tensor, len(words.codes) if words.codes.ndim else 0)
        checked: dict[str, Any] = {}
        for name in ("codes", "scales", "divisors"):
            array = getattr(words, name)
            wanted = expected.get(name)
            if not _fits(array, wanted):
                found = None if array is None else (str(array.dtype), array.shape)
                what = f"{name} of {tensor.format.name} must be {_described(wanted)}"
                raise refused(f"{what}, not {_described(found)}: layouts never convert")
            checked[name] = None if array is None else np.ascontiguousarray(array)
        return Words(**checked, non_finite=words.non_finite)


# The tensors of a checkpoint have few shapes, and each is asked about several times.


@lru_cache(maxsize=4096)
def _misfit(layout: PlaneLayout, tensor: Tensor) -> str | None:
    return layout.find_misfit(tensor)


@lru_cache(maxsize=4096)
def _size(layout: PlaneLayout, tensor: Tensor) -> int:
    return layout.planes(tensor)[-1].end


def _fault(where: str, offset: int, rows: Bytes, padding: Bytes, canonical: Bytes) -> PaddingFault | None:
    """What is wrong with the bits `padding` of rows [n, row bytes] that begin at `offset`."""
    from ninfer_convert.kernels.packing import differences

    count, first = differences(rows, padding, canonical)
    if count == 0:
        return None
    row, byte = divmod(first, padding.size)
    found, bits = int(rows[row, byte]), int(padding[byte])
    expected = (found & ~bits) | int(canonical[byte]) & bits
    message = f"padding {where}: {count} wrong bytes, the first 0x{found:02X} instead of 0x{expected:02X}"
    return PaddingFault(offset + first, message)


def refused(message: str) -> WordsError:
    return WordsError(Problem("wrong-words", message))


def _fits(array: NDArray[Any] | None, wanted: tuple[str, Shape] | None) -> bool:
    if array is None or wanted is None:
        return array is None and wanted is None
    return array.dtype == wanted[0] and array.shape == wanted[1]


def _described(array: tuple[str, Shape] | None) -> str:
    return "absent" if array is None else f"{array[0]} {list(array[1])}"
