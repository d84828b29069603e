"""Names as messages show them: they come from files, may hold anything and may be very long."""

from __future__ import annotations

from collections.abc import Sequence

from ninfer_convert.errors import printable

_SHOWN = 3


def label(name: str) -> str:
    """A tensor's or file's name with control characters escaped and the middle of a very long one left out."""
    if not name:
        return "''"
    if len(name) > 200:
        name = f"{name[:100]}...{name[-60:]}"
    return printable(name)


def some(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    first = ", ".join(label(name) for name in names[:_SHOWN])
    return f"{first} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else first


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
