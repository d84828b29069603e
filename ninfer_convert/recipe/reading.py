"""Reading typed values out of a parsed document, every problem with its place.

A reader takes a `Node` and returns what it means; where it cannot, it records a problem and returns None. Nobody
uses the values of a document with problems.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import Problem, printable, unknown
from ninfer_convert.recipe.model import Place

if TYPE_CHECKING:
    from ninfer_convert.recipe.positions import Lines, Spot


@dataclass(frozen=True)
class Text:
    """A document's text: its path as typed, its lines (None: it has none to point at), the problems found in it."""

    path: str
    lines: Lines | None = None
    problems: list[Problem] = field(default_factory=list)


@dataclass(frozen=True)
class Node:
    """A value of the document, where it stands, and what messages call it (`where.rank`, `[[assign]]`)."""

    value: Any
    spot: Spot | None
    name: str
    text: Text

    @property
    def place(self) -> Place:
        """Where the value begins."""
        return self._place(self.spot.value if self.spot else None)

    @property
    def key_place(self) -> Place:
        """Where its key begins."""
        return self._place(self.spot.key if self.spot else None)

    def _place(self, offset: int | None) -> Place:
        # The whole document has no line of its own.
        if offset is None or self.text.lines is None or not self.name:
            return Place(self.text.path)
        return Place(self.text.path, *self.text.lines.place(offset))

    def fault(self, code: str, message: str) -> None:
        self.text.problems.append(self.place.problem(code, message))

    def wrong_type(self, expected: str) -> None:
        self.fault("wrong-type", f"{self.name} must be {expected}, not {_described(self.value)}")

    def member(self, key: str) -> Node:
        inner = f"{self.name}.{printable(key)}" if self.name and not self.name.startswith("[") else printable(key)
        return Node(self.value[key], self.spot and self.spot.children[key], inner, self.text)

    def members(self) -> Iterator[tuple[str, Node]]:
        return ((key, self.member(key)) for key in self.value)

    def elements(self) -> Iterator[Node]:
        for index, value in enumerate(self.value):
            yield Node(value, self.spot and self.spot.children[index], self.name, self.text)


_KEBAB = str.maketrans(" _", "--")

Reader = Callable[[Node], Any]


@dataclass(frozen=True)
class Key:
    """A legal key of a table."""

    read: Reader
    required: bool = False


Keys = Mapping[str, Key]


def table(node: Node, keys: Keys, title: str) -> dict[str, Any] | None:
    """The members of a table that has these keys and no others; `title` is what messages call the table."""
    if not isinstance(node.value, dict):
        node.wrong_type("a table")
        return None
    for key in node.value:
        if key not in keys:
            message = unknown("key", key, keys, f"in {title}")
            node.text.problems.append(node.member(key).key_place.problem("unknown-key", message))
    for key, rule in keys.items():
        if rule.required and key not in node.value:
            node.fault("missing-key", f"{title} needs the key {key}")
    return {key: rule.read(node.member(key)) for key, rule in keys.items() if key in node.value}


def tables(read: Reader, title: str) -> Reader:
    """An array of tables, each read by `read`."""

    def read_tables(node: Node) -> Any:
        if isinstance(node.value, dict):
            node.fault("wrong-type", f"{title} is an array of tables: write it with two brackets")
        elif not isinstance(node.value, list):
            node.wrong_type(f"an array of tables, {title}")
        else:
            return tuple(read(Node(one.value, one.spot, title, one.text)) for one in node.elements())
        return None

    return read_tables


def string(node: Node) -> Any:
    if not isinstance(node.value, str):
        return node.wrong_type("a string")
    return node.value


def filled_string(node: Node) -> Any:
    if isinstance(node.value, str) and not node.value:
        return node.fault("empty-string", f"{node.name} is empty")
    return string(node)


def boolean(node: Node) -> Any:
    if not isinstance(node.value, bool):
        return node.wrong_type("true or false")
    return node.value


def whole_number(minimum: int) -> Reader:
    def read(node: Node) -> Any:
        if not isinstance(node.value, int) or isinstance(node.value, bool):
            return node.wrong_type("a whole number")
        if node.value < minimum:
            return node.fault("out-of-range", f"{node.name} must be at least {minimum}, not {node.value}")
        return node.value

    return read


def word(kind: str, known: Collection[str]) -> Reader:
    """One of the `known` words; `kind` is what messages call them."""

    def read(node: Node) -> Any:
        if string(node) is None:
            return None
        if node.value not in known:
            return node.fault(f"unknown-{kind.translate(_KEBAB)}", unknown(kind, node.value, known))
        return node.value

    return read


def one_or_more(read: Reader, expected: str) -> Reader:
    """A value, or a list of them with at least one, as a tuple."""

    def read_all(node: Node) -> Any:
        if not isinstance(node.value, list):
            if isinstance(node.value, dict):
                return node.wrong_type(expected)
            return (read(node),)
        if not node.value:
            return node.fault("empty-list", f"{node.name} is an empty list: give at least one")
        return tuple(read(element) for element in node.elements())

    return read_all


def json_value(node: Node) -> Any:
    """A value that the artifact's directory can hold: no dates, no NaN, no infinity, at any depth."""
    value = node.value
    if isinstance(value, dict):
        return {key: json_value(member) for key, member in node.members()}
    if isinstance(value, list):
        return [json_value(element) for element in node.elements()]
    if isinstance(value, float) and not math.isfinite(value):
        return node.fault("not-json", f"{node.name} is {value}, which the artifact's directory cannot hold")
    if not isinstance(value, (str, bool, int, float)):
        return node.fault("not-json", f"{node.name} is {_described(value)}: write it as a string")
    return value


def _described(value: Any) -> str:
    kinds = ((bool, "a boolean"), (int, "an integer"), (float, "a float"), (str, "a string"), (list, "an array"))
    for type_, kind in kinds:
        if isinstance(value, type_):
            return kind
    return "a table" if isinstance(value, dict) else "a date or time"
