"""Globs and natural order from the words of the specification, slowly: braces written out, then one expression each."""

from __future__ import annotations

import re
from functools import cmp_to_key


def alternatives(glob: str) -> list[str]:
    """The glob as regular expressions without alternatives, all braces written out."""
    found, end = _sequences(glob, 0, nested=False)
    assert end == len(glob)
    return found


def matches(glob: str, name: str) -> bool:
    return any(re.fullmatch(expression, name, re.DOTALL) for expression in alternatives(glob))


def captures(glob: str, name: str) -> tuple[str, ...] | None:
    """Of a glob of text and stars: what lazy groups take, from the left."""
    match = re.fullmatch("(.*?)".join(re.escape(text) for text in glob.split("*")), name, re.DOTALL)
    return match.groups() if match else None


def shortest_stars(glob: str, name: str) -> list[int] | None:
    """How long the texts of the stars are, from the left the shortest, out of all ways to match."""

    def ways(expression: str, rest: str) -> list[list[int]]:
        if not expression:
            return [] if rest else [[]]
        if expression.startswith(".*"):
            return [[n, *way] for n in range(len(rest) + 1) for way in ways(expression[2:], rest[n:])]
        token = re.match(r"\\?.", expression, re.DOTALL)
        assert token is not None
        if not rest or not re.fullmatch(token[0], rest[0], re.DOTALL):
            return []
        return ways(expression[token.end() :], rest[1:])

    return min((way for expression in alternatives(glob) for way in ways(expression, name)), default=None)


def in_natural_order(names: list[str]) -> list[str]:
    return sorted(names, key=cmp_to_key(_compare))


def _sequences(glob: str, at: int, nested: bool) -> tuple[list[str], int]:
    found = [""]
    while at < len(glob) and not (nested and glob[at] in ",}"):
        character = glob[at]
        at += 1
        if character == "*":
            options = [".*"]
        elif character == "?":
            options = ["."]
        elif character == "{":
            options, at = _braces(glob, at)
        else:
            if character == "\\":
                character = glob[at]
                at += 1
            options = [re.escape(character)]
        found = [before + option for before in found for option in options]
    return found, at


def _braces(glob: str, at: int) -> tuple[list[str], int]:
    options: list[str] = []
    while True:
        numbers = re.compile(r"(\d+)\.\.(\d+)(?=[,}])").match(glob, at)
        if numbers:
            options += [str(number) for number in range(int(numbers[1]), int(numbers[2]) + 1)]
            at = numbers.end()
        else:
            more, at = _sequences(glob, at, nested=True)
            options += more
        at += 1
        if glob[at - 1] == "}":
            return options, at


def _compare(a: str, b: str) -> int:
    while a and b:
        digits_a, digits_b = re.match("[0-9]+", a), re.match("[0-9]+", b)
        if digits_a and digits_b:
            number_a, number_b = int(digits_a[0]), int(digits_b[0])
            if number_a != number_b:
                return -1 if number_a < number_b else 1
            if len(digits_a[0]) != len(digits_b[0]):
                return -1 if len(digits_a[0]) < len(digits_b[0]) else 1
            a, b = a[digits_a.end() :], b[digits_b.end() :]
            continue
        if a[0] != b[0]:
            return -1 if ord(a[0]) < ord(b[0]) else 1
        a, b = a[1:], b[1:]
    return (len(a) > len(b)) - (len(a) < len(b))
