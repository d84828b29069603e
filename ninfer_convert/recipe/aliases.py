"""`[[share]]`: parameters bound to what another is stored as (recipes.md, Selecting, and Share under Skips)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer_convert.errors import printable
from ninfer_convert.recipe.resolution import Alias, Rule
from ninfer_convert.recipe.selection import Selection

if TYPE_CHECKING:
    from ninfer_convert.recipe.complaints import Complaints
    from ninfer_convert.recipe.model import Share
    from ninfer_convert.recipe.selection import Subject
    from ninfer_convert.values import Shape


@dataclass(frozen=True)
class Absent:
    """An alias that the checkpoint does not have (a tied head); it has its target's shape and stored type."""

    name: str
    shape: Shape
    stored: str
    identical: str | None = None
    exact: Sequence[str] = ()
    direct: str | None = None
    locked: str | None = None
    divisors: Sequence[float] = ()
    input_divisor: float | None = None
    tensors: Sequence[str] = ()


def find_aliases(
    tables: Sequence[Share], parameters: Sequence[Subject], complaints: Complaints
) -> tuple[dict[str, Alias], list[Absent]]:
    """Every alias by its name, its target followed to one that is stored; and those the checkpoint does not have.

    `with` selects among the parameters and the aliases that earlier tables made.
    """
    if not tables:
        return {}, []
    known: dict[str, Subject] = {parameter.name: parameter for parameter in parameters}
    absent = []
    rules: dict[str, tuple[str, Share]] = {}
    for table in tables:
        selection = Selection([*known.values()], complaints)
        for alias, target in _pairs(table, selection, complaints):
            if alias in rules:
                sentence = f"is an alias of {printable(rules[alias][0])} already"
                complaints.add(table.parameter.place, "share", sentence, alias)
                continue
            rules[alias] = (target, table)
            if alias not in known:
                absent.append(Absent(alias, known[target].shape, known[target].stored))
                known[alias] = absent[-1]
    return dict(_followed(rules, known, complaints)), absent


def _pairs(table: Share, selection: Selection, complaints: Complaints) -> Iterator[tuple[str, str]]:
    """(alias, target) for each tuple of captured texts."""
    for captured, targets in selection.captured(table.target, table.optional).items():
        names = [selection.names[index] for index in targets]
        if len(names) > 1:
            for name in names:
                complaints.add(table.target.place, "share", "match with alike; one can be shared", name)
            continue
        yield table.parameter.glob.filled(captured), names[0]


def _followed(
    rules: Mapping[str, tuple[str, Share]], known: Mapping[str, Subject], complaints: Complaints
) -> Iterator[tuple[str, Alias]]:
    circles = set()
    for alias, (target, table) in rules.items():
        chain = [alias]
        while target in rules and target not in chain:
            chain.append(target)
            target = rules[target][0]
        if target in chain:
            circle = chain[chain.index(target) :]
            if frozenset(circle) not in circles:
                circles.add(frozenset(circle))
                shown = " -> ".join(printable(name) for name in (*circle, target))
                complaints.add(table.parameter.place, "share", f"sharing goes in a circle: {shown}")
            continue
        if known[alias].shape != known[target].shape:
            sentence = (
                f"has shape {list(known[alias].shape)} and cannot be shared with {printable(target)} "
                f"of shape {list(known[target].shape)}"
            )
            complaints.add(table.parameter.place, "share", sentence, alias)
            continue
        stored = not isinstance(known[alias], Absent)
        yield alias, Alias(alias, target, stored, Rule.of(table.place, table.parameter))
