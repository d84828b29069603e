"""From JSON to records: the members of each record and their types (container.md 2).

What records must be to one another is not asked here: `rules` does. A record that is refused becomes None in its
place, so that checks which depend on it can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

from ninfer_convert.container.framing import U64_MAX
from ninfer_convert.container.problems import Problems, Where, shown
from ninfer_convert.container.records import (
    Binding,
    Component,
    File,
    Object,
    Part,
    Proposal,
    ResourceObject,
    TensorObject,
    Use,
)
from ninfer_convert.errors import nearest, printable
from ninfer_convert.layouts import RESOURCE_ENCODING
from ninfer_convert.policies import POLICIES

MAX_RANK = 16
MAIN_COMPONENT = "text"

T = TypeVar("T")
C = TypeVar("C", list[Any], dict[str, Any])


class Members:
    """The members that a kind of record must have, and those it may have."""

    def __init__(self, required: str, optional: str = "") -> None:
        self.required = frozenset(required.split())
        self.known = self.required | frozenset(optional.split())


ROOT = Members("components objects bindings uses files", "metadata provenance")
COMPONENT = Members("config", "target resources proposal")
TENSOR = Members("id kind shape format layout offset bytes", "divisors")
RESOURCE = Members("id kind encoding offset bytes")
OBJECT = Members("id kind", "shape format layout encoding offset bytes divisors")
WHOLE = Members("object")
PARTS = Members("parts")
PART = Members("object range")
USE = Members("parameter input", "activation_policy auxiliaries")
FILE = Members("path payload_bytes")
FULL = Members("domain")
INDEXED = Members("domain rows")


@dataclass(frozen=True)
class Draft:
    """The members of a root, None for one that is absent or of another type, and in them None for each refused record.

    `refused` are the ids of refused objects; `nameless` says that there are refused objects whose id is not known.
    """

    components: dict[str, Component | None] | None
    objects: list[Object | None] | None
    bindings: dict[str, Binding | None] | None
    uses: list[Use | None] | None
    files: list[File | None] | None
    metadata: dict[str, Any] | None
    provenance: dict[str, Any] | None
    refused: frozenset[str]
    nameless: bool


def are_sound(objects: Sequence[Object], bindings: Mapping[str, Binding]) -> bool:
    """Whether `Structure` would refuse none of these records, asked of all together.

    There are objects, and they are in order, as `rules` asks: no offset is negative.
    """
    tensors = [object for object in objects if isinstance(object, TensorObject)]
    shapes = {object.shape for object in tensors}
    words = {object.format for object in tensors} | {object.layout for object in tensors}
    parts = [part for binding in bindings.values() for part in binding.parts]
    names = [*words, *bindings, *(object.id for object in objects)]
    return (
        min([object.bytes for object in objects]) > 0
        and all(names)
        and "\0" not in "".join(names)
        and all(len(shape) <= MAX_RANK and _are_axes(shape) for shape in shapes)
        and max([object.divisors for object in tensors], default=1) <= U64_MAX
        and all(binding.object or binding.parts for binding in bindings.values())
        and all(0 <= part.begin < part.end for part in parts)
    )


def _are_axes(sizes: Sequence[Any]) -> bool:
    return all(type(size) is int and size > 0 for size in sizes) and prod(sizes) <= U64_MAX


class Structure:
    """Turns a root into a `Draft`, saying all that is wrong to `problems`."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._refused: set[str] = set()
        self._nameless = False

    def draft(self, root: dict[str, Any]) -> Draft:
        """Every member of `root`."""
        self._record((), root, ROOT)
        return Draft(
            components=self._map(root, (), "components", self._component, empty=False),
            objects=self._list(root, (), "objects", self._object, empty=False),
            bindings=self._map(root, (), "bindings", self._binding),
            uses=self._list(root, (), "uses", self._use),
            files=self._list(root, (), "files", self._file, empty=False),
            metadata=self._metadata(root),
            provenance=self._open(root, (), "provenance"),
            refused=frozenset(self._refused),
            nameless=self._nameless,
        )

    def _component(self, where: Where, value: Any) -> Component | None:
        record = self._record(where, value, COMPONENT)
        if record is None:
            return None
        config = self._open(record, where, "config")
        target = self._name(record, where, "target")
        resources = self._map(record, where, "resources", self._id)
        proposal = self._proposal(record, where)
        if config is None:
            return None
        named = {role: id for role, id in (resources or {}).items() if id is not None}
        return Component(config, target, named, proposal)

    def _proposal(self, record: dict[str, Any], where: Where) -> Proposal | None:
        if "proposal" not in record:
            return None
        at = (*where, "proposal")
        if where[-1] != MAIN_COMPONENT:
            self._problems.add(at, "proposal", f"only the component {MAIN_COMPONENT!r} has one; leave it out")
            return None
        value = record["proposal"]
        indexed = isinstance(value, dict) and value.get("domain") == "indexed"
        if self._record(at, value, INDEXED if indexed else FULL) is None:
            return None
        self._choice(value, at, "domain", ("full", "indexed"))
        return Proposal(self._whole(value, at, "rows", 1)) if indexed else Proposal()

    def _object(self, where: Where, value: Any) -> Object | None:
        if not isinstance(value, dict):
            self._wrong_type(where, value, "an object")
            self._nameless = True
            return None
        id = self._name(value, where, "id")
        kind = self._choice(value, where, "kind", _KINDS)
        made: Object | None = None
        if kind is None:
            self._record(where, value, OBJECT)
        else:
            made = _KINDS[kind](self, where, value, id)
        if made is None:
            if id is None:
                self._nameless = True
            else:
                self._refused.add(id)
        return made

    def _tensor(self, where: Where, record: dict[str, Any], id: str | None) -> TensorObject | None:
        self._record(where, record, TENSOR)
        shape = self._shape(record, where)
        format = self._name(record, where, "format")
        layout = self._name(record, where, "layout")
        offset = self._whole(record, where, "offset")
        bytes = self._whole(record, where, "bytes", 1)
        divisors = self._whole(record, where, "divisors", 1) if "divisors" in record else 1
        if id is None or shape is None or format is None or layout is None:
            return None
        if offset is None or bytes is None or divisors is None:
            return None
        return TensorObject(id, shape, format, layout, offset, bytes, divisors)

    def _resource(self, where: Where, record: dict[str, Any], id: str | None) -> ResourceObject | None:
        self._record(where, record, RESOURCE)
        encoding = self._choice(record, where, "encoding", (RESOURCE_ENCODING,))
        offset = self._whole(record, where, "offset")
        bytes = self._whole(record, where, "bytes", 1)
        if id is None or encoding is None or offset is None or bytes is None:
            return None
        return ResourceObject(id, offset, bytes)

    def _shape(self, record: dict[str, Any], where: Where) -> tuple[int, ...] | None:
        value = record.get("shape", _ABSENT)
        if isinstance(value, list) and len(value) <= MAX_RANK:
            if _are_axes(value):
                return tuple(value)
            found = printable(str(value)[:60])
        elif value is _ABSENT:
            return None
        else:
            found = shown(value)
        self._problems.add(
            (*where, "shape"),
            "shape",
            f"{found} is no shape; expected 0 to {MAX_RANK} positive integers whose product is below 2^64",
        )
        return None

    def _binding(self, where: Where, value: Any) -> Binding | None:
        in_parts = isinstance(value, dict) and "parts" in value
        if in_parts and "object" in value:
            self._problems.add(where, "binding", "has both object and parts; expected one of them")
            return None
        record = self._record(where, value, PARTS if in_parts else WHOLE)
        if record is None:
            return None
        if not in_parts:
            object = self._name(record, where, "object")
            return None if object is None else Binding(object)
        parts = self._list(record, where, "parts", self._part, empty=False)
        whole = tuple(part for part in parts or () if part is not None)
        return Binding(None, whole) if parts and len(whole) == len(parts) else None

    def _part(self, where: Where, value: Any) -> Part | None:
        record = self._record(where, value, PART)
        if record is None:
            return None
        object = self._name(record, where, "object")
        span = record.get("range", _ABSENT)
        if isinstance(span, list) and len(span) == 2:
            begin, end = span
            if type(begin) is int and type(end) is int and 0 <= begin < end <= U64_MAX:
                return None if object is None else Part(object, begin, end)
        if span is not _ABSENT:
            found = printable(str(span)[:60]) if isinstance(span, list) else shown(span)
            self._problems.add(
                (*where, "range"), "range", f"{found} is no range; expected [begin, end] with 0 <= begin < end"
            )
        return None

    def _use(self, where: Where, value: Any) -> Use | None:
        record = self._record(where, value, USE)
        if record is None:
            return None
        parameter = self._name(record, where, "parameter")
        input = self._name(record, where, "input")
        policy = self._choice(record, where, "activation_policy", POLICIES)
        auxiliaries = self._map(record, where, "auxiliaries", self._binding)
        if parameter is None or input is None:
            return None
        bound = {role: binding for role, binding in (auxiliaries or {}).items() if binding is not None}
        return Use(parameter, input, policy, bound)

    def _file(self, where: Where, value: Any) -> File | None:
        record = self._record(where, value, FILE)
        if record is None:
            return None
        payload_bytes = self._whole(record, where, "payload_bytes", 1)
        path = record.get("path", _ABSENT)
        if path is not None and not isinstance(path, str):
            if path is not _ABSENT:
                self._wrong_type((*where, "path"), path, "a file name or null")
            return None
        return None if payload_bytes is None else File(path, payload_bytes)

    def _metadata(self, root: dict[str, Any]) -> dict[str, Any] | None:
        metadata = self._open(root, (), "metadata")
        if metadata is not None and "name" in metadata:
            name = metadata["name"]
            if not isinstance(name, str) or not name:
                self._problems.add(("metadata", "name"), "name", f"{shown(name)}; expected a non-empty string")
        return metadata

    # What members are made of. An absent member gives None: where it is required, `_record` has said so.

    def _record(self, where: Where, value: Any, members: Members) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            self._wrong_type(where, value, "an object")
            return None
        if value.keys() != members.required and not members.required <= value.keys() <= members.known:
            for name in value:
                if name not in members.known:
                    close = nearest(name, sorted(members.known - value.keys()), 1)
                    hint = f"; did you mean {close[0]}?" if close else ""
                    self._problems.add((*where, name), "unknown-member", f"no such member{hint}")
            for name in sorted(members.required - value.keys()):
                self._problems.add((*where, name), "missing-member", "is missing")
        return value

    def _whole(self, record: dict[str, Any], where: Where, name: str, least: int = 0) -> int | None:
        value = record.get(name, _ABSENT)
        if type(value) is int and least <= value <= U64_MAX:
            return value
        if value is not _ABSENT:
            self._problems.add(
                (*where, name), "integer", f"{shown(value)}; expected an integer from {least} to 2^64 - 1"
            )
        return None

    def _name(self, record: dict[str, Any], where: Where, name: str) -> str | None:
        value = record.get(name, _ABSENT)
        if isinstance(value, str) and value and "\0" not in value:
            return value
        return None if value is _ABSENT else self._id((*where, name), value)

    def _id(self, where: Where, value: Any) -> str | None:
        if isinstance(value, str) and value and "\0" not in value:
            return value
        self._problems.add(where, "id", f"{shown(value)} is no name; expected a non-empty string without U+0000")
        return None

    def _choice(
        self, record: dict[str, Any], where: Where, name: str, known: tuple[str, ...] | dict[str, Any]
    ) -> str | None:
        value = record.get(name, _ABSENT)
        if isinstance(value, str) and value in known:
            return value
        if value is not _ABSENT:
            self._problems.add((*where, name), "value", f"{shown(value)}; expected {' or '.join(known)}")
        return None

    def _open(self, record: dict[str, Any], where: Where, name: str) -> dict[str, Any] | None:
        value = record.get(name, {})
        if isinstance(value, dict):
            return value
        self._wrong_type((*where, name), value, "an object")
        return None

    def _list(
        self, record: dict[str, Any], where: Where, name: str, read: Callable[[Where, Any], T], empty: bool = True
    ) -> list[T] | None:
        items = self._filled(record, where, name, list, "a list" if empty else "a non-empty list", empty)
        return None if items is None else [read((*where, name, index), item) for index, item in enumerate(items)]

    def _map(
        self, record: dict[str, Any], where: Where, name: str, read: Callable[[Where, Any], T], empty: bool = True
    ) -> dict[str, T] | None:
        items = self._filled(record, where, name, dict, "an object" if empty else "a non-empty object", empty)
        if items is None:
            return None
        for key in items:
            if not key or "\0" in key:
                self._id((*where, name, key), key)
        return {key: read((*where, name, key), item) for key, item in items.items()}

    def _filled(
        self, record: dict[str, Any], where: Where, name: str, kind: type[C], expected: str, empty: bool
    ) -> C | None:
        """A member of this kind; one without members of its own only if it may be `empty`."""
        value = record.get(name, _ABSENT)
        if isinstance(value, kind) and (value or empty):
            return value
        if value is not _ABSENT:
            self._wrong_type((*where, name), value, expected)
        return None

    def _wrong_type(self, where: Where, value: Any, expected: str) -> None:
        self._problems.add(where, "type", f"is {shown(value)}; expected {expected}")


_ABSENT = object()

_KINDS = {"tensor": Structure._tensor, "resource": Structure._resource}
