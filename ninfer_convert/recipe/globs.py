"""The globs of a recipe: parsing, matching, captures (recipes.md, Selecting).

`*` is any run of characters, `?` one, `{a,b}` alternatives, `{0..9}` numbers, `\\` escapes; the rest is itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

MAX_DEPTH = 32
MAX_DIGITS = 18

_NUMBERS = re.compile(r"([0-9]+)\.\.([0-9]+)")
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_PLAIN = re.compile(r"[^*?{},\\]+")


class GlobFault(ValueError):
    """What is wrong with a glob, as the end of a sentence."""


class Part:
    """One element of a glob."""

    @property
    def size(self) -> int:
        """How many sequences without braces it stands for."""
        return 1

    def spread(self) -> Iterable[Parts]:
        """Those sequences."""
        return ((self,),)

    def ends(self, text: str, starts: set[int]) -> set[int]:
        """Where a match that begins at one of `starts`, which are not none, may end."""
        raise NotImplementedError


Parts = tuple[Part, ...]


@dataclass(frozen=True)
class Text(Part):
    """Characters that stand for themselves."""

    text: str

    def ends(self, text: str, starts: set[int]) -> set[int]:
        return {start + len(self.text) for start in starts if text.startswith(self.text, start)}


@dataclass(frozen=True)
class AnyCharacter(Part):
    """`?`."""

    def ends(self, text: str, starts: set[int]) -> set[int]:
        return {start + 1 for start in starts if start < len(text)}


@dataclass(frozen=True)
class AnyRun(Part):
    """`*`."""

    def ends(self, text: str, starts: set[int]) -> set[int]:
        return set(range(min(starts), len(text) + 1))


@dataclass(frozen=True)
class Numbers(Part):
    """`{first..last}`: whole numbers without leading zeros."""

    first: int
    last: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def spread(self) -> Iterable[Parts]:
        return ((Text(str(number)),) for number in range(self.first, self.last + 1))

    def ends(self, text: str, starts: set[int]) -> set[int]:
        return {end for start in starts for end in self._ends(text, start)}

    def _ends(self, text: str, start: int) -> Iterator[int]:
        if digits := _NUMBER.match(text, start):
            longest = min(digits.end(), start + len(str(self.last)))
            for end in range(start + 1, longest + 1):
                if self.first <= int(text[start:end]) <= self.last:
                    yield end


@dataclass(frozen=True)
class Choice(Part):
    """`{a,b}`: one of several sequences."""

    alternatives: tuple[Parts, ...]

    @property
    def size(self) -> int:
        return sum(_size(parts) for parts in self.alternatives)

    def spread(self) -> Iterable[Parts]:
        return (one for parts in self.alternatives for one in _spread(parts))

    def ends(self, text: str, starts: set[int]) -> set[int]:
        return {end for parts in self.alternatives for end in _ends(parts, text, starts)}


@dataclass(frozen=True)
class Glob:
    """A parsed glob; `text` is as it was written."""

    text: str
    parts: Parts

    @property
    def literal(self) -> str | None:
        """The one name that can match, where there is no `*`, `?` or `{`; else None."""
        if not self.parts:
            return ""
        only = self.parts[0]
        return only.text if len(self.parts) == 1 and isinstance(only, Text) else None

    @property
    def words(self) -> list[str]:
        """Texts that every match contains."""
        return [part.text for part in self.parts if isinstance(part, Text)]

    @property
    def captures_only(self) -> bool:
        """Whether it is made of text and `*` alone, as the tables that capture demand."""
        return all(isinstance(part, (Text, AnyRun)) for part in self.parts)

    @property
    def stars(self) -> int:
        """How many `*` stand outside braces."""
        return sum(isinstance(part, AnyRun) for part in self.parts)

    def spread(self, at_most: int) -> list[Glob]:
        """Globs without braces that together match the same names; itself where they would be more than `at_most`."""
        if _size(self.parts) > at_most:
            return [self]
        return [Glob(self.text, parts) for parts in _spread(self.parts)]

    def matches(self, name: str) -> bool:
        if self.captures_only:
            return self.captures(name) is not None
        return len(name) in _ends(self.parts, name, {0})

    def captures(self, name: str) -> tuple[str, ...] | None:
        """What each star of a `captures_only` glob takes of `name`: from the left, the shortest that lets it match.

        None where it does not match.
        """
        taken = []
        at = 0
        star = False  # whether one waits for its end
        for number, part in enumerate(self.parts):
            if not isinstance(part, Text):
                if star:
                    taken.append("")
                star = True
                continue
            if not star:
                found = at if name.startswith(part.text, at) else -1
            elif number == len(self.parts) - 1:
                found = len(name) - len(part.text) if name.endswith(part.text) else -1
            else:
                # The first place is right: whatever matches behind a later one matches behind this one too.
                found = name.find(part.text, at)
            if found < at:
                return None
            if star:
                taken.append(name[at:found])
                star = False
            at = found + len(part.text)
        if star:
            taken.append(name[at:])
        elif at != len(name):
            return None
        return tuple(taken)

    def filled(self, captured: Sequence[str]) -> str:
        """The name that a `captures_only` glob gives with its stars replaced."""
        texts = iter(captured)
        return "".join(part.text if isinstance(part, Text) else next(texts) for part in self.parts)


def parse_glob(text: str) -> Glob:
    """Parse; raises GlobFault."""
    parser = _Parser(text)
    return Glob(text, parser.sequence(nested=False))


def _size(parts: Parts) -> int:
    return prod(part.size for part in parts)


def _spread(parts: Parts) -> Iterator[Parts]:
    for choice in product(*(part.spread() for part in parts)):
        yield _joined(part for sequence in choice for part in sequence)


def _ends(parts: Parts, text: str, starts: set[int]) -> set[int]:
    for part in parts:
        if not starts:
            break
        starts = part.ends(text, starts)
    return starts


def _joined(parts: Iterable[Part]) -> Parts:
    """Neighbouring texts as one: `a\\*b` is a single word."""
    joined: list[Part] = []
    for part in parts:
        before = joined[-1] if joined else None
        if isinstance(part, Text) and isinstance(before, Text):
            joined[-1] = Text(before.text + part.text)
        else:
            joined.append(part)
    return tuple(joined)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def sequence(self, nested: bool) -> Parts:
        """Parts up to the end, or within braces up to `,` or `}`."""
        parts: list[Part] = []
        while self.at < len(self.text):
            character = self.text[self.at]
            if nested and character in ",}":
                break
            parts.append(self.part(character))
        return _joined(parts)

    def part(self, character: str) -> Part:
        if plain := _PLAIN.match(self.text, self.at):
            self.at = plain.end()
            return Text(plain.group())
        self.at += 1
        if character == "*":
            return AnyRun()
        if character == "?":
            return AnyCharacter()
        if character == "{":
            return self.braces()
        if character == "\\":
            if self.at == len(self.text):
                raise GlobFault("ends in a backslash that escapes nothing")
            character = self.text[self.at]
            self.at += 1
        return Text(character)

    def braces(self) -> Part:
        opened = self.at
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise GlobFault(f"nests braces deeper than {MAX_DEPTH}")
        alternatives = [self.alternative()]
        while self.text.startswith(",", self.at):
            self.at += 1
            alternatives.append(self.alternative())
        if self.at == len(self.text):
            raise GlobFault(f"has a brace at character {opened} that is not closed")
        self.at += 1
        self.depth -= 1
        if alternatives == [()]:
            raise GlobFault(f"has an empty brace at character {opened}")
        return Choice(tuple(alternatives))

    def alternative(self) -> Parts:
        numbers = _NUMBERS.match(self.text, self.at)
        if numbers is None or self.text[numbers.end() : numbers.end() + 1] not in (",", "}"):
            return self.sequence(nested=True)
        self.at = numbers.end()
        first, last = numbers.groups()
        if any(len(bound) > 1 and bound[0] == "0" for bound in (first, last)):
            raise GlobFault(f"has the range {{{numbers.group()}}} with a leading zero")
        if len(last) > MAX_DIGITS:
            raise GlobFault(f"has a range bound of more than {MAX_DIGITS} digits")
        if (len(first), first) > (len(last), last):
            raise GlobFault(f"has the range {{{numbers.group()}}}, which descends")
        return (Numbers(int(first), int(last)),)
