"""Numbers in names, and their natural order: `layers.2` before `layers.10` (recipes.md, Selecting)."""

from __future__ import annotations

import re

MAX_DIGITS = 18
"""Digits of a number in a name or a glob at most: it is one of 64 bits."""
NUMBER = re.compile(rf"(?<![^./])(?:0|[1-9][0-9]{{0,{MAX_DIGITS - 1}}})(?![^./])")
"""A whole number that stands alone between dots or slashes, without leading zeros: a layer, an expert."""

_RUN = re.compile("[0-9]+")


def natural_key(name: str) -> str:
    """A sort key: code point by code point, but two runs of ASCII digits as numbers, then by length."""
    return _RUN.sub(_spelled, name)


def _spelled(match: re.Match[str]) -> str:
    # Behind "0", which compares with another character as any digit does, stand the number's length, the number, and
    # the run's length: as text, since a run may be longer than Python converts.
    run = match[0]
    number = run.lstrip("0")
    return f"0{chr(len(number))}{number}{chr(len(run))}"
