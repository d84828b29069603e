"""The globs of a recipe: parsing, matching, captures (recipes.md, Selecting).

`*` is any run of characters, `?` one, `{a,b}` alternatives, `{0..9}` numbers, `\\` escapes; the rest is itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from math import prod

from ninfer_convert.natural import MAX_DIGITS

MAX_DEPTH = 32

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

    @cached_property
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

    @cached_property
    def is_template(self) -> bool:
        """Whether it is made of text and stars alone, so that texts for the stars make it a name."""
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
        if not self.is_template:
            return len(name) in _ends(self.parts, name, {0})
        # Without alternatives the first place of each text will do: whatever matches behind a later one matches
        # behind this one too.
        at = 0
        after_star = False
        for part in self.parts[:-1]:
            if isinstance(part, Text):
                found = name.find(part.text, at) if after_star else at if name.startswith(part.text) else -1
                if found < 0:
                    return False
                at = found + len(part.text)
            after_star = not isinstance(part, Text)
        last = self.parts[-1] if self.parts else Text("")
        if not isinstance(last, Text):
            return True
        end = len(name) - len(last.text)
        return name.endswith(last.text) and (at <= end if after_star else at == end)

    def captures(self, name: str) -> tuple[str, ...] | None:
        """What each star takes of `name`: from the left, the shortest that lets the whole glob match.

        None where it does not match. Stars within braces do not count.
        """
        first, *behind = _between_stars(self.parts)

        @cache
        def shortest(star: int, start: int) -> tuple[tuple[int, int], ...] | None:
            """What this star and those behind it take, as spans, if this one begins at `start`."""
            if star == len(behind):
                return () if start == len(name) else None
            for end in range(start, len(name) + 1):
                rest = best(star + 1, _ends(behind[star], name, {end}))
                if rest is not None:
                    return ((start, end), *rest)
            return None

        def best(star: int, starts: set[int]) -> tuple[tuple[int, int], ...] | None:
            found = [spans for start in sorted(starts) if (spans := shortest(star, start)) is not None]
            return min(found, key=lambda spans: [end - start for start, end in spans], default=None)

        taken = best(0, _ends(first, name, {0}))
        return None if taken is None else tuple(name[start:end] for start, end in taken)

    def filled(self, captured: Sequence[str]) -> str:
        """The name that a template gives for what was captured; one without stars is itself a name."""
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


def _between_stars(parts: Parts) -> list[Parts]:
    """The parts before, between and behind the stars: one sequence more than there are stars."""
    sequences: list[list[Part]] = [[]]
    for part in parts:
        if isinstance(part, AnyRun):
            sequences.append([])
        else:
            sequences[-1].append(part)
    return [tuple(sequence) for sequence in sequences]


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
