"""Everything the package raises on purpose, and what a problem is made of.

Each exception carries its problems as data (`.problems`), so that a caller sees the same facts that the
command line prints. Foreign exceptions are translated where they arise, with the cause kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")

SHOWN_AT_MOST = 20


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: a stable code, a sentence to act on, and where it is.

    `path` is a file as the user typed it; `tensor` a tensor, parameter or object name; `line` and `column`
    count from 1.
    """

    code: str
    message: str
    path: str | None = None
    tensor: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        """`path:line:column: message` on one line, with the parts that are known."""
        where = printable(self.path) if self.path is not None else ""
        if self.line is not None:
            where += f":{self.line}" + (f":{self.column}" if self.column is not None else "")
        message = printable(self.message)
        return f"{where}: {message}" if where else message


class NinferConvertError(Exception):
    """The root of the tree; `str()` shows the problems, the first twenty with the total."""

    exit_status = 1

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__(*self.problems)

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems[:SHOWN_AT_MOST]]
        if len(self.problems) > SHOWN_AT_MOST:
            lines.append(f"... and {len(self.problems) - SHOWN_AT_MOST} more, {len(self.problems)} in all")
        return "\n".join(lines)


class UsageError(NinferConvertError):
    """The call itself is wrong: options, arguments, values of them."""

    exit_status = 2


class SourceError(NinferConvertError):
    """A checkpoint, or a file beside it, is damaged, incomplete or of a kind that cannot be read."""


class RecipeError(NinferConvertError):
    """A recipe is malformed, or does not fit the checkpoint."""


class NumericError(NinferConvertError):
    """A value, code or scale cannot be kept in the format that was asked for."""


class WordsError(NinferConvertError):
    """Words handed to a format or layout are not of its kind: dtype, shape or an illegal word."""


class ArtifactError(NinferConvertError):
    """A `.ninfer` file breaks the container's rules."""


class OutputError(NinferConvertError):
    """The destination cannot be written."""


def printable(text: str) -> str:
    """`text` with control characters, lone surrogates and other unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The `count` known words closest to `word`, best first; empty where none is close."""
    candidates = list(known)
    inside = [name for name in candidates if word and word in name]
    close = get_close_matches(word, candidates, n=count, cutoff=0.6)
    inside.sort(key=lambda name: (not name.startswith(word), len(name)))
    return list(dict.fromkeys([*close, *inside]))[:count]


def unknown(kind: str, word: str, known: Iterable[str], where: str = "") -> str:
    """The sentence for an unknown name of a `kind`, `where` it is one: the nearest legal words, then all of them."""
    names = list(known)
    close = nearest(word, names)
    hint = f"; did you mean {' or '.join(close)}?" if close else "."
    return f"unknown {kind} '{printable(word)}'{where and f' {where}'}{hint} Known: {', '.join(names)}"


def look_up(kind: str, name: str, known: Mapping[str, T]) -> T:
    """What is `known` under this name; LookupError with the sentence of `unknown` where nothing is."""
    try:
        return known[name]
    except KeyError:
        raise LookupError(unknown(kind, name, known)) from None
