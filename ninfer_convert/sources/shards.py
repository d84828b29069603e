"""One safetensors file or several of one model, read into a checkpoint; which files those are decides the caller."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ninfer_convert.errors import Problem, SourceError, printable
from ninfer_convert.sources import sniff
from ninfer_convert.sources.base import Checkpoint, StoredTensor, default_name
from ninfer_convert.sources.safetensors import Header, read_header

SHARD = re.compile(r"(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<total>\d{5})\.safetensors", re.DOTALL)
"""Names of the files of a numbered set."""


def open_file(path: Path, shown: str, source: str) -> Checkpoint:
    """The checkpoint in one safetensors file; raises SourceError for one shard of a set."""
    shard = SHARD.fullmatch(path.name)
    if shard and int(shard["total"]) > 1:
        folder = printable(os.path.dirname(shown) or ".")
        message = (
            f"is shard {int(shard['number'])} of {int(shard['total'])}: "
            f"give the folder ({folder}), so that the whole model is read"
        )
        raise SourceError(Problem("single-shard", message, path=shown))
    header = read_header(path, shown, source)
    return assemble(path, shown, source, [header], header.tensors)


def read_headers(folder: Path, shown: str, names: Iterable[str], source: str) -> dict[str, Header]:
    """The headers of the files `names` in a folder, by name.

    Raises SourceError with every problem of every file: where some are no safetensors files at all (Git LFS pointers,
    web pages), those alone; nothing else is read then.
    """
    files = {name: (folder / name, os.path.join(shown, name)) for name in names}
    problems: list[Problem] = []
    for path, typed in files.values():
        try:
            kind = sniff.identify(path, typed)
        except SourceError as error:
            problems += error.problems
        else:
            if kind != "safetensors":
                message = f"is {kind.upper()}, where a safetensors file was expected: download it again"
                problems.append(Problem("not-safetensors", message, path=typed))
    if problems:
        raise SourceError(problems)
    headers = {}
    for name, (path, typed) in files.items():
        try:
            headers[name] = read_header(path, typed, source)
        except SourceError as error:
            problems += error.problems
    if problems:
        raise SourceError(problems)
    return headers


def assemble(
    path: Path,
    shown: str,
    source: str,
    headers: Sequence[Header],
    tensors: Mapping[str, StoredTensor],
    notes: tuple[str, ...] = (),
) -> Checkpoint:
    """The checkpoint at `path` (a file, an index, a folder) with `tensors` of `headers`."""
    metadata: dict[str, str] = {}
    for header in headers:
        metadata = {**header.metadata, **metadata}
    return Checkpoint(
        kind="safetensors",
        shown=shown,
        source=source,
        files=tuple(header.file for header in headers),
        tensors=tensors,
        folder=path if path.is_dir() else path.parent,
        default_name=default_name(path),
        metadata=metadata,
        notes=notes,
    )
