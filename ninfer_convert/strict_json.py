"""JSON as untrusted headers need it: nothing silently dropped, nothing silently rounded (container.md 2).

The standard parser takes the last of two equal members, lets NaN and lone surrogates through, and turns 1e999
into infinity. Artifact directories, safetensors headers and config.json are all read through here.
"""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ninfer_convert.errors import printable

MAX_DEPTH = 64


class JsonFault(ValueError):
    """What is wrong with the text, as the end of a sentence ("is not JSON: ...")."""


def parse(data: bytes | bytearray | memoryview) -> Any:
    """The value that UTF-8 `data` spells.

    Raises JsonFault for text that is not UTF-8 or JSON, a byte order mark, a member named twice in one object, NaN
    or an infinity, a number beyond binary64 (each with its place), a lone surrogate, or nesting beyond 64.
    """
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise JsonFault(f"is not UTF-8 at byte {error.start}") from None
    if text.startswith("\ufeff"):
        raise JsonFault("begins with a byte order mark")
    no_numbers: list[_NoNumber] = []

    def note(words: str, fault: str) -> _NoNumber:
        no_numbers.append(_NoNumber(words, fault))
        return no_numbers[-1]

    def parse_float(text: str) -> Any:
        value = float(text)
        return note(f"the number {text[:40]}", "beyond binary64") if math.isinf(value) else value

    def parse_int(text: str) -> Any:
        if len(text) > 300 and math.isinf(float(text)):
            return note(f"the number {text[:40]}...", "beyond binary64")
        return int(text)

    try:
        with collector_paused():
            value = json.loads(
                text,
                object_pairs_hook=_members,
                parse_constant=lambda name: note(name, "which is not JSON"),
                parse_float=parse_float,
                parse_int=parse_int,
            )
    except json.JSONDecodeError as error:
        raise JsonFault(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise JsonFault(f"nests deeper than {MAX_DEPTH}") from None
    if no_numbers:
        first = no_numbers[0]
        raise JsonFault(f"holds {first.words}{_place(value, first)}, {first.fault}")
    _check(value, has_escapes="\\u" in text)
    return value


@dataclass(frozen=True, eq=False)
class _NoNumber:
    """Stands in the parsed value for what the text calls a number, until its place can be named."""

    words: str
    fault: str


def _place(value: Any, wanted: _NoNumber) -> str:
    """` at a.b[2]`: where `wanted` stands within `value`; nothing for the value itself."""
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        place, item = stack.pop()
        if item is wanted:
            return f" at {printable(place.removeprefix('.'))[:200]}" if place else ""
        if isinstance(item, dict):
            stack.extend((f"{place}.{name}", member) for name, member in item.items())
        elif isinstance(item, list):
            stack.extend((f"{place}[{index}]", member) for index, member in enumerate(item))
    return ""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Without Python's cyclic collector: millions of new values make it search them all, again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise JsonFault(f"has the member {printable(name[:200])!r} twice in one object")
            seen.add(name)
    return members


def _check(value: Any, has_escapes: bool) -> None:
    """Depth, and lone surrogates, which only an escape can spell."""
    level = [value]
    for _ in range(MAX_DEPTH):
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                if has_escapes:
                    for name in item:
                        _refuse_surrogate(name)
                deeper.extend(item.values())
            elif isinstance(item, list):
                deeper.extend(item)
            elif has_escapes and isinstance(item, str):
                _refuse_surrogate(item)
        if not deeper:
            return
        level = deeper
    if any(isinstance(item, (dict, list)) for item in level):
        raise JsonFault(f"nests deeper than {MAX_DEPTH}")


def _refuse_surrogate(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise JsonFault(f"holds a lone surrogate in {printable(text)!r}") from None
