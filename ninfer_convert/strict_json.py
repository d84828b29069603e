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
from typing import Any

from ninfer_convert.errors import printable

MAX_DEPTH = 64


class JsonFault(ValueError):
    """What is wrong with the text, as the end of a sentence ("is not JSON: ...")."""


def parse(data: bytes | bytearray | memoryview) -> Any:
    """The value that UTF-8 `data` spells.

    Raises JsonFault for text that is not UTF-8 or JSON, a byte order mark, a member named twice in one object, NaN
    or an infinity, a number beyond binary64, a lone surrogate, or nesting beyond 64.
    """
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise JsonFault(f"is not UTF-8 at byte {error.start}") from None
    if text.startswith("\ufeff"):
        raise JsonFault("begins with a byte order mark")
    try:
        with collector_paused():
            value = json.loads(
                text,
                object_pairs_hook=_members,
                parse_constant=_refuse_constant,
                parse_float=_parse_float,
                parse_int=_parse_int,
            )
    except json.JSONDecodeError as error:
        raise JsonFault(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise JsonFault(f"nests deeper than {MAX_DEPTH}") from None
    _check(value, has_escapes="\\u" in text)
    return value


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
                raise JsonFault(f"has the member {printable(name)!r} twice in one object")
            seen.add(name)
    return members


def _refuse_constant(name: str) -> Any:
    raise JsonFault(f"holds {name}, which is not JSON")


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise JsonFault(f"holds the number {text[:40]}, beyond binary64")
    return value


def _parse_int(text: str) -> int:
    if len(text) > 310 or math.isinf(float(text)):
        raise JsonFault(f"holds the number {text[:40]}..., beyond binary64")
    return int(text)


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
