"""How an artifact's directory differs from the one that a plan gives.

Compared is everything but what another way of writing the same content changes: the division into files, digests, and
the options that led to the same decisions (cli.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ninfer_convert.container import serialize
from ninfer_convert.errors import printable
from ninfer_convert.sources.labels import some

if TYPE_CHECKING:
    from ninfer_convert.container import Directory

SHOWN_CHARACTERS = 100


@dataclass(frozen=True)
class Difference:
    """One thing in which an artifact is not what a plan gives.

    `rows` [begin, end) and `byte` count from the start of `object`, as in `verify.Fault`: rows of a direct format are
    elements.
    """

    code: str
    message: str
    object: str | None = None
    parameter: str | None = None
    rows: tuple[int, int] | None = None
    byte: int | None = None


class _Absent:
    """Stands for a member that one side lacks."""


_ABSENT = _Absent()
_Path = tuple[str | int, ...]
_BY_NAME = (
    *(("components",), ("objects",), ("bindings",), ("uses",)),
    *(("provenance", "sources"), ("provenance", "objects"), ("provenance", "parameters")),
)
"""Objects whose members are named by what they hold."""


def directory_differences(found: Directory, planned: Directory) -> Iterator[Difference]:
    """Every member of `found`, an artifact's directory, that `planned` does not give alike; inputs come first, objects
    that are only moved are told together."""
    size = sum(file.payload_bytes for file in found.files)
    if size != planned.payload_bytes:
        yield Difference("size", f"the payload is {size} bytes long; the plan gives {planned.payload_bytes}")
    ours, theirs = _content(found), _content(planned)
    differing = list(_compare((), _by_name(ours), _by_name(theirs)))
    names = {**_names(planned), **_names(found)}
    moved = [str(path[1]) for path, *_ in differing if _is_offset(path)]
    together = len(moved) > 1
    yield from (_told(*each, names) for each in differing if not (together and _is_offset(each[0])))
    if together:
        id = moved[0]
        message = f"{len(moved)} objects stand at other offsets than the plan gives, {_owned(id, names)} the first"
        yield Difference("directory", message, object=id)
    if not differing and json.dumps(ours) != json.dumps(theirs):
        yield Difference("directory", "the directory holds what the plan gives, in another order")


def _is_offset(path: _Path) -> bool:
    return path[0] == "objects" and path[-1] == "offset"


def _names(directory: Directory) -> dict[str, list[str]]:
    """The parameters that are bound to each object."""
    names: dict[str, list[str]] = {}
    for name, binding in directory.bindings.items():
        for id in dict.fromkeys(binding.objects):
            names.setdefault(id, []).append(name)
    return names


def _owned(id: str, names: Mapping[str, list[str]]) -> str:
    return printable(f"{id} ({some(names[id])})" if id in names else id)


def _content(directory: Directory) -> dict[str, Any]:
    """What is compared, as JSON has it."""
    root: dict[str, Any] = json.loads(serialize(directory))
    del root["files"]
    provenance = root.pop("provenance", {})
    provenance.pop("overrides", None)
    objects = provenance.get("objects")
    for record in objects.values() if isinstance(objects, dict) else ():
        if isinstance(record, dict):
            record.pop("sha256", None)
    return {"provenance": provenance, **root}


def _by_name(root: Mapping[str, Any]) -> dict[str, Any]:
    """The same with lists of records as objects, under what identifies the records."""
    uses: dict[str, dict[str, Any]] = {}
    for record in root["uses"]:
        uses.setdefault(record["parameter"], {})[record["input"]] = record
    return {**root, "objects": {record["id"]: record for record in root["objects"]}, "uses": uses}


def _compare(path: _Path, ours: Any, theirs: Any) -> Iterator[tuple[_Path, Any, Any]]:
    """The innermost values that differ, each with its path."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in dict.fromkeys((*theirs, *ours)):
            yield from _compare((*path, name), ours.get(name, _ABSENT), theirs.get(name, _ABSENT))
    elif isinstance(ours, list) and isinstance(theirs, list) and not (_plain(ours) and _plain(theirs)):
        for index in range(max(len(ours), len(theirs))):
            yield from _compare((*path, index), _item(ours, index), _item(theirs, index))
    elif ours is _ABSENT or theirs is _ABSENT or json.dumps(ours) != json.dumps(theirs):
        yield path, ours, theirs


def _plain(items: Sequence[Any]) -> bool:
    """Whether it is told as a whole: a shape, a range."""
    return all(isinstance(item, (int, float)) for item in items)


def _item(items: Sequence[Any], index: int) -> Any:
    return items[index] if index < len(items) else _ABSENT


def _told(path: _Path, ours: Any, theirs: Any, names: Mapping[str, list[str]]) -> Difference:
    where = _spelled(path)
    owners = names.get(str(path[1]), []) if path[0] == "objects" else []
    if owners:
        where += printable(f" ({some(owners)})")
    if ours is _ABSENT:
        message = f"{where} is missing; the plan gives {_shown(theirs)}"
    elif theirs is _ABSENT:
        message = f"{where} is not in the plan; it is {_shown(ours)}"
    else:
        message = f"{where} is {_shown(ours)}; the plan gives {_shown(theirs)}"
    match path:
        case ("objects", id, *_) | ("provenance", "objects", id, *_):
            return Difference("directory", message, object=str(id), parameter=", ".join(owners) or None)
        case ("bindings" | "uses", name, *_) | ("provenance", "parameters", name, *_):
            return Difference("directory", message, parameter=str(name))
    return Difference("directory", message)


def _spelled(path: _Path) -> str:
    """`objects[weight/000003].format`: names that are content in brackets, the specification's own behind a dot."""
    text = str(path[0])
    for depth, name in enumerate(path[1:], start=1):
        keyed = isinstance(name, int) or path[:depth] in _BY_NAME or (path[0] == "uses" and depth == 2)
        text += f"[{name}]" if keyed else f".{name}"
    return printable(text)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return printable(text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "...")
