"""What resolving a recipe against a checkpoint's parameters gives (recipes.md, Deciding and Selecting)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ninfer_convert.errors import Problem
    from ninfer_convert.methods import Method
    from ninfer_convert.recipe.model import Place, Selector
    from ninfer_convert.values import Shape


@dataclass(frozen=True)
class Rule:
    """The table that decided: where it stands, and the globs that select."""

    place: Place
    select: str

    @classmethod
    def of(cls, place: Place, *selectors: Selector) -> Rule:
        return cls(place, ", ".join(selector.glob.text for selector in selectors))


@dataclass(frozen=True, eq=False)
class Piece:
    """How one object's worth of a parameter is stored; parameters that are alike share theirs.

    `rows` are those of the parameter's first axis that it takes, None for all; `shape` is the object's, folded to
    [rows, columns] for two-dimensional formats; of a member of a group, what it fills of the parent. `source` and
    `tensor` say where its values are read, None for the parameter's own place; `transpose` swaps their last two axes
    first. `rule` is the assign that gave the format, else the last that gave anything, None where none did; `places`
    tells where each field that an assign decided is said. `non_finite` is "refuse" for all but the direct formats.
    `divisors` counts the weight divisors of an nvfp4 object (of a member, its parent says). `instead_of` is the format
    that was asked for, where its layout could not hold the object.
    """

    rows: tuple[int, int] | None
    shape: Shape
    format: str
    layout: str
    method: Method
    parameters: Mapping[str, Any]
    non_finite: str
    rule: Rule | None
    places: Mapping[str, Place]
    divisors: int = 1
    source: str | None = None
    tensor: str | None = None
    transpose: bool = False
    instead_of: str | None = None


@dataclass(frozen=True)
class Parent:
    """One object for several parameters, or for one by itself: the members' elements one behind the other.

    Members of a two-dimensional format fill whole rows. `divisors` counts nvfp4's weight divisors. `rule` is the
    `[[group]]`, None for an automatic group of the architecture.
    """

    members: tuple[str, ...]
    shape: Shape
    format: str
    layout: str
    divisors: int
    rule: Rule | None


@dataclass(frozen=True)
class Alias:
    """A parameter bound to what another is stored as.

    `target` is stored itself. `stored` says that the checkpoint has the alias too: its words must be the target's.
    """

    name: str
    target: str
    stored: bool
    rule: Rule


@dataclass(frozen=True)
class Use:
    """One input of a parameter: how far activations may be quantized, and what that needs.

    `auxiliaries` map a role to the name of a parameter, or to the binary32 value of a scalar. `rule` is the `[[use]]`
    that made or amended it last, else the assign that gave its policy, None where none did.
    """

    parameter: str
    input: str
    activation_policy: str
    auxiliaries: Mapping[str, str | float]
    rule: Rule | None


@dataclass(frozen=True)
class Skipped:
    """A parameter that is left out."""

    name: str
    reason: str
    rule: Rule


@dataclass(frozen=True)
class Resolution:
    """Every decision.

    `decisions` are in the order of the parameters, without aliases; a parameter of several pieces is cut. `groups`
    come in the order of their objects, before all others. `uses` are in the architecture's order, new ones last.
    `defaults_applied` counts the parameters that took a `[defaults]` entry, by stored type; `misfits` the objects that
    took another format, by the one that did not fit. `locked` names the
    parameters that a wildcard passed by because they are locked. `untouched` is the share of stored elements that no
    assign decided.
    """

    decisions: Mapping[str, tuple[Piece, ...]]
    groups: tuple[Parent, ...]
    shares: tuple[Alias, ...]
    uses: tuple[Use, ...]
    skipped: tuple[Skipped, ...]
    defaults_applied: Mapping[str, int]
    misfits: Mapping[str, int]
    locked: tuple[str, ...]
    untouched: float
    warnings: tuple[Problem, ...]
