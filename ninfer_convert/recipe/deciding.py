"""Which assign decides which field of which region (recipes.md, Deciding).

Assigns are walked from the last to the first: a field belongs to the first that speaks of it there, and one that gives
the format closes the fields that a format takes back from those before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ninfer_convert.recipe.model import Assign
from ninfer_convert.recipe.resolution import Rule
from ninfer_convert.recipe.schema import CLEARED_BY_FORMAT, DECISIONS

if TYPE_CHECKING:
    from ninfer_convert.recipe.model import Place
    from ninfer_convert.recipe.selection import Indices
    from ninfer_convert.values import Shape


class Verdict(dict[str, Assign]):
    """The assign that decides each field that any decides; regions for which all is the same share one."""

    @cached_property
    def said(self) -> Mapping[str, Any]:
        """What is decided."""
        return {field: assign.says[field] for field, assign in self.items()}

    @cached_property
    def places(self) -> Mapping[str, Place]:
        """Where it is said."""
        return {field: assign.places[field] for field, assign in self.items()}

    @cached_property
    def elsewhere(self) -> bool:
        """Whether the values are read from another place than the parameter's own."""
        return "source" in self or "tensor" in self

    @cached_property
    def whole(self) -> tuple[Region, ...]:
        """The regions of the parameters that it decides uncut."""
        return (Region(None, self),)

    @cached_property
    def rule(self) -> Rule | None:
        """Who gave the format, else the last that gave anything: verdicts are found from the last assign on."""
        if not self:
            return None
        assign = self.get("format") or next(iter(self.values()))
        return Rule.of(assign.place, *assign.select)


@dataclass(frozen=True, eq=False)
class Region:
    """Rows of a parameter's first axis, None for all of it, and who decides there.

    Uncut parameters of one verdict share theirs.
    """

    rows: tuple[int, int] | None
    verdict: Verdict


def decide(
    assigns: Sequence[tuple[Assign, Indices]], shapes: Sequence[Shape]
) -> tuple[list[tuple[Region, ...]], list[Assign]]:
    """The regions of each parameter, and the assigns that later ones of the same file override wholly.

    `assigns` come in order with the parameters they apply to, `shapes` are the parameters'. A parameter is cut at the
    ends of all `rows` that apply to it.
    """
    regions = _Regions(assigns, shapes)
    decided = _Decided()
    decided_in_file = _Decided()
    overridden = []
    path = None
    for assign, parameters in reversed(assigns):
        if assign.place.path != path:
            path = assign.place.path
            decided_in_file = _Decided()
        numbers = regions.of(parameters, assign.rows)
        if not decided_in_file.take(assign, numbers) and numbers:
            overridden.append(assign)
        for field, taken in decided.take(assign, numbers).items():
            regions.give(field, assign, taken)
    return regions.by_parameter(), overridden[::-1]


class _Decided:
    """The regions in which a field is decided already, field by field."""

    def __init__(self) -> None:
        self._fields: dict[str, set[int]] = {field: set() for field in DECISIONS}

    def take(self, assign: Assign, numbers: Indices) -> Mapping[str, Indices]:
        """The regions that this assign decides, by field; empty if it has come too late everywhere."""
        taken = {field: self._close(field, numbers) for field in assign.says}
        if "format" in assign.says:
            for field in CLEARED_BY_FORMAT:
                self._close(field, numbers)
        return {field: regions for field, regions in taken.items() if regions}

    def _close(self, field: str, numbers: Indices) -> Indices:
        taken = numbers - self._fields[field]
        self._fields[field] |= taken
        return taken


@dataclass(frozen=True)
class _Cut:
    """A cut parameter: the ends of its regions in rows, and the number of the first."""

    first: int
    ends: list[int]

    def numbers(self, rows: tuple[int, int] | None) -> range:
        """The regions within `rows`, which end where regions do."""
        begin, end = rows or (self.ends[0], self.ends[-1])
        return range(self.first + bisect_left(self.ends, begin), self.first + bisect_left(self.ends, end))


class _Regions:
    """Numbers for the regions: an uncut parameter's own index, further numbers for those of the cut ones."""

    def __init__(self, assigns: Sequence[tuple[Assign, Indices]], shapes: Sequence[Shape]) -> None:
        points: dict[int, set[int]] = {}
        for assign, parameters in assigns:
            if assign.rows is not None:
                for parameter in parameters:
                    points.setdefault(parameter, {0, shapes[parameter][0]}).update(assign.rows)
        self.count = self._parameters = len(shapes)
        self._cuts: dict[int, _Cut] = {}
        for parameter, ends in points.items():
            self._cuts[parameter] = _Cut(self.count, sorted(ends))
            self.count += len(ends) - 1
        self._cut = frozenset(self._cuts)
        self._verdicts = [Verdict()] * self.count

    def of(self, parameters: Indices, rows: tuple[int, int] | None) -> Indices:
        """The numbers of the regions of these parameters, or of those within `rows` of them."""
        cut = parameters & self._cut
        if not cut:
            return parameters
        return (parameters - cut).union(*(self._cuts[parameter].numbers(rows) for parameter in cut))

    def give(self, field: str, assign: Assign, numbers: Iterable[int]) -> None:
        """Let `assign` decide a field of these regions."""
        grown: dict[int, Verdict] = {}
        for number in numbers:
            old = self._verdicts[number]
            new = grown.get(id(old))
            if new is None:
                new = grown[id(old)] = Verdict({**old, field: assign})
            self._verdicts[number] = new

    def by_parameter(self) -> list[tuple[Region, ...]]:
        return [self._regions(parameter) for parameter in range(self._parameters)]

    def _regions(self, parameter: int) -> tuple[Region, ...]:
        cut = self._cuts.get(parameter)
        if cut is None:
            return self._verdicts[parameter].whole
        ends = enumerate(pairwise(cut.ends), start=cut.first)
        return tuple(Region(rows, self._verdicts[number]) for number, rows in ends)
