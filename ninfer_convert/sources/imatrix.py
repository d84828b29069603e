"""Importance matrices of llama-imatrix: what each input channel of a tensor weighs (recipes.md, Importance matrices).

Both formats are read, told apart by content: GGUF with `NAME.in_sum2` and `NAME.counts`, and the older binary file.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.sources import files, sniff
from ninfer_convert.sources.gguf import open_gguf
from ninfer_convert.sources.gguf_metadata import MetadataArray
from ninfer_convert.sources.imatrix_names import entries
from ninfer_convert.sources.labels import counted, label
from ninfer_convert.values import ImportanceEntry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.sources.base import StoredTensor
    from ninfer_convert.values import Runs, Shape

MAX_NAME = 65_535
"""Longest name of an entry in the older format, in bytes."""

MAX_FILE = 4 << 30
"""Longest importance matrix that is read, in bytes: four times what the largest banks of experts known take."""

_SUMS, _COUNTS = ".in_sum2", ".counts"
_I32 = struct.Struct("<i")


@dataclass(frozen=True, eq=False)
class Entry:
    """One tensor's statistics: `sums` [vectors, length] of squared activations, `counts` [vectors] of what was summed.

    The older format does not say how many experts its values are for: there it is always one vector.
    """

    name: str
    sums: NDArray[np.float32]
    counts: NDArray[Any]

    def split(self, length: int) -> Entry:
        """One vector of the older format as those of as many experts as go into it."""
        sums = self.sums.reshape(-1, length)
        return Entry(self.name, sums, self.counts.repeat(len(sums)))

    def vectors(self, begin: int, end: int) -> NDArray[np.float64]:
        """Mean squares of the vectors [begin, end), a fresh array; ones where nothing was counted."""
        import numpy as np

        counts = self.counts[begin:end, None].astype(np.float64)
        means = self.sums[begin:end] / np.where(counts > 0, counts, 1.0)
        return np.where(counts > 0, means, 1.0)


@dataclass(frozen=True, eq=False)
class Importance:
    """What a parameter's input channels weigh: float64 [K], or [E, K] for a bank of experts; `entry` it is from.

    A vector of zeros has been replaced by ones; `warnings` says so.
    """

    values: NDArray[np.float64]
    entry: str
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, eq=False)
class ImportanceMatrix:
    """A file's entries by name, in its order; every number in it is finite and not negative."""

    shown: str
    """The path as the user typed it."""
    source: str
    """Name of the input under [sources], or the path where the recipe gives one."""
    kind: Literal["gguf", "legacy"]
    size: int
    sha256: str
    """Of the whole file, in hexadecimal."""
    entries: Mapping[str, Entry]
    datasets: tuple[str, ...] = ()
    chunks: int | None = None
    """How many chunks of text the statistics are over, where the file says so."""

    def find(self, name: str, shape: Shape, known: ImportanceEntry | None = None) -> Importance | None:
        """The importance of a parameter's input channels, by its own name or llama.cpp's for it; None without one.

        `known` is the entry that an architecture knows for it. Vectors are for matrices [N, K] and banks [E, N, K].
        Raises SourceError where the entry has another length.
        """
        if len(shape) not in (2, 3):
            return None
        for entry in entries(name) if known is None else (ImportanceEntry(name), known):
            if entry.name in self.entries and (entry.expert is None or len(shape) == 2):
                found = self._take(self.entries[entry.name], entry.expert, name, shape)
                return _reordered(found, entry.columns) if entry.columns else found
        return None

    def _take(self, entry: Entry, expert: int | None, name: str, shape: Shape) -> Importance:
        columns = shape[-1]
        of_experts = len(shape) == 3 or expert is not None
        if self.kind == "legacy" and of_experts and entry.sums.size % columns == 0:
            entry = entry.split(columns)
        held, length = entry.sums.shape
        begin, end = (0, shape[0] if len(shape) == 3 else 1) if expert is None else (expert, expert + 1)
        if length != columns or (end > held if expert is not None else end != held):
            raise SourceError(self._misfit(entry, expert, name, shape))
        vectors = entry.vectors(begin, end)
        zero = ~vectors.any(axis=1)
        vectors[zero] = 1.0
        warnings: tuple[Problem, ...] = ()
        if zero.any():
            which = f"{int(zero.sum())} of its {len(vectors)} vectors are" if len(vectors) > 1 else "its vector is"
            message = f"{label(entry.name)}: {which} all zero, so {label(name)} is treated as unweighted there"
            warnings = (Problem("zero-importance", message, path=self.shown, tensor=name),)
        return Importance(vectors if len(shape) == 3 else vectors[0], entry.name, warnings)

    def _misfit(self, entry: Entry, expert: int | None, name: str, shape: Shape) -> Problem:
        held, length = entry.sums.shape
        holds = f"holds {held} vectors of {length} values" if held > 1 else f"holds {length} values"
        if expert is not None:
            needs = f"expert {expert} needs vector {expert} of {shape[-1]} values"
        elif len(shape) == 3:
            needs = f"{list(shape)} needs {shape[0]} vectors of {shape[-1]} values"
        else:
            needs = f"{list(shape)} needs one vector of {shape[-1]} values"
        message = f"{label(entry.name)}: {holds}, but {label(name)} of {needs}; is it a matrix of another model?"
        return Problem("importance-length", message, path=self.shown, tensor=name)


def _reordered(importance: Importance, columns: Runs) -> Importance:
    """The same with the runs `columns` of each vector, one after the other."""
    import numpy as np

    runs = [importance.values[..., begin:end] for begin, end in columns]
    return replace(importance, values=np.concatenate(runs, axis=-1))


def open_imatrix(path: str | os.PathLike[str], source: str = "imatrix") -> ImportanceMatrix:
    """Read an importance matrix whole.

    Raises SourceError where there is no such file, it is of neither format or damaged, or a number in it is NaN,
    infinite or negative, or it changes meanwhile.
    """
    shown = os.fspath(path)
    place = Path(shown)
    found = files.read_with_status(place, shown, MAX_FILE)
    if found is None:
        raise SourceError(Problem("no-such-file", "does not exist: give the file that llama-imatrix wrote", path=shown))
    content, status = found
    sniff.refuse_pointer(content, shown)
    if sniff.is_safetensors(content[:9]):
        message = "is a safetensors file, not an importance matrix: give the file that llama-imatrix wrote"
        raise SourceError(Problem("no-imatrix", message, path=shown))
    facts = {"shown": shown, "source": source, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    matrix = _read_gguf(place, status, facts) if content.startswith(b"GGUF") else _read_legacy(content, facts)
    if problems := [problem for entry in matrix.entries.values() for problem in _bad_numbers(entry, shown)]:
        raise SourceError(problems)
    return matrix


def _bad_numbers(entry: Entry, shown: str) -> Iterable[Problem]:
    import numpy as np

    for what, numbers in (("value", entry.sums), ("count", entry.counts)):
        bad = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
        if len(bad):
            first = numbers.flat[bad[0]]
            message = (
                f"{label(entry.name)}: {counted(len(bad), what)} of {numbers.size} cannot be, the first at index "
                f"{bad[0]}: {first}; importances are finite and not negative, so make the matrix anew"
            )
            yield Problem("bad-importance", message, path=shown, tensor=entry.name)


def _read_gguf(path: Path, status: os.stat_result, facts: Mapping[str, Any]) -> ImportanceMatrix:
    """The values of the file that `facts` were taken of when it had this status."""
    shown = facts["shown"]
    checkpoint = open_gguf(path, shown, facts["source"])
    for file in checkpoint.files:
        if file.path == path:
            files.compare(replace(file, status=status), file.status)
    tensors = checkpoint.tensors
    names = {name.removesuffix(end): None for name in tensors for end in (_SUMS, _COUNTS) if name.endswith(end)}
    if not names:
        message = f"is a GGUF file without importances: no tensor of it is called NAME{_SUMS}, as llama-imatrix does"
        raise SourceError(Problem("no-imatrix", message, path=shown))
    found: dict[str, Entry] = {}
    problems: list[Problem] = []
    for name in names:
        try:
            found[name] = _entry(name, tensors.get(name + _SUMS), tensors.get(name + _COUNTS))
        except _Damage as damage:
            problems.append(Problem("bad-imatrix", f"{label(name)}: {damage}", path=shown, tensor=name))
    for file in checkpoint.files:
        files.refuse_changed(file)
    if problems:
        raise SourceError(problems)
    datasets = checkpoint.metadata.get("imatrix.datasets")
    chunks = checkpoint.metadata.get("imatrix.chunk_count")
    return ImportanceMatrix(
        kind="gguf",
        entries=MappingProxyType(found),
        datasets=tuple(map(str, datasets)) if isinstance(datasets, MetadataArray) else (),
        chunks=chunks if type(chunks) is int else None,
        **facts,
    )


def _entry(name: str, sums: StoredTensor | None, counts: StoredTensor | None) -> Entry:
    if sums is None or counts is None:
        have, lack = (_COUNTS, _SUMS) if sums is None else (_SUMS, _COUNTS)
        raise _Damage(f"there is {have} without {lack}")
    if (sums.stored, counts.stored) != ("F32", "F32"):
        raise _Damage(f"{_SUMS} and {_COUNTS} are stored as {sums.stored} and {counts.stored}, not F32")
    vectors = prod(counts.shape)
    if prod(sums.shape) == 0 or prod(sums.shape[:-1]) != vectors:
        raise _Damage(f"{_SUMS} of shape {list(sums.shape)} does not go with {_COUNTS} of shape {list(counts.shape)}")
    values = sums.values(0, prod(sums.shape)).array
    return Entry(name, values.reshape(vectors, -1), counts.values(0, vectors).array)


def _read_legacy(content: bytes, facts: Mapping[str, Any]) -> ImportanceMatrix:
    import numpy as np

    shown = facts["shown"]
    reader = _Reader(content)
    found: dict[str, Entry] = {}
    try:
        total = reader.integer()
        if not 0 < total <= len(content) // 16:
            raise _Damage(f"it would hold {total} entries")
        for number in range(1, total + 1):
            name = reader.text(f"entry {number}")
            calls, length = reader.integer(), reader.integer()
            if name in found:
                raise _Damage(f"entry {number} is called {label(name)}, as an earlier one is")
            if calls < 0 or length < 1:
                raise _Damage(
                    f"entry {number}, {label(name)}, would have {counted(length, 'value')} of {counted(calls, 'call')}"
                )
            values = np.frombuffer(reader.take(4 * length), "<f4").astype(np.float32)
            found[name] = Entry(name, values[None], np.array([calls], np.int64))
        chunks = reader.integer() if reader.rest else None
        dataset = reader.text("the data set") if reader.rest else None
        if reader.rest:
            raise _Damage(f"{counted(reader.rest, 'byte')} too many")
    except _Damage as damage:
        message = f"is no importance matrix, or a damaged one: it is not GGUF, and read as the older format {damage}"
        raise SourceError(Problem("bad-imatrix", message, path=shown)) from None
    return ImportanceMatrix(
        kind="legacy",
        entries=MappingProxyType(found),
        datasets=() if dataset is None else (dataset,),
        chunks=chunks,
        **facts,
    )


class _Damage(Exception):
    """What is wrong with an entry, or with a file of the older format, as the end of a sentence."""


class _Reader:
    """Reads on through the bytes of a file of the older format."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def rest(self) -> int:
        return len(self._content) - self._at

    def take(self, count: int) -> bytes:
        if count > self.rest:
            raise _Damage(f"it ends after {len(self._content)} bytes, {count - self.rest} too early")
        self._at += count
        return self._content[self._at - count : self._at]

    def integer(self) -> int:
        value: int = _I32.unpack(self.take(4))[0]
        return value

    def text(self, what: str) -> str:
        length = self.integer()
        if not 0 <= length <= MAX_NAME:
            raise _Damage(f"{what} would have a name of {length} bytes")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise _Damage(f"{what} has a name that is not UTF-8") from None
