"""Natural order of names: `layers.2` before `layers.10` (recipes.md, Selecting)."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"([0-9]+)|(.)", re.DOTALL)

Key = tuple[tuple[int, int, str, int], ...]


def natural_key(name: str) -> Key:
    """A sort key: code point by code point, but two runs of ASCII digits as numbers, then by length."""
    return tuple(_digits(digits) if digits else (ord(other), 0, "", 0) for digits, other in _TOKEN.findall(name))


def _digits(run: str) -> tuple[int, int, str, int]:
    # Any digit compares with another character as "0" does: their code points have no other character between them.
    # The number is compared as text, since a run may be longer than Python converts.
    number = run.lstrip("0")
    return ord("0"), len(number), number, len(run)
