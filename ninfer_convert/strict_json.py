"""JSON as untrusted headers need it: nothing silently dropped, nothing silently rounded (container.md 2).

The standard parser takes the last of two equal members, lets NaN and lone surrogates through, and turns 1e999
into infinity. Artifact directories, safetensors headers and config.json are all read through here.
"""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ninfer_convert.errors import printable

MAX_DEPTH = 64

_SPELLED_AT_MOST = 60

_SHORT = 300
"""Digits of whole numbers that are surely within binary64."""
_LONG_NUMBER = b"0" * (_SHORT + 1)
_DIGITS = bytes(ord("0" if chr(byte) in "0123456789" else " ") for byte in range(256))
"""Makes every digit 0: to look for long numbers so takes a sixth of the time of looking at each number."""

_BEYOND = "beyond binary64"
_INFINITE = 2**1024 - 2**970
"""The least whole number that binary64 rounds to infinity."""


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
        return note(f"the number {text[:40]}", _BEYOND) if math.isinf(value) else value

    def parse_int(text: str) -> Any:
        if len(text) > _SHORT and math.isinf(float(text)):
            return note(_long_number(text), _BEYOND)
        return int(text)

    try:
        with collector_paused():
            value = json.loads(
                text,
                object_pairs_hook=_members,
                parse_constant=lambda name: note(name, "which is not JSON"),
                parse_float=parse_float,
                parse_int=parse_int if _LONG_NUMBER in bytes(data).translate(_DIGITS) else int,
            )
    except json.JSONDecodeError as error:
        raise JsonFault(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise JsonFault(f"nests deeper than {MAX_DEPTH}") from None
    if no_numbers:
        first = no_numbers[0]
        raise JsonFault(f"holds {first.words}{_place(value, first)}, {first.fault}")
    has_escapes = "\\u" in text  # only they can spell a lone surrogate
    for level in _levels(value):
        if has_escapes:
            _refuse_surrogates(level)
    return value


def check(value: Any) -> None:
    """Raise JsonFault where `parse` would refuse the JSON of `value`, which the standard module has written.

    That leaves numbers beyond binary64 and nesting beyond 64.
    """
    for level in _levels(value):
        for item in level:
            if type(item) is int and not -_INFINITE < item < _INFINITE:
                raise JsonFault(f"holds {_long_number(str(item))}{_place(value, item)}, {_BEYOND}")


def spelled(value: object) -> str:
    """A value as JSON has it, for messages: on one line, printable, cut where it is long."""
    text = printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _SPELLED_AT_MOST else f"{text[: _SPELLED_AT_MOST - 3]}..."


@dataclass(frozen=True, eq=False)
class _NoNumber:
    """Stands in the parsed value for what the text calls a number, until its place can be named."""

    words: str
    fault: str


def _long_number(digits: str) -> str:
    return f"the number {digits[:40]}..."


def _place(value: Any, wanted: object) -> str:
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


def _levels(value: Any) -> Iterator[list[Any]]:
    """The values at each depth, from `value` itself on; raises JsonFault where they nest too deep."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        yield level
        containers = [item for item in level if type(item) is dict or type(item) is list]
        if not containers:
            return
        level = [child for item in containers for child in (item.values() if type(item) is dict else item)]
    raise JsonFault(f"nests deeper than {MAX_DEPTH}")


def _refuse_surrogates(level: Iterable[Any]) -> None:
    for item in level:
        for text in item if isinstance(item, dict) else (item,):
            if isinstance(text, str):
                try:
                    text.encode()
                except UnicodeEncodeError:
                    raise JsonFault(f"holds a lone surrogate in {printable(text)!r}") from None
