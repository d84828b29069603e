"""Members of config.json read one by one; what is wrong is collected, so that all of it is reported together."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ninfer_convert.errors import Problem
from ninfer_convert.strict_json import spelled

U32 = 1 << 32

COUNTED_AT_MOST = 4096
"""The most layers, heads or experts of a layer: something is made for each of them before a tensor is looked at, so
that a few digits in a config must not take all memory."""


@dataclass(frozen=True)
class Members:
    """The members of one JSON object of the config in the file `path`, as the user typed it.

    `place` is what a member's name follows in messages ("text_config."). A null is an absent member. Each fault goes
    to `problems`, which the objects inside share.
    """

    members: Mapping[str, Any]
    path: str
    place: str = ""
    problems: list[Problem] = field(default_factory=list)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """The member as it is."""
        value = self.members.get(name)
        return default if value is None else value

    def size(self, name: str, default: int | None = None, most: int = U32 - 1) -> int:
        """A whole number from 1 to `most`, which fits 32 bits; 0 for another. `default` where it is absent."""
        value = self.get(name)
        if value is None and default is not None:
            return default
        if type(value) is int and 0 < value <= most:
            return value
        self.wrong(name, value, f"a whole number from 1 to {most}")
        return 0

    def count(self, name: str) -> int:
        """A size that is a number of layers, heads or experts."""
        return self.size(name, most=COUNTED_AT_MOST)

    def flag(self, name: str) -> bool:
        """true or false; false where it is absent."""
        value = self.get(name, False)
        if isinstance(value, bool):
            return value
        self.wrong(name, value, "true or false")
        return False

    def positive(self, name: str, default: float) -> float:
        """A number rounded to binary32 that is over zero then too; 0 for another."""
        value = self.get(name, default)
        rounded = binary32(value) if type(value) in (int, float) else 0.0
        if rounded > 0:
            return rounded
        self.wrong(name, value, "a number that is over zero and finite in binary32")
        return 0.0

    def require(self, name: str, expected: object) -> None:
        """The member, where it is present, must be this value of this type."""
        value = self.get(name, expected)
        if type(value) is not type(expected) or value != expected:
            self.wrong(name, value, spelled(expected))

    def inside(self, name: str) -> Members:
        """The object that a member is; an empty one where there is none."""
        value = self.get(name, {})
        if not isinstance(value, dict):
            self.wrong(name, value, "an object")
            value = {}
        return Members(value, self.path, f"{self.place}{name}.", self.problems)

    def wrong(self, name: str, value: object, expected: str) -> None:
        """Note that a member is not what it must be."""
        found = "is missing" if value is None else f"is {spelled(value)}"
        self.problem(f"{self.place}{name} {found}, where {expected} was expected")

    def problem(self, message: str) -> None:
        """Note whatever else is wrong."""
        self.problems.append(Problem("bad-config", message, path=self.path))


def binary32(value: float) -> float:
    """The nearest binary32 number; 0 where it would be beyond the largest."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return 0.0
    return rounded
