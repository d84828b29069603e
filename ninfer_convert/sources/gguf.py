"""Opening GGUF checkpoints: one file, or a whole split set from any of its parts (encoded-sources.md 7).

`gguf_header` reads a header, `gguf_extents` places its tensors in the file.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.paths import translated
from ninfer_convert.sources import sniff
from ninfer_convert.sources.base import Checkpoint, SourceFile, StoredTensor, default_name
from ninfer_convert.sources.gguf_extents import place
from ninfer_convert.sources.gguf_header import Header, read_header
from ninfer_convert.sources.gguf_nvfp4 import with_scales
from ninfer_convert.sources.labels import label, some

if TYPE_CHECKING:
    from ninfer_convert.sources.gguf_metadata import Metadata

_PART = re.compile(r"(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf", re.DOTALL)
"""Names of the parts of a split set."""


@dataclass(frozen=True)
class _Part:
    file: SourceFile
    header: Header


def open_gguf(path: Path, shown: str, source: str = "model") -> Checkpoint:
    """Open a GGUF file, or the whole split set that it is a part of.

    `source` is the input's name in origins and provenance. Raises SourceError for a malformed header, for tensors
    whose extents do not fit the file or each other, and for parts that are missing or do not belong together.
    """
    parts = _open_parts(path, shown, source)
    header = parts[0].header
    return Checkpoint(
        kind="gguf",
        shown=shown,
        source=source,
        files=tuple(part.file for part in parts),
        tensors=with_scales(_union(parts)),
        folder=path.parent,
        default_name=default_name(path),
        metadata=header.metadata,
        raw_metadata=header.section,
        notes=tuple(_notes(header.metadata)),
    )


def _open_parts(path: Path, shown: str, source: str) -> list[_Part]:
    """The parts in order; one file that is no part is a set of one."""
    given = _read(path, shown, source)
    total = _integer(given, "split.count", 1)
    if total <= 1:
        return [given]
    number = _integer(given, "split.no", 0) + 1
    name = _PART.fullmatch(path.name)
    if name is None or (int(name["number"]), int(name["total"])) != (number, total):
        message = (
            f"is part {number} of {total} of a split set, but its name does not end in "
            f"-{number:05d}-of-{total:05d}.gguf, so the other parts cannot be found: give it its own name back"
        )
        raise SourceError(Problem("split-name", message, path=shown))
    names = [f"{name['prefix']}-{other:05d}-of-{total:05d}.gguf" for other in range(1, total + 1)]
    missing = [other for other in names if not (path.parent / other).exists()]
    if missing:
        message = f"is part {number} of {total} of a split set, and {some(missing)} is not beside it; download the rest"
        raise SourceError(Problem("missing-part", message, path=shown))
    folder = os.path.dirname(shown)
    parts = [
        given if other == path.name else _read(path.parent / other, os.path.join(folder, other), source)
        for other in names
    ]
    _check_set(parts)
    return parts


def _read(path: Path, shown: str, source: str) -> _Part:
    if sniff.identify(path, shown) != "gguf":
        raise SourceError(Problem("not-gguf", "is no GGUF file", path=shown))
    with translated(shown):
        status = path.stat()
    header = read_header(path, shown)
    digest = hashlib.sha256(header.data).hexdigest()
    return _Part(SourceFile(path, shown, status, digest, header.payload, source), header)


def _integer(part: _Part, key: str, default: int) -> int:
    value = part.header.metadata.get(key, default)
    if type(value) is not int or value < 0:
        message = f"{key} is {label(str(value))}, not a whole number"
        raise SourceError(Problem("bad-value", message, path=part.file.shown))
    return value


def _check_set(parts: Sequence[_Part]) -> None:
    """Every part says that it is the one its name says, and no tensor is missing."""
    problems = []
    for index, part in enumerate(parts):
        number, total = _integer(part, "split.no", 0) + 1, _integer(part, "split.count", 1)
        if (number, total) != (index + 1, len(parts)):
            message = f"says that it is part {number} of {total}, not {index + 1} of {len(parts)}"
            problems.append(Problem("split-mismatch", message, path=part.file.shown))
    found = sum(len(part.header.infos) for part in parts)
    declared = _integer(parts[0], "split.tensors.count", found)
    if declared != found:
        message = f"says that the split set holds {declared} tensors, but its parts hold {found}"
        problems.append(Problem("split-mismatch", message, path=parts[0].file.shown))
    if problems:
        raise SourceError(problems)


def _union(parts: Iterable[_Part]) -> dict[str, StoredTensor]:
    """The tensors of all parts by name, in order of parts and offsets."""
    tensors: dict[str, StoredTensor] = {}
    problems: list[Problem] = []
    for part in parts:
        try:
            placed = place(part.header, part.file)
        except SourceError as error:
            problems += error.problems
            continue
        for tensor in placed:
            first = tensors.setdefault(tensor.name, tensor)
            if first is not tensor:
                message = f"{label(tensor.name)}: is in {label(first.file.path.name)} too"
                problems.append(Problem("duplicate-tensor", message, path=part.file.shown, tensor=tensor.name))
    if problems:
        raise SourceError(problems)
    return tensors


def _notes(metadata: Metadata) -> Iterable[str]:
    if any(key.startswith("prism.hadamard.") for key in metadata):
        yield (
            "its matrices are Hadamard-rotated (prism.hadamard.*): "
            "their words mean the model's weights only together with these keys"
        )
