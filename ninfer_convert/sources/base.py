"""What every checkpoint is once it is opened: files, tensors by name, and the folder they lie in.

Opening reads headers only. Nothing here parses a format (`safetensors`, `gguf`) or finds files (`folder`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.sources import files, sniff
from ninfer_convert.sources.labels import label
from ninfer_convert.values import Encoding, Origin, Shape, Values, Words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class SourceFile:
    """One file of a checkpoint, its header read and checked.

    Compared by identity: two openings of one path are two files, each with a descriptor of its own.
    """

    path: Path
    shown: str
    """The path as the user typed it (for a file found in a folder: the folder as typed, then its name)."""
    status: os.stat_result
    """Of the file, taken before its header was read."""
    header_sha256: str
    """Hexadecimal SHA-256 of the header, from the file's first byte; padding behind it is no part of it."""
    payload: int = 0
    """Absolute offset that the header's own tensor offsets count from."""
    source: str = "model"
    """Name of the input it belongs to: "model" for the main one, else the name under [sources]."""

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.status.st_size

    def read(self, offset: int, count: int) -> NDArray[np.uint8]:
        """Bytes [offset, offset + count) as a fresh uint8 array [count]; safe on several threads.

        Raises SourceError where the file cannot be read, has become shorter or is another one.
        """
        return files.read(self, offset, count)


@dataclass(frozen=True, eq=False, slots=True)
class StoredTensor:
    """A tensor that lies in one file as plain words: a `Source` of a stored type without blocks."""

    name: str
    stored: str
    shape: Shape
    file: SourceFile
    offset: int
    """Absolute offset of its first byte in the file."""
    nbytes: int

    @property
    def relative_offset(self) -> int:
        """Its offset as the header gives it, from the payload's first byte."""
        return self.offset - self.file.payload

    @property
    def origins(self) -> tuple[Origin, ...]:
        return (Origin(self.file.source, self.file.shown, self.name, self.stored),)

    @property
    def identical(self) -> str | None:
        return stored_type(self.stored).identical

    @property
    def exact(self) -> tuple[str, ...]:
        return ()

    @property
    def encoding(self) -> Encoding | None:
        return None

    @property
    def companions(self) -> tuple[str, ...]:
        """Names of tensors that are read with this one and are no weights themselves."""
        return ()

    def read(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Bytes [begin, end) of the tensor as a fresh uint8 array; IndexError where they are not its own."""
        if not 0 <= begin <= end <= self.nbytes:
            raise IndexError(f"{self.name}: bytes {begin}:{end} are no part of its {self.nbytes}")
        return self.file.read(self.offset + begin, end - begin)

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order, their words untouched.

        Raises SourceError for a stored type whose words are no values of their own (F8, F4, C64, ...).
        """
        kind = stored_type(self.stored)
        if kind.numpy is None:
            raise SourceError(
                Problem(
                    "opaque-type",
                    f"{label(self.name)}: words of {kind.described} cannot be read as values",
                    path=self.file.shown,
                    tensor=self.name,
                )
            )
        size = kind.block_bytes
        return Values(self.read(begin * size, end * size).view(kind.numpy), self.stored)

    def words(self, format: str, begin: int, end: int) -> Words:
        """Never: plain words are the words of no format until a method has converted them (`exact` is empty)."""
        raise SourceError(
            Problem(
                "not-encoded",
                f"{label(self.name)}: is stored as plain {self.stored}; it holds no words of {format}",
                path=self.file.shown,
                tensor=self.name,
            )
        )


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """An input, opened: every tensor that can be read, no data read yet."""

    kind: Literal["safetensors", "gguf"]
    shown: str
    """The path as the user typed it."""
    source: str
    """Name of the input: "model" for the main one."""
    files: tuple[SourceFile, ...]
    tensors: Mapping[str, StoredTensor]
    """By name, in file order: the files in order, in each by offset."""
    folder: Path
    """Where `config.json` and the resources lie: the folder itself, or the one that holds the file; not resolved."""
    default_name: str
    """The output's name without `.ninfer` (cli.md)."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """safetensors: `__metadata__` of all files, the first file's value where they differ. GGUF: the key values."""
    raw_metadata: bytes = b""
    """GGUF: what an artifact keeps as `gguf_metadata`: the first file from its counts to its last tensor info."""
    notes: tuple[str, ...] = ()
    """Warnings of one line each: stray files that were ignored, tensors passed by."""
    others: set[Path] = field(default_factory=set)
    """Files without tensors that were read for it so far: its index, and what `beside` has given."""

    @property
    def read(self) -> tuple[Path, ...]:
        """Every file that was read for it so far."""
        return (*(file.path for file in self.files), *self.others)

    def beside(self, name: str) -> bytes | None:
        """The whole content of the file `name` in the checkpoint's folder; None where there is none.

        Raises SourceError where it exists and cannot be read, or is only a Git LFS pointer.
        """
        content = files.read_whole(self.folder / name, self.shown_beside(name))
        if content is not None:
            self.others.add(self.folder / name)
            sniff.refuse_pointer(content, self.shown_beside(name))
        return content

    def shown_beside(self, name: str) -> str:
        """How messages call the file `name` in the checkpoint's folder: with the path as the user typed it."""
        return str(self.folder / name)


_SUFFIXES = (".safetensors.index.json", ".safetensors", ".gguf")
_SHARD_NUMBER = re.compile(r"-\d{5}-of-\d{5}$")


def default_name(path: Path) -> str:
    """The output's name for the input `path` (cli.md, OUT).

    A folder's own resolved name, for a snapshot of a Hugging Face cache the model's; a file's name without its
    suffix and shard number.
    """
    if path.is_dir():
        folder = path.resolve()
        if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
            return folder.parent.parent.name.split("--")[-1]
        return folder.name or "model"
    name = path.name
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            name = name[: -len(suffix)]
            break
    return _SHARD_NUMBER.sub("", name) or path.name
