"""What the auxiliaries of uses must be (container.md 2): judged in the plan, their words before any is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.container import AUXILIARIES
from ninfer_convert.errors import NumericError, Problem, printable, unknown
from ninfer_convert.formats import get_format
from ninfer_convert.methods.import_encoded import IMPORT_ENCODED
from ninfer_convert.sources.views import indices

if TYPE_CHECKING:
    from ninfer_convert.pipeline.planned import Plan
    from ninfer_convert.recipe import Piece, Resolution, Use
    from ninfer_convert.values import Shape, Source


def bad_auxiliaries(resolution: Resolution, shapes: Mapping[str, Shape]) -> Iterator[Problem]:
    """Auxiliaries of a role that no engine knows, or that their role does not allow; `shapes` are the logical ones."""
    for use in resolution.uses:
        for role, value in use.auxiliaries.items():
            if fault := _fault(use, role, value, resolution, shapes):
                message = f"{printable(use.parameter)}: {fault}"
                if use.rule:
                    yield use.rule.place.problem("bad-auxiliary", message, use.parameter)
                else:
                    yield Problem("bad-auxiliary", message, tensor=use.parameter)


def input_columns(
    resolution: Resolution, sources: Mapping[str, Sequence[Source]]
) -> tuple[dict[str, tuple[int, ...]], list[Problem]]:
    """For each parameter whose stored columns stand in another order than its own: where each belongs (qwen35.md 8.3).

    `sources` are what each piece is read from. A problem for one of which pieces differ in it, as a use could not tell.
    """
    found: dict[str, tuple[int, ...]] = {}
    problems = []
    for name, pieces in resolution.decisions.items():
        orders = {*map(_order, pieces, sources[name])}
        if len(orders) > 1:
            message = f"{name}: columns stand otherwise in the pieces that are imported; import all of it, or none"
            rule = next(piece.rule for piece in pieces if piece.rule)
            problems.append(rule.place.problem("cut-columns", message, name))
        elif order := orders.pop():
            found[name] = order
    found |= {alias.name: found[alias.target] for alias in resolution.shares if alias.target in found}
    return found, problems


def _order(piece: Piece, source: Source) -> tuple[int, ...]:
    """The own column of each stored one; () where they are the same."""
    encoding = source.encoding if piece.method is IMPORT_ENCODED else None
    if encoding is None or not encoding.columns:
        return ()
    return tuple(indices(encoding.columns).argsort().tolist())


def _fault(use: Use, role: str, value: str | float, resolution: Resolution, shapes: Mapping[str, Shape]) -> str | None:
    known = AUXILIARIES.get(role)
    if known is None:
        return unknown("auxiliary role", role, AUXILIARIES)
    for format in _formats(use.parameter, resolution):
        if known.category not in (None, get_format(format).category):
            return f"{role} is for {known.category} formats, and it is stored as {format}"
    if isinstance(value, float):
        return None if known.scalar else f"{role} is a number; it must be the name of a parameter"
    for format in _formats(value, resolution):
        if format != known.format:
            return f"{role} is {printable(value)}, stored as {format}; it must be {known.format}"
    shape = shapes[use.parameter]
    fault = known.count_fault(prod(shapes[value]), shape[-1] if len(shape) > 1 else None)
    return fault and f"{role} is {printable(value)}, which {fault}"


def _formats(parameter: str, resolution: Resolution) -> Iterator[str]:
    return (piece.format for piece in resolution.decisions[_stored(parameter, resolution)])


def _stored(parameter: str, resolution: Resolution) -> str:
    """What holds its words: itself, or what it is an alias of."""
    return next((alias.target for alias in resolution.shares if alias.name == parameter), parameter)


def refuse_illegal_words(plan: Plan) -> None:
    """Read the parameters that are auxiliaries; raises NumericError where a role does not allow a word of them."""
    problems = []
    for use in plan.resolution.uses:
        for role, value in use.auxiliaries.items():
            if isinstance(value, str):
                data = _words(plan, _stored(value, plan.resolution))
                for element, fault in AUXILIARIES[role].value_faults(data):
                    message = (
                        f"{printable(use.parameter)}: {role} is {printable(value)}, whose element {element} {fault}"
                    )
                    problems.append(Problem("bad-auxiliary", message, tensor=value))
                    break
    if problems:
        raise NumericError(problems)


def _words(plan: Plan, parameter: str) -> bytes:
    """The words that a parameter of a direct format will be stored as."""
    members = [member for planned in plan.tensors for member in planned.members if member.parameter == parameter]
    return b"".join(member.method.encoder(member.job)(0, member.rows).codes.tobytes() for member in members)
