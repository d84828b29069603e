"""Which parameters an assign applies to: selected, stored, not locked, and with the rows it speaks of (recipes.md)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ninfer_convert.recipe.keys import BACK_REFERENCE
from ninfer_convert.recipe.schema import LOCKABLE

if TYPE_CHECKING:
    from ninfer_convert.errors import Problem
    from ninfer_convert.recipe.complaints import Complaints
    from ninfer_convert.recipe.model import Assign
    from ninfer_convert.recipe.selection import Indices, Selection, Subject

OF_ALIASES = {"activation_policy"}
"""What can be said of an alias, which is stored nowhere but has uses of its own."""


@dataclass
class Applying:
    """Tells what each assign applies to; what is wrong with that becomes a complaint.

    `subjects` are the parameters and the aliases that the checkpoint lacks; `skipped` and `aliases` are names.
    """

    subjects: Sequence[Subject]
    skipped: Collection[str]
    aliases: Mapping[str, str]
    """Why an alias takes no decision, by its name."""
    selection: Selection
    complaints: Complaints
    warnings: list[Problem] = field(default_factory=list)
    _passed_by: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._skipped = self._indices(self.skipped)
        self._aliases = self._indices(self.aliases)
        self._locked = frozenset(index for index, subject in enumerate(self.subjects) if subject.locked is not None)

    def of(self, assign: Assign) -> Indices:
        selected = self.selection.select(assign.select, assign.optional, assign.where)
        bound = selected - self._skipped
        if selected and not bound:
            message = "every parameter that this assign selects is skipped"
            self.warnings.append(assign.place.problem("all-skipped", message))
        if len(bound) > 1 and "tensor" in assign.says and not BACK_REFERENCE.search(assign.says["tensor"]):
            sentence = f"tensor names one tensor for {len(bound)} parameters; select one, or refer to its stars by \\1"
            self.complaints.add(assign.places["tensor"], "one-tensor", sentence)
        return self._with_rows(assign, self._deciding(assign, bound))

    @property
    def passed_by(self) -> tuple[str, ...]:
        """Names of the locked parameters that a wildcard selected."""
        return tuple(self.subjects[index].name for index in sorted(self._passed_by))

    def _deciding(self, assign: Assign, bound: Indices) -> Indices:
        """The parameters that may take what the assign says: a wildcard passes the others by."""
        if assign.rows is not None or not assign.says.keys() <= OF_ALIASES:
            bound = self._passing(assign, bound, self._aliases)
        if assign.rows is not None or not assign.says.keys().isdisjoint(LOCKABLE):
            self._passed_by |= bound & self._locked
            bound = self._passing(assign, bound, self._locked)
        return bound

    def _passing(self, assign: Assign, bound: Indices, closed: Indices) -> Indices:
        """The parameters that are open; to name a closed one is wrong."""
        shut = bound & closed
        if shut:
            named = {selector.glob.literal: selector.place for selector in assign.select}
            for index in sorted(shut):
                subject = self.subjects[index]
                if subject.name in named:
                    why = self.aliases.get(subject.name) or f"locked: {subject.locked}"
                    self.complaints.add(named[subject.name], "locked", f"is {why}", subject.name)
        return bound - shut

    def _with_rows(self, assign: Assign, selected: Indices) -> Indices:
        """Those of the selected that have the rows the assign speaks of."""
        if assign.rows is None:
            return selected
        fitting = set()
        for index in sorted(selected):
            subject = self.subjects[index]
            if not subject.shape:
                sentence = "a scalar has no rows"
            elif assign.rows[1] > subject.shape[0]:
                sentence = f"rows = {list(assign.rows)} ends beyond the first axis, which is {subject.shape[0]} long"
            else:
                fitting.add(index)
                continue
            self.complaints.add(assign.places["rows"], "rows-end", sentence, subject.name)
        return frozenset(fitting)

    def _indices(self, names: Collection[str]) -> Indices:
        if not names:
            return frozenset()
        return frozenset(index for index, subject in enumerate(self.subjects) if subject.name in names)
