"""Which parameters a table speaks of (recipes.md, Selecting)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Protocol

from ninfer_convert.errors import nearest, printable
from ninfer_convert.natural import natural_key
from ninfer_convert.recipe.complaints import listed
from ninfer_convert.recipe.layers import depths

if TYPE_CHECKING:
    from ninfer_convert.recipe.complaints import Complaints
    from ninfer_convert.recipe.globs import Glob
    from ninfer_convert.recipe.model import Place, Selector, Where
    from ninfer_convert.values import Shape

Indices = frozenset[int]
"""Parameters by their index."""


class Subject(Protocol):
    """A logical parameter, as much of it as decides.

    `identical` is the format that keeps its stored words, None where none does; `exact` names all that these reach
    without decoding. `direct` is the format that the architecture gives it where no assign speaks, None its stored
    words; `locked` says why it takes no other. `divisors` are those of nvfp4 words, one for each of the matrices
    stacked along the rows, () where they have none; `input_divisor` is that of their inputs. `tensors` are the stored
    tensors that it is made from.
    """

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> Shape: ...

    @property
    def stored(self) -> str: ...

    @property
    def identical(self) -> str | None: ...

    @property
    def exact(self) -> Sequence[str]: ...

    @property
    def direct(self) -> str | None: ...

    @property
    def locked(self) -> str | None: ...

    @property
    def divisors(self) -> Sequence[float]: ...

    @property
    def input_divisor(self) -> float | None: ...

    @property
    def tensors(self) -> Sequence[str]: ...


SPREAD_AT_MOST = 1000
HINTS_AT_MOST = 20


class Names:
    """The names of a checkpoint's parameters, which globs select from; every answer is kept."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._text = "\n".join(names)
        self._all = frozenset(range(len(names)))
        self._index = {name: index for index, name in enumerate(names)}
        self._matching: dict[str, Indices] = {}
        self._holding: dict[str, Indices] = {}

    def matching(self, glob: Glob) -> Indices:
        found = self._matching.get(glob.text)
        if found is None:
            found = self._matching[glob.text] = self._match(glob)
        return found

    def nearest(self, glob: Glob, count: int = 3) -> list[str]:
        """Names close to a glob that matches none: an open end is compared with as much of each name."""
        wanted = "".join(glob.words)
        cut = len(wanted)
        close_to: dict[str, str] = {}
        for name in self.names:
            if glob.text.startswith("*"):
                close_to.setdefault(name[-cut:], name)
            elif glob.text.endswith("*"):
                close_to.setdefault(name[:cut], name)
            else:
                close_to.setdefault(name, name)
        return [close_to[part] for part in nearest(wanted, close_to, count)]

    def _match(self, glob: Glob) -> Indices:
        if glob.literal is not None:
            index = self._index.get(glob.literal)
            return frozenset() if index is None else frozenset({index})
        if glob.text == "*":
            return self._all
        # Looking for a word in all names is many times quicker than matching a glob, and most globs have a rare one,
        # braces spread out at the latest.
        found: set[int] = set()
        for one in glob.spread(SPREAD_AT_MOST):
            candidates = self._all
            for word in one.words:
                candidates &= self._all_holding(word)
            found.update(index for index in candidates if one.matches(self.names[index]))
        return frozenset(found)

    def _all_holding(self, word: str) -> Indices:
        found = self._holding.get(word)
        if found is None:
            names = enumerate(self.names if word in self._text else ())
            found = self._holding[word] = frozenset([index for index, name in names if word in name])
        return found


class Selection:
    """Selects among the parameters of a checkpoint; what is wrong with a selection becomes a complaint."""

    def __init__(self, subjects: Sequence[Subject], complaints: Complaints) -> None:
        self._subjects = subjects
        self._complaints = complaints
        self.names = [subject.name for subject in subjects]
        self._index = Names(self.names)
        self._admitted: dict[Where, Indices] = {}
        self._empty = 0

    def select(self, select: Sequence[Selector], optional: bool, where: Where | None = None) -> Indices:
        """The parameters that any glob matches and `where` admits.

        Every glob must match something, and something must be left, unless the table is optional.
        """
        found = [self._matching(selector, optional) for selector in select]
        selected = found[0].union(*found[1:])
        if where is None or not selected:
            return selected
        left = selected & self._admitted_by(where)
        if not left and not optional:
            sentence = f"where admits none of the {len(selected)} selected parameters"
            self._complaints.add(where.place, "nothing-matches", sentence + self._way_out(where.place))
        return left

    def captured(self, selector: Selector, optional: bool) -> dict[tuple[str, ...], list[int]]:
        """Parameters in natural order, by what the stars of a glob take of their names, in natural order too."""
        captured: dict[tuple[str, ...], list[int]] = {}
        matching = self._matching(selector, optional)
        for index in sorted(matching, key=lambda index: natural_key(self.names[index])):
            texts = selector.glob.captures(self.names[index])
            assert texts is not None
            captured.setdefault(texts, []).append(index)
        return {texts: captured[texts] for texts in sorted(captured, key=natural_keys)}

    def _matching(self, selector: Selector, optional: bool) -> Indices:
        matching = self._index.matching(selector.glob)
        if not matching and not optional:
            self._complaints.add(selector.place, "nothing-matches", self._matches_nothing(selector))
        return matching

    def _admitted_by(self, where: Where) -> Indices:
        admitted = self._admitted.get(where)
        if admitted is None:
            judge = cache(partial(admits, where))  # parameters are of few shapes and types
            admitted = self._admitted[where] = frozenset(
                index
                for index, subject in enumerate(self._subjects)
                if judge(subject.shape, subject.stored)
                and (where.depth is None or _within(where.depth, self._depths[index]))
            )
        return admitted

    @cached_property
    def _depths(self) -> list[float | None]:
        return depths(self.names)

    def _matches_nothing(self, selector: Selector) -> str:
        glob = selector.glob
        message = f"'{printable(glob.text)}' matches no parameter"
        if tensors := self._tensors.matching(glob):
            return f"{message}, but {self._told(tensors)}, and plan lists all"
        if selector.place.path in self._complaints.builtin:
            return message + self._way_out(selector.place)
        self._empty += 1
        # Closeness costs milliseconds a glob, and nobody reads hundreds of hints.
        close = self._index.nearest(glob) if self._empty <= HINTS_AT_MOST else []
        if close:
            message += f" (did you mean {' or '.join(printable(name) for name in close)}?)"
        return message + self._way_out(selector.place)

    def _way_out(self, place: Place) -> str:
        """The end of the sentence about a table that selects nothing: what whoever wrote it can do."""
        if place.path in self._complaints.builtin:
            return ", so this recipe does not fit the model: take another"
        return "; optional = true allows an empty selection" if place.in_file else ""

    @cached_property
    def _made_of(self) -> dict[str, list[str]]:
        """The parameters that are made from each tensor."""
        made: dict[str, list[str]] = {}
        for subject in self._subjects:
            for tensor in subject.tensors:
                made.setdefault(tensor, []).append(subject.name)
        return made

    @cached_property
    def _tensors(self) -> Names:
        return Names([*self._made_of])

    def _told(self, tensors: Indices) -> str:
        """Tensors that would be selected, by what is made of the first."""
        first = self._tensors.names[min(tensors)]
        count = "a tensor" if len(tensors) == 1 else f"{len(tensors)} tensors"
        made = listed(self._made_of[first])
        return f"{count}; parameters have names of their own here: {printable(first)} is {made}"


def natural_keys(texts: Sequence[str]) -> list[str]:
    """A sort key for captured texts, one after the other in natural order."""
    return [natural_key(text) for text in texts]


def admits(where: Where, shape: Shape, stored: str) -> bool:
    """Whether a parameter of this shape and stored type passes every condition on itself."""
    rows, columns = rows_and_columns(shape)
    return (
        (where.rank is None or len(shape) in where.rank)
        and (where.dtype is None or stored in where.dtype)
        and (where.min_rows is None or rows >= where.min_rows)
        and (where.max_rows is None or rows <= where.max_rows)
        and (where.min_columns is None or columns >= where.min_columns)
        and (where.max_columns is None or columns <= where.max_columns)
        and (where.min_elements is None or rows * columns >= where.min_elements)
        and (where.multiple_of is None or columns % where.multiple_of == 0)
    )


def _within(depth: tuple[float, float], part: float | None) -> bool:
    return part is not None and depth[0] <= part < depth[1]


def rows_and_columns(shape: Shape) -> tuple[int, int]:
    """Columns are the last axis, rows the product of the others; a scalar is one of each."""
    return (prod(shape[:-1]), shape[-1]) if shape else (1, 1)
