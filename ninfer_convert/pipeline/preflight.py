"""What a conversion refuses before it begins, and a plan cannot know: some words are read, functions are run."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.methods.callable import CallableMethod
from ninfer_convert.pipeline.auxiliaries import refuse_illegal_words

if TYPE_CHECKING:
    from ninfer_convert.pipeline.planned import Plan
    from ninfer_convert.values import Source

PIECE_ELEMENTS = 1 << 20


def preflight(plan: Plan) -> None:
    """Raise SourceError for aliases that hold other words than their targets, NumericError for auxiliaries of words
    that their role does not allow, RecipeError for a function of the recipe's own that cannot be loaded."""
    _refuse_different_twins(plan)
    refuse_illegal_words(plan)
    for planned in plan.tensors:
        for member in planned.members:
            if isinstance(member.method, CallableMethod):
                member.method.load()


def _refuse_different_twins(plan: Plan) -> None:
    """An alias that the checkpoint holds too must hold the words of its target (recipes.md, Share)."""
    problems = []
    for twin in plan.twins:
        if not _same_words(twin.source, twin.target_source):
            message = f"{twin.name}: its words are not those of {twin.target}, with which [[share]] would bind it"
            problems.append(Problem("not-shared", message, path=twin.source.origins[0].file, tensor=twin.name))
    if problems:
        raise SourceError(problems)


def _same_words(a: Source, b: Source) -> bool:
    if a.stored != b.stored:
        return False
    elements = prod(a.shape)
    for begin in range(0, elements, PIECE_ELEMENTS):
        end = min(begin + PIECE_ELEMENTS, elements)
        if a.values(begin, end).array.tobytes() != b.values(begin, end).array.tobytes():
            return False
    return True
