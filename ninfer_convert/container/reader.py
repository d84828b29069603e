"""Opening an artifact and reading its payload (container.md 3).

Opening checks everything but the payload: framing, the directory, the entry's size. A part is checked when it is
first read. What the words of an object mean is asked of its layout and format.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ninfer_convert.container.directory import read_directory
from ninfer_convert.container.files import FilePlan
from ninfer_convert.container.framing import (
    ENTRY_MAGIC,
    HEADER,
    MAX_DIRECTORY,
    PART_MAGIC,
    PAYLOAD_ALIGNMENT,
    derive_id,
    entry_start,
)
from ninfer_convert.container.positioned import BINARY, FilePool, read_at
from ninfer_convert.errors import ArtifactError, Problem, printable, unknown
from ninfer_convert.formats import FORMATS
from ninfer_convert.layouts import LAYOUTS, Layout, Tensor
from ninfer_convert.paths import regular_file, translated

if TYPE_CHECKING:
    from ninfer_convert.container.records import Directory, File, Object, TensorObject
    from ninfer_convert.layouts import Read
    from ninfer_convert.values import Words


class Artifact:
    """An open artifact. Made by `open_artifact`; safe to read from several threads; closed by its `with` block."""

    def __init__(self, path: str, artifact_id: bytes, files: FilePlan) -> None:
        self.path = path
        """The entry as the user typed it."""
        self.files = files
        self._id = artifact_id
        self._folders = _folders(path)
        self._pool = FilePool(self._open_file)

    @property
    def directory(self) -> Directory:
        """What it says of itself."""
        return self.files.directory

    @property
    def artifact_id(self) -> str:
        """The id of its header, 32 hex digits."""
        return self._id.hex()

    def derived_id(self) -> str:
        """The id that its directory gives, 32 hex digits (container.md 4); equal to `artifact_id` in ours."""
        with self._pool.borrow(0) as descriptor, translated(self.path):
            data = read_at(descriptor, self.files.json_bytes, HEADER.size)
        return derive_id([data]).hex()

    def __enter__(self) -> Artifact:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file."""
        self._pool.close()

    def read(self, offset: int, length: int) -> bytes:
        """Bytes [offset, offset + length) of the logical payload, all of them.

        Raises ValueError where they are not inside the payload, ArtifactError where a part is missing or not what
        it must be, SourceError where a file cannot be read.
        """
        pieces = [self._read_file(*extent) for extent in self.files.extents(offset, length)]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def object_reader(self, object: Object) -> Read:
        """`read(offset, length)` over the bytes of one object, as layouts take it."""

        def read(offset: int, length: int) -> memoryview:
            if not 0 <= offset <= offset + length <= object.bytes:
                raise ValueError(f"[{offset}, {offset + length}) is not inside the {object.bytes} bytes of {object.id}")
            return memoryview(self.read(object.offset + offset, length))

        return read

    def resolve(self, object: TensorObject) -> tuple[Layout, Tensor]:
        """The layout of `object`, and what it holds; ArtifactError where its layout or format is not known."""
        format, layout = FORMATS.get(object.format), LAYOUTS.get(object.layout)
        if format is None:
            raise self._unknown(object, "format", object.format, tuple(FORMATS))
        if layout is None:
            raise self._unknown(object, "layout", object.layout, tuple(LAYOUTS))
        return layout, Tensor(format, object.shape, object.divisors)

    def knows(self, object: TensorObject) -> bool:
        """Whether `object` can be decoded: whether its format and layout are known."""
        return object.format in FORMATS and object.layout in LAYOUTS

    def words(self, object: TensorObject, begin: int, end: int) -> Words:
        """The stored words of rows [begin, end) of `object`; raises as `resolve` and `read` do."""
        layout, tensor = self.resolve(object)
        return layout.decode(tensor, begin, end, self.object_reader(object))

    def broken_parts(self) -> dict[int, tuple[Problem, ...]]:
        """What is wrong with each part that is missing or not what the entry says, by its index in the files table."""
        broken: dict[int, tuple[Problem, ...]] = {}
        for index in range(1, len(self.files.files)):
            try:
                with self._pool.borrow(index):
                    pass
            except ArtifactError as error:
                broken[index] = error.problems
        return broken

    def _unknown(self, object: TensorObject, kind: str, name: str, known: tuple[str, ...]) -> ArtifactError:
        message = f"{printable(object.id)}: cannot be decoded: {unknown(kind, name, known)}"
        return ArtifactError(Problem(f"unknown-{kind}", message, self.path, object.id))

    def _read_file(self, index: int, offset: int, length: int) -> bytes:
        shown = self._shown(index)
        with self._pool.borrow(index) as descriptor, translated(shown):
            data = read_at(descriptor, length, offset)
        if len(data) != length:
            message = f"ends at byte {offset + len(data)}; it was longer when it was opened"
            raise ArtifactError(Problem("changed", message, shown))
        return data

    def _shown(self, index: int) -> str:
        name = self.files.files[index].path
        return self.path if name is None else os.path.join(os.path.dirname(self.path), name)

    def _open_file(self, index: int) -> int:
        """The descriptor of a file that is what the entry says of it."""
        shown = self._shown(index)
        name = self.files.files[index].path or os.path.basename(self.path)
        for folder in self._folders:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                break
        else:
            raise ArtifactError(Problem("part-missing", "this part of the artifact is missing", shown))
        descriptor = open_file(path, shown)
        try:
            with translated(shown):
                problems = tuple(self._file_problems(index, descriptor))
            if problems:
                raise ArtifactError(Problem(code, message, shown) for code, message in problems)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _file_problems(self, index: int, descriptor: int) -> Iterator[tuple[str, str]]:
        size, expected = os.fstat(descriptor).st_size, self.files.file_bytes[index]
        head = read_at(descriptor, PAYLOAD_ALIGNMENT if index else HEADER.size, 0)
        if index == 0:
            if size != expected or head != HEADER.pack(ENTRY_MAGIC, self.files.json_bytes, self._id):
                yield "changed", "was replaced since it was opened"
            return
        if size != expected:
            yield "part-size", f"is {size} bytes long; expected {expected}"
        if len(head) < HEADER.size:
            return
        magic, number, id = HEADER.unpack_from(head)
        if magic != PART_MAGIC:
            yield "part-magic", f"begins with {magic.hex(' ')}; a part begins with {PART_MAGIC.hex(' ')}"
            return
        if number != index:
            yield "part-index", f"is part {number}; expected part {index}"
        if id != self._id:
            yield "part-id", f"belongs to the artifact {id.hex()}; the entry is {self._id.hex()}"
        if any(head[HEADER.size :]):
            yield "part-header", "holds bytes other than zero between its header and its payload"


def open_artifact(path: str | os.PathLike[str]) -> Artifact:
    """Open the artifact whose entry file is `path`; no payload byte is read.

    Raises ArtifactError with every problem (container.md 3, "open"), SourceError where the file cannot be read.
    """
    shown = os.fspath(path)
    descriptor = open_file(shown, shown)
    try:
        with translated(shown):
            id, plan = read_entry(descriptor, shown)
    finally:
        os.close(descriptor)
    return Artifact(shown, id, plan)


def read_entry(descriptor: int, path: str) -> tuple[bytes, FilePlan]:
    """The artifact_id and the files of the entry open at `descriptor`, which is called `path`.

    Raises ArtifactError with every problem.
    """
    size = os.fstat(descriptor).st_size
    json_bytes, id = _header(read_at(descriptor, HEADER.size, 0), size, path)
    start = entry_start(json_bytes)
    reading = read_directory(read_at(descriptor, json_bytes, HEADER.size), path)
    problems = list(reading.problems)
    end = HEADER.size + json_bytes
    if any(read_at(descriptor, start - end, end)):
        message = f"holds bytes other than zero between its directory, which ends at {end}, and its payload at {start}"
        problems.append(Problem("gap", message, path))
    if reading.files is not None:
        problems.extend(_size_problem(size, start, reading.files[0], path))
    if reading.directory is None or problems:
        raise ArtifactError(problems)
    return id, FilePlan(reading.directory, json_bytes)


def open_file(path: str, shown: str) -> int:
    """The descriptor of the regular file `path`; SourceError naming `shown` where there is none."""
    regular_file(path, shown, "a .ninfer file")
    with translated(shown):
        return os.open(path, os.O_RDONLY | BINARY)


def _header(head: bytes, size: int, path: str) -> tuple[int, bytes]:
    """`json_bytes` and the id of an entry header."""
    fault = None
    if not size:
        fault = "not-an-artifact", "is empty; a .ninfer artifact begins with a header of 32 bytes"
    elif head[:8] == PART_MAGIC:
        fault = "part", "is a part of a .ninfer artifact; open its entry, the file without .part-NNNN in its name"
    elif head[:7] == ENTRY_MAGIC[:7] and head[7:8] not in (b"", ENTRY_MAGIC[7:]):
        fault = "version", f"is a .ninfer artifact of version {head[7]}; only version {ENTRY_MAGIC[7]} is known"
    elif head[:8] != ENTRY_MAGIC[: len(head)]:
        fault = "not-an-artifact", f"is no .ninfer artifact: it begins with {head[:8].hex(' ')}"
    elif len(head) < HEADER.size:
        fault = "truncated", f"is {size} bytes long, shorter than the header of {HEADER.size}; it was cut off"
    if fault is None:
        _, json_bytes, id = HEADER.unpack(head)
        if 0 < json_bytes <= min(size - HEADER.size, MAX_DIRECTORY):
            return json_bytes, id
        most = f"the file has {size}, and at most {MAX_DIRECTORY} are read"
        fault = "json-bytes", f"its header says that the directory takes {json_bytes} bytes; {most}"
    code, message = fault
    raise ArtifactError(Problem(code, message, path))


def _size_problem(size: int, start: int, entry: File, path: str) -> Iterator[Problem]:
    expected = start + entry.payload_bytes
    if size < expected:
        yield Problem("truncated", f"is {size} bytes long; expected {expected}: it was cut off", path)
    elif size > expected:
        more = f"{size - expected} byte{'s' if size - expected > 1 else ''}"
        yield Problem("trailing", f"has {more} behind its payload, which ends at {expected}", path)


def _folders(path: str) -> tuple[str, ...]:
    """Where the files of an artifact may lie: beside the entry as opened, then beside what it links to."""
    beside = os.path.dirname(path)
    return (beside, os.path.dirname(os.path.realpath(path))) if os.path.islink(path) else (beside,)
