"""Shapes of regions of parameters, and of the objects that hold them (recipes.md, Ranks)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ninfer_convert.recipe.selection import rows_and_columns

if TYPE_CHECKING:
    from ninfer_convert.formats import Format
    from ninfer_convert.recipe.selection import Subject
    from ninfer_convert.values import Shape


def part_of(shape: Shape, rows: tuple[int, int] | None) -> Shape:
    """The shape of rows [begin, end) of the first axis, of the whole for None."""
    return shape if rows is None else (rows[1] - rows[0], *shape[1:])


def swapped(shape: Shape) -> Shape:
    """The shape with its last two axes swapped, where it has two."""
    return (*shape[:-2], *reversed(shape[-2:]))


def folded(format: Format, shape: Shape) -> Shape:
    """The shape of the object that holds a region of this shape: banks become rows (recipes.md, Ranks)."""
    return shape if format.category == "direct" else rows_and_columns(shape)


def has_rank(format: Format, shape: Shape) -> bool:
    """Whether a format takes this rank: the direct ones any, the others matrices and banks."""
    return format.category == "direct" or len(shape) in (2, 3)


def divisors_of(subject: Subject, rows: tuple[int, int] | None) -> Sequence[float]:
    """The weight divisors of rows [begin, end) of the first axis, of the whole for None."""
    divisors = subject.divisors
    if rows is None or len(divisors) < 2:
        return divisors
    begin, end = (row * len(divisors) // subject.shape[0] for row in rows)
    return divisors[begin:end]
