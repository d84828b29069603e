"""A recipe against a checkpoint's parameters: every decision, or everything that is wrong (recipes.md, Deciding)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.errors import RecipeError, printable, unknown
from ninfer_convert.formats.nvfp4 import NVFP4
from ninfer_convert.formats.stored import STORED_TYPES
from ninfer_convert.methods.import_encoded import IMPORT_ENCODED
from ninfer_convert.recipe.aliases import find_aliases
from ninfer_convert.recipe.applying import Applying
from ninfer_convert.recipe.choices import Choices, Locate, nowhere_else
from ninfer_convert.recipe.complaints import Complaints, listed
from ninfer_convert.recipe.deciding import decide
from ninfer_convert.recipe.fitting import Fitting
from ninfer_convert.recipe.keys import DIRECT
from ninfer_convert.recipe.model import BASE
from ninfer_convert.recipe.objects import Objects
from ninfer_convert.recipe.resolution import Resolution, Rule, Skipped
from ninfer_convert.recipe.selection import Selection, Subject
from ninfer_convert.recipe.shapes import part_of
from ninfer_convert.recipe.uses import Uses

if TYPE_CHECKING:
    from ninfer_convert.errors import Problem
    from ninfer_convert.recipe.choices import Choice
    from ninfer_convert.recipe.model import Assign, Recipe
    from ninfer_convert.recipe.resolution import Alias, Parent, Piece
    from ninfer_convert.recipe.selection import Indices
    from ninfer_convert.recipe.uses import Input

UNTOUCHED_AT_MOST = 0.2
"""A larger share of elements that no assign decides is worth a warning."""


def resolve(
    recipe: Recipe,
    parameters: Sequence[Subject],
    *,
    inputs: Sequence[Input] = (),
    candidates: Sequence[Sequence[str]] = (),
    sources: Collection[str] = (),
    locate: Locate = nowhere_else,
    allow_code: bool = False,
    requantize: bool = False,
) -> Resolution:
    """Decide how every parameter that is not skipped is stored, and what becomes one object.

    `inputs` are the architecture's uses, `candidates` its automatic groups (names in row order), both in its order.
    `sources` are the names given beside the main input; `locate` finds a parameter there. `allow_code` admits methods
    that are the recipe's own functions, `requantize` quantizing what is decoded from a quantized source. Raises
    RecipeError with everything that does not fit, in file order.
    """
    complaints = Complaints(recipe)
    _check_sources(recipe, sources, complaints)
    aliases, absent = find_aliases(recipe.shares, parameters, complaints)
    subjects = [*parameters, *absent]
    selection = Selection(subjects, complaints)
    skipped = _skips(recipe, selection)
    aliased = {name: f"an alias of {printable(alias.target)} by [[share]]" for name, alias in aliases.items()}
    out = aliased | dict.fromkeys(skipped, "skipped")

    applying = Applying(subjects, skipped, aliased, selection, complaints)
    assigns = [(assign, applying.of(assign)) for assign in recipe.assigns]
    divided, overridden = decide(assigns, [subject.shape for subject in subjects])

    choices = Choices(recipe, complaints, allow_code, requantize, sources, locate)
    chosen = {}
    untouched = {}
    elements = 0
    for subject, regions in zip(parameters, divided, strict=False):  # absent aliases are behind them
        if subject.name not in out:
            chosen[subject.name] = choices.of(subject, regions)
            elements += prod(subject.shape)
            if rows := [region.rows for region in regions if not region.verdict]:
                untouched[subject.name] = sum(prod(part_of(subject.shape, each)) for each in rows)
    shares = tuple(_shares(aliases, skipped, chosen, complaints))
    objects = Objects(selection, chosen, out, Fitting(choices, complaints), complaints)
    for table in recipe.groups:
        objects.make(table)
    separate = [selection.select(table.select, table.optional) for table in recipe.separates]
    objects.make_automatic(candidates, {selection.names[index] for found in separate for index in found})
    decisions = objects.make_rest()

    uses = Uses(selection, dict.fromkeys(skipped, "skipped"), complaints)
    uses.add_inputs(inputs)
    uses.add(recipe.uses, _policies(assigns, selection))
    nvfp4 = {name for name, pieces in decisions.items() for piece in pieces if piece.format == NVFP4.name}
    nvfp4 |= {alias.name for alias in shares if alias.target in nvfp4}
    present = [parameter for parameter in parameters if parameter.name not in skipped]
    found_uses = uses.finish(_input_divisors(present, chosen, decisions, objects.parents), nvfp4)
    if problems := complaints.problems():
        raise RecipeError(problems)

    share = sum(untouched.values()) / elements if elements else 0.0
    return Resolution(
        decisions=decisions,
        groups=tuple(objects.parents),
        shares=shares,
        uses=found_uses,
        skipped=tuple(skipped.values()),
        defaults_applied=dict(choices.defaulted),
        misfits=_misfits(decisions, objects.parents),
        locked=applying.passed_by,
        untouched=share,
        warnings=(
            *_idle_defaults(recipe),
            *applying.warnings,
            *_overridden(overridden),
            *_much_untouched(share, untouched, complaints),
        ),
    )


def _check_sources(recipe: Recipe, given: Collection[str], complaints: Complaints) -> None:
    """Sources that are named without a declaration, by an option or by an assign."""
    known = [*recipe.sources, BASE]
    for name in given:
        if name not in known:
            sentence = f"--source {printable(name)} is given, and the recipe declares no source of that name"
            complaints.add(complaints.nowhere, "undeclared-source", sentence)
    for assign in recipe.assigns:
        source = assign.says.get("source")
        if source is not None and source not in known:
            complaints.add(assign.places["source"], "undeclared-source", unknown("source", source, known))


def _skips(recipe: Recipe, selection: Selection) -> dict[str, Skipped]:
    """What is left out, in the parameters' order; the first table that names it gives the reason."""
    skipped: dict[int, Skipped] = {}
    for skip in recipe.skips:
        for index in selection.select(skip.select, skip.optional):
            rule = Rule.of(skip.place, *skip.select)
            skipped.setdefault(index, Skipped(selection.names[index], skip.reason, rule))
    return {skipped[index].name: skipped[index] for index in sorted(skipped)}


def _shares(
    aliases: Mapping[str, Alias],
    skipped: Collection[str],
    chosen: Mapping[str, Sequence[Choice] | None],
    complaints: Complaints,
) -> Iterator[Alias]:
    """The aliases that are bound; a target must be stored, and in one piece."""
    for alias in aliases.values():
        if alias.name in skipped:
            continue
        choices = chosen.get(alias.target)
        fault = "is skipped" if alias.target in skipped else "is cut by rows" if len(choices or ()) > 1 else None
        if fault is None:
            yield alias
        else:
            sentence = f"cannot be shared with {printable(alias.target)}, which {fault}"
            complaints.add(alias.rule.place, "share", sentence, alias.name)


def _policies(
    assigns: Sequence[tuple[Assign, Indices]], selection: Selection
) -> Iterator[tuple[Assign, Collection[str]]]:
    for assign, indices in assigns:
        if "activation_policy" in assign.says:
            yield assign, {selection.names[index] for index in indices}


def _input_divisors(
    parameters: Sequence[Subject],
    chosen: Mapping[str, Sequence[Choice] | None],
    decisions: Mapping[str, Sequence[Piece]],
    parents: Sequence[Parent],
) -> dict[str, float]:
    """The divisors of imported weights' inputs; the members of one parent take the smallest of theirs (qwen35.md 3)."""
    divisors = {}
    for parameter in parameters:
        choices = chosen.get(parameter.name)
        divisor = (choices[0].subject if choices else parameter).input_divisor
        if divisor is None:
            continue
        if all(piece.method is IMPORT_ENCODED for piece in decisions.get(parameter.name, ())):
            divisors[parameter.name] = divisor
    for parent in parents:
        known = [divisors[name] for name in parent.members if name in divisors]
        if known:
            divisors.update(dict.fromkeys(parent.members, min(known)))
    return divisors


def _misfits(decisions: Mapping[str, Sequence[Piece]], parents: Sequence[Parent]) -> dict[str, int]:
    """Objects that took another format, by the one that did not fit."""
    joined = {name for parent in parents for name in parent.members[1:]}
    pieces = [piece for name, found in decisions.items() if name not in joined for piece in found]
    return dict(Counter(piece.instead_of for piece in pieces if piece.instead_of is not None))


def _idle_defaults(recipe: Recipe) -> Iterator[Problem]:
    for stored in recipe.defaults:
        kept = STORED_TYPES[stored].identical
        if kept in DIRECT:
            message = (
                f"{stored} under [defaults] has no effect: {stored} is kept as {kept} where no assign decides; "
                f'assign with where = {{ dtype = "{stored}" }} instead'
            )
            yield recipe.places[f"defaults.{stored}"].problem("idle-default", message)


def _overridden(assigns: Sequence[Assign]) -> Iterator[Problem]:
    for assign in assigns:
        message = "later assigns of this file take back everything that this one decides"
        yield assign.place.problem("overridden", message)


def _much_untouched(share: float, untouched: Mapping[str, int], complaints: Complaints) -> Iterator[Problem]:
    if share > UNTOUCHED_AT_MOST:
        largest = listed(sorted(untouched, key=lambda name: -untouched[name]))
        message = f"no assign decides {share:.0%} of the elements; the largest parameters among them are {largest}"
        yield complaints.nowhere.problem("untouched", message)
