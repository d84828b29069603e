"""Where the command line writes: results to stdout, all else to stderr, each as text or as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from typing import Any, TextIO

import click

from ninfer_convert.errors import SHOWN_AT_MOST, OutputError, Problem, printable

WARNED_AT_MOST = 10
"""Warnings of one code that are shown as text."""


@dataclass
class Output:
    """How this run writes, and the warnings it has given so far."""

    json: bool = False
    quiet: bool = False
    debug: bool = False
    warnings: list[Problem] = field(default_factory=list)

    @classmethod
    def of(cls, arguments: Sequence[str]) -> Output:
        """As the command line asks for it, read from its words: a usage error ends the parse before it is complete."""
        words = list(arguments)
        options = set(words[: words.index("--")] if "--" in words else words)
        return cls(json="--json" in options, quiet="--quiet" in options, debug="--debug" in options)

    def text(self, lines: Iterable[str]) -> None:
        """A result for people."""
        _to_stdout("\n".join([*lines, ""]))

    def document(self, members: Mapping[str, Any]) -> None:
        """A result for programs: one JSON object on one line, the warnings with it."""
        _to_stdout(_json({**members, "warnings": [_record(problem) for problem in self.warnings]}))

    def heading(self, text: str) -> str:
        """`text` as a result's headings look."""
        return click.style(text, bold=True) if colours(sys.stdout) else text

    def warn(self, problems: Iterable[Problem]) -> None:
        """Give warnings: the first ones of each code with the number of the others, or all for the JSON."""
        given = list(problems)
        self.warnings += given
        if self.json:
            return
        totals = Counter(problem.code for problem in given)
        shown: Counter[str] = Counter()
        for problem in given:
            shown[problem.code] += 1
            if shown[problem.code] <= WARNED_AT_MOST:
                self._say("warning", "yellow", str(problem))
            elif shown[problem.code] == totals[problem.code]:
                more = totals[problem.code] - WARNED_AT_MOST
                to_stderr(f"... and {more:,} more of this kind; --json shows all of them\n")

    def fail(self, problems: Sequence[Problem], traceback: str = "", hint: str = "") -> None:
        """Say why the run ends: every problem as JSON, or the first ones as text with their number."""
        if self.json:
            record: dict[str, Any] = {
                "errors": [_record(problem) for problem in problems],
                "warnings": [_record(problem) for problem in self.warnings],
            }
            to_stderr(_json({**record, "traceback": traceback} if traceback else record))
            return
        to_stderr(_clean(traceback))
        for problem in problems[:SHOWN_AT_MOST]:
            self._say("error", "red", str(problem))
        if len(problems) > SHOWN_AT_MOST:
            to_stderr(f"... and {len(problems) - SHOWN_AT_MOST} more, {len(problems)} in all\n")
        if hint:
            to_stderr(f"{hint}\n")

    def _say(self, kind: str, colour: str, message: str) -> None:
        label = f"{kind}:"
        if colours(sys.stderr):
            label = click.style(label, fg=colour, bold=True)
        to_stderr(f"{label} {message}\n")


def colours(stream: TextIO | None) -> bool:
    """Whether `stream` shows colours: a terminal that can, and NO_COLOR does not forbid it."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether `stream` is a terminal that understands control sequences."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def make_streams_safe() -> None:
    """Let any name be printed in any locale: what the encoding lacks is escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def to_stderr(text: str) -> None:
    """Write; a reader that has gone, or a full device, is no reason to end."""
    try:
        _write(sys.stderr, text)
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Send what is left of `stream`, and all that follows, nowhere: Python's own flush at exit must not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _to_stdout(text: str) -> None:
    try:
        _write(sys.stdout, text)
    except BrokenPipeError:
        discard(sys.stdout)
    except OSError as error:
        discard(sys.stdout)
        raise OutputError(Problem("stdout", f"standard output cannot be written: {error.strerror}")) from error


def _write(stream: TextIO | None, text: str) -> None:
    if stream is not None:
        stream.write(text)
        stream.flush()


def _clean(text: str) -> str:
    """`text` with all but its line ends made printable."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value) + "\n"  # ASCII, whatever the locale


def _record(problem: Problem) -> dict[str, Any]:
    return {
        "code": problem.code,
        "message": problem.message,
        "file": problem.path,
        "tensor": problem.tensor,
        "line": problem.line,
        "column": problem.column,
    }
