"""Logical names from source names (recipes.md, Tables: `[[rename]]`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ninfer_convert.errors import Problem, RecipeError, printable

if TYPE_CHECKING:
    from ninfer_convert.recipe.model import Rename


def rename(tables: Sequence[Rename], names: Sequence[str]) -> dict[str, str]:
    """What each of the distinct names becomes: the first table that matches renames it, once; others keep theirs.

    Raises RecipeError for a table that renames nothing, an empty result, and two names with one result.
    """
    renamed = {name: name for name in names}
    if not tables:
        return renamed
    used: dict[str, Rename] = {}
    for name in names:
        if found := renamed_by(tables, name):
            renamed[name], used[name] = found
    problems = [*_idle(tables, used), *_collisions(renamed, used)]
    if problems:
        raise RecipeError(problems)
    return renamed


def renamed_by(tables: Sequence[Rename], name: str) -> tuple[str, Rename] | None:
    """What one name becomes, and by which table; None where it stays what it is."""
    for table in tables:
        if match := table.match.fullmatch(name):
            return match.expand(table.to), table
    return None


def _idle(tables: Sequence[Rename], used: Mapping[str, Rename]) -> Iterator[Problem]:
    working = {id(table) for table in used.values()}
    for table in tables:
        if id(table) not in working and not table.optional:
            message = (
                f"match = '{table.match.pattern}' renames nothing: no name matches it whole, or earlier tables take "
                "those that do; optional = true allows that"
            )
            yield table.place.problem("nothing-matches", message)


def _collisions(renamed: Mapping[str, str], used: Mapping[str, Rename]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for name, result in renamed.items():
        if not result:
            if name in used:  # what has no name of its own is refused where it would be bound
                yield used[name].place.problem("empty-name", f"{printable(name)} is renamed to nothing")
            continue
        other = first.setdefault(result, name)
        if other != name:
            table = used.get(name) or used[other]
            message = f"{printable(other)} and {printable(name)} would both be called {printable(result)}"
            yield table.place.problem("same-name", message)
