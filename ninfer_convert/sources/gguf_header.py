"""The GGUF format's header: counts, key values, tensor infos. Nothing in it is believed before it is checked.

What the tensors mean, and whether their data fits the file, is `gguf`'s.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.paths import translated
from ninfer_convert.sources.gguf_metadata import NAMES, UINT32, Metadata, MetadataFault, skip
from ninfer_convert.sources.labels import label

if TYPE_CHECKING:
    from ninfer_convert.values import Shape

MAGIC = b"GGUF"
VERSION = 3
"""The newest version of the format."""

MAX_HEADER = 256 << 20
"""Longest header that is read, in bytes."""

MAX_NAME = 65_535
"""Longest key, and longest name of a tensor, in bytes."""

MAX_DIMENSIONS = 4

_READ_FIRST = 1 << 20
_COUNTS = 8
"""Offset of the two counts, behind magic and version."""
_SMALLEST_KEY, _SMALLEST_TENSOR = 13, 24
"""Fewest bytes that a key value and a tensor info take."""

_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_TYPE_AND_OFFSET = struct.Struct("<IQ")


@dataclass(frozen=True)
class TensorInfo:
    """One tensor as the header describes it; `offset` counts from the payload, `shape` is slowest axis first."""

    name: str
    shape: Shape
    ggml: int
    offset: int


@dataclass(frozen=True)
class Header:
    """One file's header: well formed, its tensors not yet looked at."""

    size: int
    """Of the file, in bytes."""
    metadata: Metadata
    infos: tuple[TensorInfo, ...]
    data: bytes
    """Every byte of the header, from the file's first to the end of the last tensor info."""
    alignment: int

    @property
    def payload(self) -> int:
        """Absolute offset that the tensors' offsets count from."""
        return -(-len(self.data) // self.alignment) * self.alignment

    @property
    def section(self) -> bytes:
        """What an artifact keeps: the bytes from the two counts on (recipes.md, The generic architecture)."""
        return self.data[_COUNTS:]


class _Fault(Exception):
    def __init__(self, code: str, message: str) -> None:
        self.problem = (code, message)


def read_header(path: Path, shown: str) -> Header:
    """Read and check the header of a file that begins with GGUF's magic.

    Raises SourceError for another version or byte order, a header that the file cuts off or that is longer than
    MAX_HEADER, counts that cannot be, names that are too long, no UTF-8 or there twice, values of unknown types, more
    than four dimensions, an alignment that is no power of two.
    """
    with translated(shown), path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        data = stream.read(_READ_FIRST)
        # A header does not say how long it is: it is read anew with four times as much until it is all there.
        while True:
            try:
                return _parse(data, size)
            except _Fault as fault:
                code, message = fault.problem
                raise SourceError(Problem(code, message, path=shown)) from None
            except (struct.error, OverflowError):
                rest = stream.read(min(3 * len(data), MAX_HEADER - len(data)))
            if not rest:
                raise SourceError(_incomplete(len(data), size, shown))
            data += rest


def parse_section(section: bytes, shown: str) -> Header:
    """The header of which `section` was kept (`Header.section`); errors call it `shown`.

    Raises SourceError as `read_header` does.
    """
    data = MAGIC + _U32.pack(VERSION) + section
    try:
        return _parse(data, len(data))
    except _Fault as fault:
        code, message = fault.problem
    except (struct.error, OverflowError):
        code, message = "truncated", "is cut off"
    raise SourceError(Problem(code, message, path=shown))


def _incomplete(length: int, size: int, shown: str) -> Problem:
    if length < size:
        message = f"its header is over the limit of {MAX_HEADER} bytes (of a file of {size})"
        return Problem("header-too-long", message, path=shown)
    message = f"is {size} bytes long, and its header alone is longer: truncated or damaged; download it again"
    return Problem("truncated", message, path=shown)


def _parse(data: bytes, size: int) -> Header:
    """Raises struct.error or OverflowError where `data` is too short to tell."""
    _check_version(*_U32.unpack_from(data, 4))
    tensor_count, key_count = struct.unpack_from("<2Q", data, _COUNTS)
    for count, smallest, what in ((tensor_count, _SMALLEST_TENSOR, "tensors"), (key_count, _SMALLEST_KEY, "keys")):
        if count * smallest > size:
            raise _Fault("bad-header", f"says that it holds {count} {what}, which a file of {size} bytes cannot")
    entries, at = _key_values(data, size, key_count)
    infos, at = _tensor_infos(data, at, tensor_count)
    data = data[:at]
    metadata = Metadata(data, entries)
    return Header(size, metadata, infos, data, _alignment(metadata))


def _check_version(version: int) -> None:
    if version and not version & 0xFFFF:
        message = "is a big-endian GGUF file, which cannot be read: take the little-endian file of the model"
        raise _Fault("big-endian", message)
    if version == 1:
        message = "is a GGUF file of version 1, which no current tool writes: convert it to version 3 with llama.cpp"
        raise _Fault("gguf-version", message)
    if version not in (2, 3):
        raise _Fault("gguf-version", f"is a GGUF file of version {version}; versions 2 and 3 can be read")


def _key_values(data: bytes, size: int, count: int) -> tuple[dict[str, tuple[int, int]], int]:
    """key -> (type, offset of the value), and where the last value ends."""
    entries: dict[str, tuple[int, int]] = {}
    at = _COUNTS + 16
    for number in range(1, count + 1):
        key, at = _name(data, at, f"key {number}")
        (kind,) = _U32.unpack_from(data, at)
        if key in entries:
            raise _Fault("duplicate-key", f"has the key {label(key)} twice; the second is key {number}")
        entries[key] = (kind, at + 4)
        try:
            at = skip(data, kind, at + 4)
        except MetadataFault as fault:
            raise _Fault("bad-value", f"the value of {label(key)} {fault}") from None
        if at > size:
            message = f"is {size} bytes long, but the value of {label(key)} ends at byte {at}: truncated or damaged"
            raise _Fault("truncated", message)
    return entries, at


def _tensor_infos(data: bytes, at: int, count: int) -> tuple[tuple[TensorInfo, ...], int]:
    """The tensor infos, and where the last one ends."""
    infos = []
    numbers: dict[str, int] = {}
    for number in range(1, count + 1):
        name, at = _name(data, at, f"tensor {number}")
        (dimensions,) = _U32.unpack_from(data, at)
        if dimensions > MAX_DIMENSIONS:
            message = f"{label(name)}: has {dimensions} dimensions, more than the {MAX_DIMENSIONS} that GGUF allows"
            raise _Fault("bad-shape", message)
        if numbers.setdefault(name, number) != number:
            message = f"{label(name)}: is there twice, as tensor {numbers[name]} and as tensor {number}"
            raise _Fault("duplicate-tensor", message)
        sizes = struct.unpack_from(f"<{dimensions}Q", data, at + 4)
        at += 4 + 8 * dimensions
        ggml, offset = _TYPE_AND_OFFSET.unpack_from(data, at)
        at += _TYPE_AND_OFFSET.size
        infos.append(TensorInfo(name, sizes[::-1], ggml, offset))
    if at > len(data):
        raise struct.error
    return tuple(infos), at


def _name(data: bytes, at: int, what: str) -> tuple[str, int]:
    """A key or tensor name, and where it ends."""
    (length,) = _U64.unpack_from(data, at)
    if length > MAX_NAME:
        raise _Fault("name-too-long", f"{what} has a name of {length} bytes, over the limit of {MAX_NAME}")
    end = at + 8 + length
    if end > len(data):
        raise struct.error
    try:
        return data[at + 8 : end].decode(), end
    except UnicodeDecodeError:
        raise _Fault("bad-name", f"{what} has a name that is not UTF-8: {label(repr(data[at + 8 : end]))}") from None


def _alignment(metadata: Metadata) -> int:
    key = "general.alignment"
    if key not in metadata:
        return 32
    value, kind = metadata[key], metadata.type(key)
    if kind == NAMES[UINT32] and isinstance(value, int) and value & -value == value > 0:
        return value
    raise _Fault("bad-alignment", f"{key} is {label(str(value))} ({kind}), not a power of two of type {NAMES[UINT32]}")
