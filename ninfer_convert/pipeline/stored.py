"""An artifact's parameters, read lazily through their bindings: values, words, by elements or by rows.

A parameter is a whole object or elements of several (container.md 2); what reads it sees neither. Nothing here
changes or judges a word.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ninfer_convert import container
from ninfer_convert.errors import nearest, printable
from ninfer_convert.pipeline.bound import extents, logical_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.container import Artifact, Directory, TensorObject, Use
    from ninfer_convert.values import Shape, Words

PIECE_ELEMENTS = 1 << 18
"""Elements that are decoded together: many enough to make Python's share small, few enough to stay near the core."""


@dataclass(frozen=True)
class Span:
    """Elements [begin, end) of one tensor object in C order."""

    artifact: Artifact
    object: TensorObject
    begin: int
    end: int

    @property
    def format(self) -> str:
        """The format's name, known or not."""
        return self.object.format

    @property
    def elements(self) -> int:
        return self.end - self.begin

    @property
    def columns(self) -> int:
        """Elements of a row of the object's words; 1 of a direct format's.

        Raises ArtifactError where the object's format or layout is not known, as everything that decodes does.
        """
        layout, tensor = self.artifact.resolve(self.object)
        return layout.matrix(tensor.shape)[1]

    @property
    def lead(self) -> int:
        """Elements of its first row that come before the span."""
        return self.begin % self.columns

    def words(self) -> Words:
        """The stored words of every row that the span touches."""
        return self.artifact.words(self.object, self.begin // self.columns, -(-self.end // self.columns))

    def decode(self, words: Words) -> NDArray[Any]:
        """The span's values [elements] out of those words: float32, int32 of an int32 object."""
        _, tensor = self.artifact.resolve(self.object)
        values: NDArray[Any] = tensor.format.decode(words).reshape(-1)
        return values[self.lead : self.lead + self.elements]


@dataclass(frozen=True)
class StoredParameter:
    """A logical parameter as an artifact keeps it; its bytes are read when they are asked for.

    Safe to read from several threads. Reading raises ArtifactError where a part of the artifact is broken or a format
    is not known, SourceError where a file cannot be read.
    """

    name: str
    shape: Shape
    """The logical shape: of a bank or a parameter of several objects as the provenance records it."""
    spans: tuple[Span, ...]
    """The elements of its objects that it is made of, in C order."""

    @property
    def formats(self) -> tuple[str, ...]:
        """Every format it is kept in, in order of first use."""
        return tuple(dict.fromkeys(span.format for span in self.spans))

    @property
    def format(self) -> str:
        """Its format; of a parameter whose regions differ, all of them joined by "+"."""
        return "+".join(self.formats)

    @property
    def elements(self) -> int:
        """Logical elements; 1 of a scalar."""
        return sum(span.elements for span in self.spans)

    @property
    def columns(self) -> int:
        """Elements of the longest row of words that it is decoded by; ArtifactError as of `Span.columns`."""
        return max(span.columns for span in self.spans)

    @property
    def nbytes(self) -> int:
        """Stored bytes: its share of its objects."""
        return sum(span.object.bytes * span.elements // span.object.elements for span in self.spans)

    @property
    def integral(self) -> bool:
        """Whether it is kept as int32."""
        return self.formats == ("int32",)

    @property
    def dtype(self) -> np.dtype[Any]:
        """What its values are: float32; int32 where they are kept as that."""
        return np.dtype(np.int32 if self.integral else np.float32)

    def cut(self, begin: int, end: int) -> Iterator[Span]:
        """The spans of elements [begin, end), in order. Raises IndexError where there are none such."""
        if not 0 <= begin < end <= self.elements:
            raise IndexError(f"{self.name}: elements {begin}:{end} are no part of its {self.elements}")
        first = 0
        for span in self.spans:
            low, high = max(begin - first, 0), min(end - first, span.elements)
            if low < high:
                yield Span(span.artifact, span.object, span.begin + low, span.begin + high)
            first += span.elements

    def values(self, begin: int, end: int) -> NDArray[Any]:
        """Elements [begin, end) in C order, decoded: [end - begin] of `dtype`. Every row they touch is decoded whole.

        Raises IndexError where they are not its own.
        """
        parts = [span.decode(span.words()).astype(self.dtype, copy=False) for span in self.cut(begin, end)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def words_like(self, like: Span, begin: int) -> Words | None:
        """The words of the elements from `begin` on that answer to those of `like`: all rows that they touch.

        None unless they lie in one object, in the span's format, in rows that begin and end where the span's do.
        """
        first, *others = self.cut(begin, begin + like.elements)
        if others or first.format != like.format or (first.columns, first.lead) != (like.columns, like.lead):
            return None
        return first.words()

    def numpy(self, rows: tuple[int, int] | None = None) -> NDArray[Any]:
        """Its values, or those of rows [begin, end) of the first axis, in the logical shape: a new array of `dtype`.

        Raises IndexError where it has no such rows.
        """
        begin, end, shape = self._selected(rows)
        values = np.empty(end - begin, self.dtype)
        step = max(PIECE_ELEMENTS, self.columns)
        for at in range(begin, end, step):
            stop = min(at + step, end)
            values[at - begin : stop - begin] = self.values(at, stop)
        return values.reshape(shape)

    def words(self, rows: tuple[int, int] | None = None) -> Words:
        """The stored words of all rows, or of rows [begin, end) of the first axis; leading axes are folded.

        Raises IndexError where it has no such rows, ValueError where they do not lie in one object as whole rows.
        """
        begin, end, _ = self._selected(rows)
        spans = tuple(self.cut(begin, end))
        if len(spans) > 1:
            formats = ", ".join(f"{span.object.id} ({span.format})" for span in spans)
            raise ValueError(f"{self.name}: lies in {len(spans)} objects, {formats}; ask for rows that lie in one")
        (span,) = spans
        if span.lead or span.end % span.columns:
            raise ValueError(f"{self.name}: does not begin and end with rows of {span.object.id}")
        return span.words()

    def codes(self, rows: tuple[int, int] | None = None) -> NDArray[Any]:
        """The stored codes alone, [rows, K] (`values.Words`); raises as `words` does."""
        return self.words(rows).codes

    def scales(self, rows: tuple[int, int] | None = None) -> NDArray[Any]:
        """The stored scale words alone, [rows, groups] or [rows] (`values.Words`).

        Raises as `words` does, and ValueError for a format that has none beside its codes.
        """
        scales = self.words(rows).scales
        if scales is None:
            raise ValueError(f"{self.name}: {self.format} keeps no scales beside its codes")
        return scales

    def _selected(self, rows: tuple[int, int] | None) -> tuple[int, int, Shape]:
        """The elements [begin, end) of these rows of the first axis, and their shape."""
        if rows is None:
            return 0, self.elements, self.shape
        begin, end = rows
        if not self.shape or not 0 <= begin < end <= self.shape[0]:
            raise IndexError(f"{self.name}: rows {begin}:{end} are no part of {list(self.shape)}")
        inner = prod(self.shape[1:])
        return begin * inner, end * inner, (end - begin, *self.shape[1:])


class OpenArtifact(Mapping[str, StoredParameter]):
    """An open artifact's parameters by name. Made by `open_artifact`; closed by its `with` block."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        """The container below: its directory, its id, its payload."""

    @property
    def directory(self) -> Directory:
        """Everything the artifact says of itself."""
        return self.artifact.directory

    def __getitem__(self, name: str) -> StoredParameter:
        """The parameter called `name`; KeyError with the nearest names where there is none."""
        binding = self.directory.bindings.get(name)
        if binding is None:
            close = [repr(other) for other in nearest(name, self.directory.bindings)]
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise KeyError(f"{printable(self.artifact.path)} holds no parameter {name!r}{hint}")
        bound = tuple(extents(self.directory, binding))
        spans = tuple(Span(self.artifact, *extent) for extent in bound)
        return StoredParameter(name, logical_shape(self.directory, name, bound), spans)

    def auxiliary(self, use: Use, role: str) -> StoredParameter:
        """What the use has in this role, as a parameter called like the role; KeyError where it has nothing."""
        spans = tuple(Span(self.artifact, *extent) for extent in extents(self.directory, use.auxiliaries[role]))
        return StoredParameter(role, (sum(span.elements for span in spans),), spans)

    def __contains__(self, name: object) -> bool:
        return name in self.directory.bindings

    def __iter__(self) -> Iterator[str]:
        return iter(self.directory.bindings)

    def __len__(self) -> int:
        return len(self.directory.bindings)

    def __enter__(self) -> OpenArtifact:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file."""
        self.artifact.close()


def open_artifact(path: str | os.PathLike[str]) -> OpenArtifact:
    """Open the artifact whose entry file is `path`; no payload byte is read.

    Raises ArtifactError with every problem (container.md 3, "open"), SourceError where the file cannot be read.
    """
    return OpenArtifact(container.open_artifact(path))
