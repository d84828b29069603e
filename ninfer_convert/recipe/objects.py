"""Which pieces and parameters make which objects (recipes.md, Selecting; qwen35.md 4.1 and 4.2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ninfer_convert.errors import printable
from ninfer_convert.methods import METHODS
from ninfer_convert.recipe.fitting import Fitting, NoParent
from ninfer_convert.recipe.resolution import Parent, Piece, Rule
from ninfer_convert.recipe.selection import natural_keys

if TYPE_CHECKING:
    from ninfer_convert.recipe.choices import Choice
    from ninfer_convert.recipe.complaints import Complaints
    from ninfer_convert.recipe.model import Group
    from ninfer_convert.recipe.selection import Selection
    from ninfer_convert.values import Shape


@dataclass
class Objects:
    """Makes the objects in their order: explicit groups, the architecture's groups, then all that is left.

    `choices` are those of each parameter that is stored, None where something is wrong with it already; `out` says
    why any other is not stored.
    """

    selection: Selection
    choices: Mapping[str, Sequence[Choice] | None]
    out: Mapping[str, str]
    fitting: Fitting
    complaints: Complaints
    parents: list[Parent] = field(default_factory=list)
    _pieces: dict[str, tuple[Piece, ...]] = field(default_factory=dict)
    """Of the parameters that are placed; none where something is wrong."""

    def make(self, table: Group) -> None:
        """A parent for each tuple of captured texts; one that cannot be is an error, or passed by when optional."""
        found = [self.selection.captured(selector, table.optional) for selector in table.select]
        if not all(found):
            return
        rule = Rule.of(table.place, *table.select)
        for captured in sorted({texts for one in found for texts in one}, key=natural_keys):
            members = [self.selection.names[index] for one in found for index in one.get(captured, ())]
            try:
                for selector, one in zip(table.select, found, strict=True):
                    if captured not in one:
                        raise NoParent(f"nothing matches '{printable(selector.glob.text)}' beside them")
                self._place(members, table.shape, rule)
            except NoParent as reason:
                if not table.optional:
                    for name in members:
                        self.complaints.add(table.select[0].place, "group", f"cannot be one object: {reason}", name)

    def make_automatic(self, candidates: Sequence[Sequence[str]], separate: Collection[str]) -> None:
        """The architecture's groups, in its order: each whole, or not at all."""
        for members in candidates:
            if not any(name in separate for name in members) and self._may_be_automatic(members):
                try:
                    self._place(members)
                except NoParent:
                    continue

    def make_rest(self) -> dict[str, tuple[Piece, ...]]:
        """The pieces of every parameter, in the order of the parameters."""
        for name, choices in self.choices.items():
            if name not in self._pieces:
                self._pieces[name] = self.fitting.pieces(name, choices or ())
        return {name: self._pieces[name] for name in self.choices}

    def _place(self, members: Sequence[str], shape: Shape | None = None, rule: Rule | None = None) -> None:
        """Make the parent; raises NoParent where the members do not allow it."""
        choices = [self._single(name) for name in members]
        if len(set(members)) < len(members):
            raise NoParent("one is selected twice")
        sound = [choice for choice in choices if choice]
        made = self.fitting.parent(tuple(members), sound, shape, rule) if len(sound) == len(choices) else None
        self._pieces.update(dict.fromkeys(members, ()))
        if made is not None:
            parent, pieces = made
            self.parents.append(parent)
            self._pieces.update((name, (piece,)) for name, piece in zip(members, pieces, strict=True))

    def _single(self, name: str) -> Choice | None:
        """What an unplaced, uncut parameter is stored as, None where that is wrong already; raises NoParent."""
        if name in self.out:
            raise NoParent(f"{printable(name)} is {self.out[name]}")
        if name in self._pieces:
            raise NoParent(f"{printable(name)} is in a group already")
        choices = self.choices[name]
        if choices is not None and len(choices) > 1:
            raise NoParent(f"{printable(name)} is cut by rows")
        return choices[0] if choices else None

    def _may_be_automatic(self, members: Sequence[str]) -> bool:
        """Whether the members are all stored, by built-in methods, and with one weight divisor if with any."""
        if not all(self.choices.get(name) for name in members):
            return False
        choices = [choice for name in members for choice in self.choices[name] or ()]
        if not all(choice.method.name in METHODS for choice in choices):
            return False
        if choices[0].format.category != "block-scaled":
            return True
        divisors = {divisor for choice in choices for divisor in choice.divisors or (None,)}
        return len(divisors) == 1 and None not in divisors
