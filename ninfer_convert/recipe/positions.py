"""Where in a TOML text each key and value stands (recipes.md, Errors).

tomli parses, and tells positions of syntax errors only. This scanner walks a text that tomli has accepted and builds
a tree of spots shaped as the parsed document; it reads no value.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import tomli

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BASIC = r'"(?:[^"\\\n]|\\.)*"'
_LITERAL = r"'[^'\n]*'"
_KEY = re.compile(rf"[A-Za-z0-9_-]+|{_BASIC}|{_LITERAL}")
# Behind three closing quotes up to two more still belong to the text.
_STRING = re.compile(rf'"""(?:[^\\]|\\.)*?"""+|\'\'\'.*?\'\'\'+|{_BASIC}|{_LITERAL}', re.DOTALL)
_SCALAR = re.compile(r"[^,\]}#\r\n]+")


@dataclass
class Spot:
    """Offsets of a key and of its value; of an array's element, of a table's header, both are the same.

    `children` are the members of a table by key, the elements of an array by index.
    """

    key: int
    value: int
    children: dict[str | int, Spot] = field(default_factory=dict)


class Lines:
    """Offsets of a text as (line, column), both from 1, columns in characters."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1


def locate(text: str) -> Spot:
    """The spots of a valid TOML text; the root's own offsets are 0."""
    return _Scanner(text).document()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def document(self) -> Spot:
        root = table = Spot(0, 0)
        self.skip(_BLANK)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self.header(root)
            else:
                self.pair(table)
            self.skip(_BLANK)
        return root

    def header(self, root: Spot) -> Spot:
        """`[a.b]` or `[[a.b]]`: the table that the pairs below it belong to."""
        is_array = self.text.startswith("[[", self.at)
        self.at += 2 if is_array else 1
        *outer, (name, offset) = self.dotted_key()
        self.skip(_SPACE)
        self.at += 2 if is_array else 1
        table = root
        for key, key_offset in outer:
            table = _last(table.children.setdefault(key, Spot(key_offset, key_offset)))
        found = table.children.setdefault(name, Spot(offset, offset))
        if is_array:
            return found.children.setdefault(len(found.children), Spot(offset, offset))
        return found

    def pair(self, table: Spot) -> None:
        *outer, (name, offset) = self.dotted_key()
        for key, key_offset in outer:
            table = table.children.setdefault(key, Spot(key_offset, key_offset))
        self.skip(_SPACE)
        self.at += len("=")
        self.skip(_SPACE)
        spot = table.children[name] = Spot(offset, self.at)
        self.value(spot)

    def dotted_key(self) -> list[tuple[str, int]]:
        parts = []
        while True:
            self.skip(_SPACE)
            start = self.at
            self.skip(_KEY)
            parts.append((_unquoted(self.text[start : self.at]), start))
            self.skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return parts
            self.at += 1

    def value(self, spot: Spot) -> None:
        first = self.text[self.at]
        if first == "[":
            self.sequence("]", lambda: self.element(spot))
        elif first == "{":
            self.sequence("}", lambda: self.pair(spot))
        else:
            self.skip(_STRING if first in "\"'" else _SCALAR)

    def element(self, array: Spot) -> None:
        spot = array.children[len(array.children)] = Spot(self.at, self.at)
        self.value(spot)

    def sequence(self, close: str, item: Callable[[], None]) -> None:
        """Comma-separated items up to `close`, with any blanks, comments and line ends between."""
        self.at += 1
        self.skip(_BLANK)
        while self.text[self.at] != close:
            item()
            self.skip(_BLANK)
            if self.text[self.at] == ",":
                self.at += 1
                self.skip(_BLANK)
        self.at += 1

    def skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()


def _last(spot: Spot) -> Spot:
    """Behind the name of an array of tables, its last table: what a longer header speaks of."""
    return spot.children[len(spot.children) - 1] if 0 in spot.children else spot


def _unquoted(key: str) -> str:
    if key[0] == '"' and "\\" in key:
        return next(iter(tomli.loads(f"{key} = 0")))
    return key[1:-1] if key[0] in "\"'" else key
