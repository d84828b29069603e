"""How far the activations of each use may be quantized, and what a use needs (recipes.md, Use under Skips)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ninfer_convert.errors import printable
from ninfer_convert.policies import POLICIES
from ninfer_convert.recipe.resolution import Rule, Use

if TYPE_CHECKING:
    from ninfer_convert.recipe import model
    from ninfer_convert.recipe.complaints import Complaints
    from ninfer_convert.recipe.model import Assign, Place
    from ninfer_convert.recipe.selection import Selection

DIVISOR = "activation_input_divisor"
"""The auxiliary without which an nvfp4 weight admits no 4-bit activations."""
NEEDS_DIVISOR = "AllowA4"


class Input(Protocol):
    """One input of a parameter, as the architecture knows it; its members are those of `Use`."""

    @property
    def parameter(self) -> str: ...

    @property
    def input(self) -> str: ...

    @property
    def activation_policy(self) -> str | None: ...

    @property
    def auxiliaries(self) -> Mapping[str, str | float]: ...


@dataclass
class _Entry:
    parameter: str
    input: str
    policy: str = POLICIES[0]
    auxiliaries: dict[str, str | float] = field(default_factory=dict)
    place: Place | None = None
    """Where a recipe says the policy."""
    rule: Rule | None = None

    def say(self, policy: str, place: Place) -> None:
        self.policy, self.place = policy, place


@dataclass
class Uses:
    """Gathers the uses of the parameters that are bound; `out` says why any other is not.

    What an assign says of a parameter's uses comes before what a `[[use]]` says of one.
    """

    selection: Selection
    out: Mapping[str, str]
    complaints: Complaints
    _entries: dict[tuple[str, str], _Entry] = field(default_factory=dict)

    def add_inputs(self, inputs: Iterable[Input]) -> None:
        """The architecture's uses, in its order."""
        for given in inputs:
            if given.parameter not in self.out:
                entry = self._entry(given.parameter, given.input)
                entry.policy = given.activation_policy or entry.policy
                entry.auxiliaries.update(given.auxiliaries)

    def add(self, tables: Iterable[model.Use], assigns: Iterable[tuple[Assign, Collection[str]]]) -> None:
        """What tables say, and each assign of an activation policy of the parameters it applies to."""
        found = [(entry, table, captured) for table in tables for entry, captured in self._matches(table)]
        for assign, names in assigns:
            concerned = [entry for entry in self._entries.values() if entry.parameter in names]
            place = assign.places["activation_policy"]
            if names and not concerned:
                sentence = "activation_policy applies to uses, and no selected parameter has one"
                self.complaints.add(place, "no-use", sentence)
            for entry in concerned:
                entry.say(assign.says["activation_policy"], place)
                entry.rule = Rule.of(assign.place, *assign.select)
        for entry, table, captured in found:
            entry.rule = Rule.of(table.place, table.parameter)
            if table.activation_policy is not None:
                entry.say(table.activation_policy, table.place)
            for role, value in table.auxiliaries.items():
                filled = value if isinstance(value, float) else value.glob.filled(captured)
                entry.auxiliaries[role] = filled
                if isinstance(filled, str):
                    self._check_bound(filled, role, table.place, entry.parameter)

    def finish(self, divisors: Mapping[str, float], nvfp4: Collection[str]) -> tuple[Use, ...]:
        """Every use; `divisors` are those of imported parameters' own inputs, `nvfp4` is stored as that."""
        for entry in self._entries.values():
            if entry.parameter in divisors:
                entry.auxiliaries.setdefault(DIVISOR, divisors[entry.parameter])
            if entry.policy == NEEDS_DIVISOR and entry.parameter in nvfp4 and DIVISOR not in entry.auxiliaries:
                sentence = (
                    f"{NEEDS_DIVISOR} of nvfp4 needs an {DIVISOR} for {printable(entry.input)}: give it in a [[use]]"
                )
                self.complaints.add(entry.place or self.complaints.nowhere, "no-divisor", sentence, entry.parameter)
        return tuple(
            Use(entry.parameter, entry.input, entry.policy, entry.auxiliaries, entry.rule)
            for entry in self._entries.values()
        )

    def _matches(self, table: model.Use) -> Iterable[tuple[_Entry, tuple[str, ...]]]:
        for captured, indices in self.selection.captured(table.parameter, table.optional).items():
            for name in (self.selection.names[index] for index in indices):
                if name in self.out:
                    self.complaints.add(table.parameter.place, "use", f"is {self.out[name]} and has no uses", name)
                    continue
                input = table.input.glob.filled(captured)
                yield self._entry(name, input), captured

    def _entry(self, parameter: str, input: str) -> _Entry:
        return self._entries.setdefault((parameter, input), _Entry(parameter, input))

    def _check_bound(self, name: str, role: str, place: Place, parameter: str) -> None:
        if name not in self.selection.names or name in self.out:
            sentence = f"its auxiliary {role} is to be {printable(name)}, which is not stored"
            self.complaints.add(place, "no-auxiliary", sentence, parameter)
