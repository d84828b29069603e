"""Natural order of names: `layers.2` before `layers.10` (recipes.md, Selecting)."""

from __future__ import annotations

import re

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
