"""Whether objects fit: pieces of parameters and parents of groups (recipes.md, Ranks and Misfit; qwen35.md 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.layouts import Tensor
from ninfer_convert.methods.import_encoded import IMPORT_ENCODED
from ninfer_convert.recipe.resolution import Parent, Piece, Rule
from ninfer_convert.recipe.shapes import folded, has_rank

if TYPE_CHECKING:
    from ninfer_convert.formats import Format
    from ninfer_convert.recipe.choices import Choice, Choices
    from ninfer_convert.recipe.complaints import Complaints
    from ninfer_convert.values import Shape

COMPATIBLE = ("format", "layout", "method", "parameters")
"""What the members of a parent have in common."""


class NoParent(ValueError):
    """Why parameters cannot be one object, as a sentence behind their names."""


@dataclass(frozen=True)
class Fitting:
    """Judges objects as they will be stored; what does not fit its layout becomes a complaint."""

    choices: Choices
    complaints: Complaints
    _pieces: dict[int, tuple[Piece, ...]] = field(default_factory=dict)
    """Those of choices, by the identity of these."""

    def pieces(self, name: str, choices: Sequence[Choice]) -> tuple[Piece, ...]:
        """The objects of a parameter whose choices are stored by themselves; () where something is wrong with any.

        Parameters that share choices share their pieces; the choices must live as long as this does.
        """
        known = self._pieces.get(id(choices))
        if known is None:
            pieces = [self._piece(name, choice) for choice in choices]
            known = () if None in pieces else tuple([piece for piece in pieces if piece])
            if known:
                self._pieces[id(choices)] = known
        return known

    def _piece(self, name: str, choice: Choice) -> Piece | None:
        if not self._has_rank(name, choice):
            return None
        shape = folded(choice.format, choice.shape)
        divisors = _divisors([choice])
        misfit = choice.layout.misfit(Tensor(choice.format, shape, divisors))
        if misfit is None:
            return _piece(choice, shape, divisors)
        instead = self._instead((name,), [choice], misfit)
        return self._piece(name, instead[0]) if instead else None

    def parent(
        self, names: tuple[str, ...], members: Sequence[Choice], shape: Shape | None = None, rule: Rule | None = None
    ) -> tuple[Parent, list[Piece]] | None:
        """One object for the choices of several parameters, or of one; `shape` is the parent's where it is said.

        None where something is wrong. Raises NoParent where the members do not go together.
        """
        _check_compatible(names, members)
        if not all(map(self._has_rank, names, members)):
            return None
        first = members[0]
        joined = _joined_shape(first.format, [member.shape for member in members], shape)
        divisors = _divisors(members)
        misfit = first.layout.misfit(Tensor(first.format, joined, divisors))
        if misfit is not None:
            instead = self._instead(names, members, misfit)
            return self.parent(names, instead, shape, rule) if instead else None
        parent = Parent(names, joined, first.format.name, first.layout.name, divisors, rule)
        return parent, [_piece(member, _share(first.format, member.shape, joined)) for member in members]

    def _has_rank(self, name: str, choice: Choice) -> bool:
        if has_rank(choice.format, choice.shape):
            return True
        sentence = (
            f"rank {len(choice.shape)}, but {choice.format.name} takes matrices of rank 2 and banks of rank 3; "
            "keep others out with where = { rank = [2, 3] }"
        )
        self.complaints.add(self.choices.place(choice.verdict, "format"), "rank", sentence, name)
        return False

    def _instead(self, names: Sequence[str], members: Sequence[Choice], misfit: str) -> list[Choice] | None:
        """What the members of an object that does not fit are stored as, where they all name the same format."""
        formats = {member.misfit for member in members}
        if len(formats) == 1 and None not in formats:
            instead = [self.choices.instead(name, member) for name, member in zip(names, members, strict=True)]
            return [choice for choice in instead if choice] if None not in instead else None
        for name, member in zip(names, members, strict=True):
            sentence = f'{misfit}; say misfit = "bf16" (or another format) for it, or choose another format'
            place = self.choices.place(member.verdict, "format")
            self.complaints.add(place, "misfit", sentence, name)
        return None


def _check_compatible(names: Sequence[str], members: Sequence[Choice]) -> None:
    first = members[0]
    for name, member in zip(names, members, strict=True):
        for fact in COMPATIBLE:
            one, other = getattr(first, fact), getattr(member, fact)
            if one != other:
                raise NoParent(f"they differ in {fact}: {names[0]} has {_named(one)}, {name} {_named(other)}")


def _named(value: object) -> object:
    return getattr(value, "name", value)


def _joined_shape(format: Format, shapes: Sequence[Shape], said: Shape | None) -> Shape:
    """The parent's shape (qwen35.md 4.3)."""
    elements = sum(map(prod, shapes))
    if said is not None:
        if prod(said) != elements:
            raise NoParent(f"shape = {list(said)} holds {prod(said)} elements, and they have {elements}")
        joined = said
    elif len(shapes) == 1:
        joined = folded(format, shapes[0])
    elif all(len(shape) == 1 for shape in shapes):
        joined = (elements,)
    elif all(len(shape) == 2 and shape[1] == shapes[0][1] for shape in shapes):
        joined = (elements // shapes[0][1], shapes[0][1])
    else:
        raise NoParent("vectors join by themselves, and matrices of equally many columns; others need a shape")
    if format.category != "direct" and joined:
        for shape in shapes:
            if prod(shape) % joined[-1]:
                raise NoParent(f"a member of shape {list(shape)} does not fill whole rows of {list(joined)}")
    return joined


def _divisors(members: Sequence[Choice]) -> int:
    """How many weight divisors an nvfp4 object has: one, or one for each of its matrices where they differ."""
    if members[0].format.category != "block-scaled":
        return 1
    imported = members[0].method is IMPORT_ENCODED
    if imported and len({divisor for member in members for divisor in member.divisors}) < 2:
        return 1
    matrices = [(len(member.divisors) if imported else 0) or 1 for member in members]
    if len({prod(member.shape) // count for member, count in zip(members, matrices, strict=True)}) > 1:
        raise NoParent("they have weight divisors of their own, which takes equally many rows of each")
    return sum(matrices)


def _share(format: Format, shape: Shape, parent: Shape) -> Shape:
    """What a member of this shape fills of its parent."""
    if format.category == "direct" or not parent:
        return shape
    return (prod(shape) // parent[-1], parent[-1])


def _piece(choice: Choice, shape: Shape, divisors: int = 1) -> Piece:
    return Piece(
        rows=choice.rows,
        shape=shape,
        format=choice.format.name,
        layout=choice.layout.name,
        method=choice.method,
        parameters=choice.parameters,
        non_finite=choice.non_finite,
        rule=choice.verdict.rule,
        places=choice.verdict.places,
        divisors=divisors,
        source=choice.source,
        tensor=choice.tensor,
        transpose=choice.transpose,
        instead_of=choice.instead_of,
    )
