"""A recipe against a checkpoint's parameters: every decision, or everything that is wrong (recipes.md, Deciding)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.errors import RecipeError
from ninfer_convert.formats.stored import STORED_TYPES
from ninfer_convert.recipe.complaints import Complaints, listed
from ninfer_convert.recipe.deciding import decide
from ninfer_convert.recipe.pieces import Pieces, part_of
from ninfer_convert.recipe.resolution import Resolution, Rule, Skipped
from ninfer_convert.recipe.schema import DIRECT, LOCKABLE
from ninfer_convert.recipe.selection import Indices, Selection, Subject

if TYPE_CHECKING:
    from ninfer_convert.errors import Problem
    from ninfer_convert.recipe.deciding import Region
    from ninfer_convert.recipe.model import Assign, Recipe

UNTOUCHED_AT_MOST = 0.2
"""A larger share of elements that no assign decides is worth a warning."""


def resolve(
    recipe: Recipe, parameters: Sequence[Subject], *, allow_code: bool = False, requantize: bool = False
) -> Resolution:
    """Decide format, layout and method of every parameter that is not skipped.

    `allow_code` admits methods that are the recipe's own functions, `requantize` quantizing what is decoded from a
    quantized source. Raises RecipeError with everything that does not fit, in file order.
    """
    complaints = Complaints(recipe)
    selection = Selection(parameters, complaints)
    locks = _Locks(parameters, complaints)
    skipped = _skips(recipe, parameters, selection)
    warnings = list(_idle_defaults(recipe))
    applying: list[tuple[Assign, Indices]] = []
    for assign in recipe.assigns:
        selected = selection.select(assign.select, assign.optional, assign.where)
        stored = selected - skipped.keys()
        if selected and not stored:
            warnings.append(assign.place.problem("all-skipped", "every parameter that this assign selects is skipped"))
        applying.append((assign, _with_rows(assign, locks.unlocked(assign, stored), parameters, complaints)))
    regions, overridden = decide(applying, [subject.shape[0] if subject.shape else None for subject in parameters])
    for assign in overridden:
        message = "later assigns of this file take back everything that this one decides"
        warnings.append(assign.place.problem("overridden", message))

    pieces = Pieces(recipe, complaints, allow_code, requantize)
    decisions = {
        subject.name: pieces.of(subject, regions[index])
        for index, subject in enumerate(parameters)
        if index not in skipped
    }
    if problems := complaints.problems():
        raise RecipeError(problems)
    untouched = _untouched(parameters, regions, skipped)
    total = sum(prod(subject.shape) for index, subject in enumerate(parameters) if index not in skipped)
    share = sum(untouched.values()) / total if total else 0.0
    if share > UNTOUCHED_AT_MOST:
        largest = listed(sorted(untouched, key=lambda name: -untouched[name]))
        message = f"no assign decides {share:.0%} of the elements; the largest parameters among them are {largest}"
        warnings.append(complaints.nowhere.problem("untouched", message))
    return Resolution(
        decisions=decisions,
        skipped=tuple(skipped.values()),
        defaults_applied={stored: len(names) for stored, names in pieces.defaulted.items()},
        locked=locks.passed_by,
        untouched=share,
        warnings=tuple(warnings),
    )


def _skips(recipe: Recipe, parameters: Sequence[Subject], selection: Selection) -> dict[int, Skipped]:
    """What is left out, by index and in the parameters' order; the first table that names it gives the reason."""
    skipped: dict[int, Skipped] = {}
    for skip in recipe.skips:
        for index in selection.select(skip.select, skip.optional):
            skipped.setdefault(index, Skipped(parameters[index].name, skip.reason, Rule.of(skip)))
    return dict(sorted(skipped.items()))


def _with_rows(assign: Assign, selected: Indices, parameters: Sequence[Subject], complaints: Complaints) -> Indices:
    """Those of the selected that have the rows the assign speaks of."""
    if assign.rows is None:
        return selected
    fitting = set()
    for index in sorted(selected):
        subject = parameters[index]
        if not subject.shape:
            sentence = "a scalar has no rows"
        elif assign.rows[1] > subject.shape[0]:
            sentence = f"rows = {list(assign.rows)} ends beyond the first axis, which is {subject.shape[0]} long"
        else:
            fitting.add(index)
            continue
        complaints.add(assign.places["rows"], "rows-end", sentence, subject.name)
    return frozenset(fitting)


def _idle_defaults(recipe: Recipe) -> Iterator[Problem]:
    for stored in recipe.defaults:
        kept = STORED_TYPES[stored].identical
        if kept in DIRECT:
            message = (
                f"{stored} under [defaults] has no effect: {stored} is kept as {kept} where no assign decides; "
                f'assign with where = {{ dtype = "{stored}" }} instead'
            )
            yield recipe.places[f"defaults.{stored}"].problem("idle-default", message)


def _untouched(
    parameters: Sequence[Subject], regions: Sequence[Sequence[Region]], skipped: Mapping[int, Skipped]
) -> dict[str, int]:
    """Elements that no assign decides, by parameter."""
    elements: dict[str, int] = {}
    for index, subject in enumerate(parameters):
        for region in regions[index]:
            if index not in skipped and not region.verdict:
                elements[subject.name] = elements.get(subject.name, 0) + prod(part_of(subject.shape, region.rows))
    return elements


class _Locks:
    """Parameters that the architecture holds to their direct format: a wildcard passes them by."""

    def __init__(self, parameters: Sequence[Subject], complaints: Complaints) -> None:
        self._parameters = parameters
        self._complaints = complaints
        self._locked = frozenset(index for index, subject in enumerate(parameters) if subject.locked is not None)
        self._passed_by: set[int] = set()

    def unlocked(self, assign: Assign, selected: Indices) -> Indices:
        """The selected parameters that may take what the assign says."""
        if assign.rows is None and assign.says.keys().isdisjoint(LOCKABLE):
            return selected
        locked = selected & self._locked
        named = {selector.glob.literal: selector.place for selector in assign.select}
        for index in sorted(locked):
            subject = self._parameters[index]
            if subject.name in named:
                self._complaints.add(named[subject.name], "locked", f"is locked: {subject.locked}", subject.name)
        self._passed_by |= locked
        return selected - locked

    @property
    def passed_by(self) -> tuple[str, ...]:
        return tuple(self._parameters[index].name for index in sorted(self._passed_by))
