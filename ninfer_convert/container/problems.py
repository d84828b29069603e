"""What is wrong with a directory, gathered in any order and told in the directory's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ninfer_convert.errors import Problem, printable

Where = tuple[str | int, ...]
"""The way to a member from the root: names and indices, the first the root member's."""


class Problems:
    """A collector: `add` what is wrong with a member, then `in_order`."""

    def __init__(self) -> None:
        self._found: list[tuple[Where, str, str, str | None]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, where: Where, code: str, message: str, tensor: str | None = None) -> None:
        """Say that the member at `where` is wrong; `tensor` is the object or parameter that is concerned."""
        self._found.append((where, code, message, tensor))

    def in_order(self, root: Mapping[str, Any], path: str | None) -> tuple[Problem, ...]:
        """Everything that was added, by record in the order of the directory `root`, in each as it was found."""
        if not self._found:
            return ()
        places = {member: place for place, member in enumerate(root)}
        records: dict[str | int, dict[str | int, int]] = {
            member: {name: place for place, name in enumerate(record)}
            for member, record in root.items()
            if isinstance(record, dict)
        }

        def place(where: Where) -> tuple[int, int]:
            member, record = where[0] if where else "", where[1] if len(where) > 1 else -1
            index = record if isinstance(record, int) else records.get(member, {}).get(record, -1)
            return places.get(str(member), len(places)), index

        return tuple(
            Problem(code, f"{spell(where)}: {message}", path, tensor)
            for where, code, message, tensor in sorted(self._found, key=lambda found: place(found[0]))
        )


def spell(where: Where) -> str:
    """`where` as a reader of the JSON would write it: `objects[3].offset`, `bindings["a.b"].parts[0]`."""
    text = ""
    for step in where:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isidentifier() and step.isascii():
            text += f".{step}" if text else step
        else:
            text += f'["{printable(_cut(step))}"]'
    return text or "the directory"


def shown(value: Any) -> str:
    """A JSON value as a message shows it: short, on one line."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return _cut(printable(json.dumps(value, ensure_ascii=False)))


def _cut(text: str) -> str:
    """`text` without the middle of a very long one."""
    return text if len(text) <= 200 else f"{text[:120]}...{text[-60:]}"
