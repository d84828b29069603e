"""One recipe text into typed tables: a file, or an override of the command line (recipes.md, Errors; extends)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli

from ninfer_convert.errors import Problem, unknown
from ninfer_convert.recipe import schema
from ninfer_convert.recipe.positions import Lines, Spot, locate
from ninfer_convert.recipe.reading import Node, Text, table

if TYPE_CHECKING:
    from ninfer_convert.recipe.model import Assign, Place

BYTE_ORDER_MARK = "\ufeff"

_FURTHER_KEY = re.compile(r",\s*(\w+)\s*=")

_UNCLOSED = "a text ends on its line with the quote that it began with"
_TWICE = "a key is given once, and a table that may be repeated is written with two brackets, as [[assign]], each time"
_SYNTAX_HINTS = {
    "Invalid value": "text stands in quotes, a list in brackets, and true and false are small",
    "Illegal character '\\n'": _UNCLOSED,
    "Found invalid character '\\n'": _UNCLOSED,
    "Unterminated string": _UNCLOSED,
    'Expected "\'"': _UNCLOSED,
    "Cannot overwrite a value": _TWICE,
    "Cannot declare": _TWICE,
    "Unescaped '\\'": "write text with a backslash in single quotes",
    "Invalid hex value": "write text with a backslash in single quotes",
}
"""What to do, by how the parser's message begins."""

MAX_BYTES = 64 << 20
"""Longest recipe that is read: hundreds of thousands of tables, and an end to a device that has none."""


@dataclass(frozen=True)
class Document:
    """A file that was read: typed values by top-level key, where each value stands, what is wrong.

    `shown` is what messages call it. `places` also has the members of tables with keys of the user's own
    (`defaults.F16`). With problems, `values` may lack what they concern.
    """

    path: Path
    shown: str
    sha256: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


def read_document(path: Path, shown: str) -> Document:
    """Read and check one file, which messages call `shown`. Never raises for what the file holds."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        return Document(path, shown, problems=(Problem("unreadable", f"cannot be read: {error.strerror}", path=shown),))
    if len(data) > MAX_BYTES:
        message = f"is longer than {MAX_BYTES} bytes, the most that a recipe may have"
        return Document(path, shown, problems=(Problem("too-long", message, path=shown),))
    parsed = _parse(data, shown)
    if isinstance(parsed, Problem):
        return Document(path, shown, problems=(parsed,))
    text, values, spot = parsed
    root = Node(values, spot, "", text)
    _refuse_large_integers(root)
    if text.problems:
        return Document(path, shown, problems=tuple(text.problems))
    typed = table(root, schema.RECIPE, "a recipe") or {}
    return Document(path, shown, hashlib.sha256(data).hexdigest(), typed, dict(_places(root)), tuple(text.problems))


def read_override(argument: str) -> tuple[Assign | None, tuple[Problem, ...]]:
    """`SELECT:key=value` as an assign; the value is TOML, or else a bare string."""
    text = Text(f"--set {argument}")
    head, equals, value = argument.partition("=")
    select, colon, key = head.rpartition(":")
    if not equals or not colon:
        return None, (Problem("bad-override", "expected SELECT:key=value", path=text.path),)
    key, said = key.strip(), _toml_or_bare(value)
    if key not in schema.DECISIONS:
        return None, (Problem("unknown-key", unknown("key", key, schema.DECISIONS, "in --set"), path=text.path),)
    further = _FURTHER_KEY.search(value) if isinstance(said, str) else None
    if further and further[1] in schema.DECISIONS:
        message = f"one --set gives one key: write '{select}:{further[1]}=...' as a --set of its own"
        return None, (Problem("bad-override", message, path=text.path),)
    given = {"select": select, key: said}
    root = Node(given, None, "", text)
    _refuse_large_integers(root)
    assign: Assign | None = None if text.problems else schema.read_override(root)
    return assign, tuple(text.problems)


def _refuse_large_integers(node: Node) -> None:
    """TOML's integers have 64 bits; its parser lets longer ones through, and Python cannot even print some."""
    if isinstance(node.value, dict):
        for _, member in node.members():
            _refuse_large_integers(member)
    elif isinstance(node.value, list):
        for element in node.elements():
            _refuse_large_integers(element)
    elif isinstance(node.value, int) and not -(2**63) <= node.value < 2**63:
        node.fault("out-of-range", f"{node.name} is a whole number of more than 64 bits, which TOML does not have")


def _places(root: Node) -> Iterator[tuple[str, Place]]:
    for key, node in root.members():
        yield key, node.place
        if isinstance(node.value, dict):
            yield from ((f"{key}.{name}", member.place) for name, member in node.members())


def _parse(data: bytes, shown: str) -> tuple[Text, dict[str, Any], Spot] | Problem:
    try:
        content = data.decode("utf-8").removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = len(data[data.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8")) + 1
        message = f"byte 0x{data[error.start]:02x} is not UTF-8; a recipe is UTF-8 text"
        return Problem("not-utf8", message, path=shown, line=line, column=column)
    try:
        values = tomli.loads(content)
        return Text(shown, Lines(content)), values, locate(content)
    except tomli.TOMLDecodeError as error:
        hints = [f": {hint}" for begin, hint in _SYNTAX_HINTS.items() if error.msg.startswith(begin)]
        message = f"not TOML: {error.msg}{''.join(hints)}"
        return Problem("toml-syntax", message, path=shown, line=error.lineno, column=error.colno)
    except (RecursionError, ValueError) as error:
        return Problem("toml-syntax", f"not TOML that can be read: {error}", path=shown)


def _toml_or_bare(value: str) -> Any:
    try:
        parsed = tomli.loads(f"value = {value}")
    except (ValueError, RecursionError):
        return value
    return parsed["value"] if len(parsed) == 1 else value
