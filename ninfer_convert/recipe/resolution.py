"""What resolving a recipe against a checkpoint's parameters gives (recipes.md, Deciding)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ninfer_convert.errors import Problem
    from ninfer_convert.recipe.model import Assign, Skip
    from ninfer_convert.values import Shape


@dataclass(frozen=True)
class Rule:
    """The table that decided: its file as typed, its line and column, the globs of its `select`."""

    path: str
    line: int | None
    column: int | None
    select: str

    @classmethod
    def of(cls, table: Assign | Skip) -> Rule:
        select = ", ".join(selector.glob.text for selector in table.select)
        return cls(table.place.path, table.place.line, table.place.column, select)


@dataclass(frozen=True)
class Piece:
    """How one object's worth of a parameter is stored.

    `rows` are those of the parameter's first axis that it takes, None for all; `shape` is the object's, folded to
    [rows, columns] for two-dimensional formats. `rule` is the assign that gave the format, else the last that gave
    anything, None where none did. `non_finite` is "refuse" wherever values are quantized.
    """

    rows: tuple[int, int] | None
    shape: Shape
    format: str
    layout: str
    method: str
    parameters: Mapping[str, Any]
    non_finite: str
    rule: Rule | None


@dataclass(frozen=True)
class Skipped:
    """A parameter that is left out."""

    name: str
    reason: str
    rule: Rule


@dataclass(frozen=True)
class Resolution:
    """Every decision, in the order of the parameters.

    `defaults_applied` counts the parameters that took a `[defaults]` entry, by stored type. `locked` names the
    parameters that a wildcard passed by because they are locked. `untouched` is the share of stored elements that no
    assign decided.
    """

    decisions: Mapping[str, tuple[Piece, ...]]
    skipped: tuple[Skipped, ...]
    defaults_applied: Mapping[str, int]
    locked: tuple[str, ...]
    untouched: float
    warnings: tuple[Problem, ...]
