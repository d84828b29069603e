"""What an artifact records of its making, told to its owner (recipes.md, Provenance).

The record is open: what is not as this program writes it is told as it stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ninfer_convert.cli import render

PER_OBJECT = ("objects", "parameters")
"""Members that are told with the object or parameter they belong to."""
DIGITS_SHOWN = 12
"""Of a SHA-256: enough to tell files apart; --json has all."""


def recorded(provenance: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Lines of a name and what is to be said of it; of what is empty there is none."""
    for key, value in provenance.items():
        if key not in PER_OBJECT and value not in ({}, [], None):
            yield from _member(key, value)


def plain(value: Any) -> str:
    """A JSON value on one line, without its brackets and quotes."""
    return render.shortened(_spelled(value))


def _member(key: str, value: Any) -> Iterator[tuple[str, str]]:
    match key, value:
        case "tool", {"name": str(name), "encoding": int(encoding)}:
            yield "made by", f"{name}, encoding {encoding}"
        case "recipe", {"name": str(name), "files": [*files]}:
            yield "recipe", name
            yield from (("recipe file", _file(file)) for file in files)
        case "overrides", {"set": [*assigns], "requantize": bool(requantize), "name": name}:
            yield from (("--set", plain(assign)) for assign in assigns)
            if requantize:
                yield "--requantize", "decoded values were quantized again"
            if name is not None:
                yield "--name", plain(name)
        case "sources", Mapping():
            yield from (line for source, record in value.items() for line in _source(source, record))
        case "skipped", [*skips]:
            yield from _skipped(skips)
        case "activation_scales", Mapping():
            yield "activation scales", f"of {render.plural(len(value), 'parameter')}: {plain(list(value))}"
        case _:
            yield key, plain(value)


def _source(name: str, record: Any) -> Iterator[tuple[str, str]]:
    match record:
        case {"files": [*files]}:
            yield from ((f"source {name}", _file(file)) for file in files)
        case _:
            yield f"source {name}", plain(record)


def _file(record: Any) -> str:
    """`model.safetensors, 388,408 bytes, header 425c7d4a1f41...`."""
    match record:
        case {"name": str(name), **facts}:
            size, digest, header = (facts.get(key) for key in ("size", "sha256", "header_sha256"))
            parts = [name]
            if isinstance(size, int):
                parts.append(f"{size:,} bytes")
            if isinstance(digest, str):
                parts.append(f"sha256 {digest[:DIGITS_SHOWN]}...")
            if isinstance(header, str):
                parts.append(f"sha256 of its header {header[:DIGITS_SHOWN]}...")
            return ", ".join(parts)
        case _:
            return plain(record)


def _skipped(records: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """A line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for record in records:
        match record:
            case {"name": str(name), "reason": str(reason)}:
                by_reason.setdefault(reason, []).append(name)
            case _:
                yield "left out", plain(record)
    for reason, names in by_reason.items():
        yield "left out", f"{reason}: {render.plural(len(names), 'name')}, {plain(names)}"


def _spelled(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_spelled(member)}" for key, member in value.items()) or "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_spelled, value)) or "-"
    return value if isinstance(value, str) else json.dumps(value)
