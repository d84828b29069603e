"""The JSON directory: its text into records with every fault told, and records into the text (container.md 2, 4)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from ninfer_convert import strict_json
from ninfer_convert.container.problems import Problems, shown
from ninfer_convert.container.records import (
    Binding,
    Component,
    Directory,
    File,
    Object,
    Proposal,
    TensorObject,
    Use,
)
from ninfer_convert.container.rules import check
from ninfer_convert.container.structure import Structure, are_sound
from ninfer_convert.errors import ArtifactError, Problem
from ninfer_convert.layouts import RESOURCE_ENCODING

if TYPE_CHECKING:
    from ninfer_convert.container.structure import Draft

DIGEST_PLACEHOLDER = "0" * 64
"""Stands in a planned directory for a SHA-256 that is known only once the payload is written: of the same width."""


BATCH = 500
"""Records that are made JSON at a time."""
PART = 1 << 20
"""Characters of JSON, about, that are written at a time."""

OPEN = frozenset({"components", "metadata", "provenance"})
"""The members that hold JSON of others' making."""


@dataclass(frozen=True)
class Reading:
    """What the text of a directory gave: the directory where nothing is wrong, the files table where that is sound."""

    directory: Directory | None
    files: tuple[File, ...] | None
    problems: tuple[Problem, ...]


def parse_directory(data: bytes, path: str) -> Directory:
    """The directory that `data`, the JSON of the entry file `path`, spells.

    Raises ArtifactError with every problem, in directory order (container.md 3, "open").
    """
    reading = read_directory(data, path)
    if reading.directory is None:
        raise ArtifactError(reading.problems)
    return reading.directory


def read_directory(data: bytes, path: str) -> Reading:
    """As `parse_directory`, with the problems as data."""
    try:
        root = strict_json.parse(data)
    except strict_json.JsonFault as fault:
        return Reading(None, None, (_no_json(fault, path),))
    if not isinstance(root, dict):
        return Reading(None, None, (Problem("type", f"the directory is {shown(root)}; expected an object", path),))
    return _read(root, path)


def refuse_unreadable(directory: Directory, path: str) -> None:
    """Raise the ArtifactError that `parse_directory` would raise for the JSON of `directory`."""
    if not _is_readable(directory, os.path.basename(path)):
        parse_directory(serialize(directory), path)


def _is_readable(directory: Directory, entry_name: str) -> bool:
    """Whether a reader takes it, without making its many objects and bindings JSON; False where that has to show."""
    if not are_sound(directory.objects, directory.bindings):
        return False
    root = members(replace(directory, objects=directory.objects[:1], bindings={}))
    try:
        strict_json.check({name: value for name, value in root.items() if name in OPEN})
    except strict_json.JsonFault:
        return False
    problems = Problems()
    draft = Structure(problems).draft(root)
    check(replace(draft, objects=[*directory.objects], bindings={**directory.bindings}), entry_name, problems)
    return not problems


def _read(root: dict[str, Any], path: str) -> Reading:
    problems = Problems()
    with strict_json.collector_paused():
        draft = Structure(problems).draft(root)
        check(draft, os.path.basename(path), problems)
    files = tuple(file for file in draft.files or () if file is not None)
    sound = bool(files) and len(files) == len(draft.files or ())
    directory = None if problems else _complete(draft)
    return Reading(directory, files if sound else None, problems.in_order(root, path))


def _no_json(fault: strict_json.JsonFault, path: str) -> Problem:
    return Problem("json", f"the directory {fault}", path)


def _complete(draft: Draft) -> Directory:
    """The directory of a draft without a fault, in which nothing is None."""
    return Directory(
        components={name: component for name, component in (draft.components or {}).items() if component is not None},
        objects=tuple(object for object in draft.objects or () if object is not None),
        bindings={name: binding for name, binding in (draft.bindings or {}).items() if binding is not None},
        uses=tuple(use for use in draft.uses or () if use is not None),
        files=tuple(file for file in draft.files or () if file is not None),
        metadata=draft.metadata or {},
        provenance=draft.provenance or {},
    )


def serialize(directory: Directory) -> bytes:
    """The JSON of `directory` as it is written; raises ValueError as `serialized` does."""
    return b"".join(serialized(directory, {}))


def serialized(directory: Directory, digests: Mapping[str, str]) -> Iterator[bytes]:
    """The JSON of `directory` as it is written, in parts: compact, nothing escaped that need not be.

    `digests` are SHA-256 of objects by id, set as `sha256` of what `provenance.objects` says of them. Raises ValueError
    where a value has no JSON: NaN, an infinity, a lone surrogate.
    """
    gathered: list[str] = []
    length = 0
    for text in _texts(directory, digests):
        gathered.append(text)
        length += len(text)
        if length >= PART:
            yield "".join(gathered).encode()
            gathered, length = [], 0
    yield "".join(gathered).encode()


def members(directory: Directory) -> dict[str, Any]:
    """The members of `directory` as JSON has them, in the order of container.md 2; optional ones that hold nothing
    are left out."""
    root: dict[str, Any] = {name: kind(records) for name, (kind, records) in _tables(directory).items()}
    if directory.metadata:
        root["metadata"] = directory.metadata
    if directory.provenance:
        root["provenance"] = directory.provenance
    return root


_Kind = type[dict[str, Any]] | type[list[Any]]


def _tables(directory: Directory) -> dict[str, tuple[_Kind, Iterable[Any]]]:
    """The members that consist of records, which are made as they are asked for."""
    return {
        "components": (dict, ((name, _component(component)) for name, component in directory.components.items())),
        "objects": (list, map(_object, directory.objects)),
        "bindings": (dict, ((name, _binding(binding)) for name, binding in directory.bindings.items())),
        "uses": (list, map(_use, directory.uses)),
        "files": (list, map(_file, directory.files)),
    }


def _texts(directory: Directory, digests: Mapping[str, str]) -> Iterator[str]:
    """The JSON of `directory` in parts."""
    mark = "{"
    for name, (kind, records) in _tables(directory).items():
        yield f'{mark}"{name}":'
        yield from _batches(kind, records)
        mark = ","
    if directory.metadata:
        yield f',"metadata":{_json(directory.metadata)}'
    if directory.provenance:
        mark = ',"provenance":{'
        for name, member in directory.provenance.items():
            yield f"{mark}{_json(name)}:"
            if not isinstance(member, dict):
                yield _json(member)
            elif name == "objects":
                yield from _batches(dict, _digested(member, digests))
            else:
                yield from _batches(dict, member.items())
            mark = ","
        yield "}"
    yield "}"


def _digested(recorded: Mapping[str, Any], digests: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for id, record in recorded.items():
        yield id, {**record, "sha256": digests[id]} if id in digests else record


def _batches(kind: _Kind, records: Iterable[Any]) -> Iterator[str]:
    """The JSON of a table, some records at a time, so that few of them and of the encoder's strings stand in memory."""
    empty = _json(kind())
    mark = empty[0]
    remaining = iter(records)
    while batch := kind(islice(remaining, BATCH)):
        yield mark + _json(batch)[1:-1]
        mark = ","
    yield empty if mark != "," else empty[1]


def without_digests(directory: Directory) -> Directory:
    """`directory` without the `sha256` of any object."""
    recorded: Mapping[str, Mapping[str, Any]] = directory.provenance.get("objects", {})
    objects = {
        id: {name: value for name, value in record.items() if name != "sha256"} for id, record in recorded.items()
    }
    return replace(directory, provenance={**directory.provenance, "objects": objects})


def file_json(file: File) -> bytes:
    """The JSON of one record of the files table, as `serialize` writes it."""
    return _json(_file(file)).encode()


# A directory is a tree: looking for circles would only cost time.
_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False).encode


def _component(component: Component) -> dict[str, Any]:
    record: dict[str, Any] = {"config": component.config}
    if component.target is not None:
        record["target"] = component.target
    if component.resources:
        record["resources"] = component.resources
    if component.proposal is not None:
        record["proposal"] = _proposal(component.proposal)
    return record


def _proposal(proposal: Proposal) -> dict[str, Any]:
    return {"domain": "full"} if proposal.rows is None else {"domain": "indexed", "rows": proposal.rows}


def _object(object: Object) -> dict[str, Any]:
    if not isinstance(object, TensorObject):
        return {
            "id": object.id,
            "kind": "resource",
            "encoding": RESOURCE_ENCODING,
            "offset": object.offset,
            "bytes": object.bytes,
        }
    record: dict[str, Any] = {
        "id": object.id,
        "kind": "tensor",
        "shape": list(object.shape),
        "format": object.format,
        "layout": object.layout,
        "offset": object.offset,
        "bytes": object.bytes,
    }
    if object.divisors > 1:
        record["divisors"] = object.divisors
    return record


def _binding(binding: Binding) -> dict[str, Any]:
    if binding.object is not None:
        return {"object": binding.object}
    return {"parts": [{"object": part.object, "range": [part.begin, part.end]} for part in binding.parts]}


def _file(file: File) -> dict[str, Any]:
    return {"path": file.path, "payload_bytes": file.payload_bytes}


def _use(use: Use) -> dict[str, Any]:
    record: dict[str, Any] = {"parameter": use.parameter, "input": use.input}
    if use.activation_policy is not None:
        record["activation_policy"] = use.activation_policy
    if use.auxiliaries:
        record["auxiliaries"] = {role: _binding(binding) for role, binding in use.auxiliaries.items()}
    return record
