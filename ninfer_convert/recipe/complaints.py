"""Gathering what is wrong while a recipe is resolved, to be reported together in file order (recipes.md, Errors)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ninfer_convert.errors import Problem, printable
from ninfer_convert.recipe.model import Place, Recipe

NAMED_AT_MOST = 3


class Complaints:
    """Problems of one recipe: one for each place and sentence, naming the parameters it is about."""

    def __init__(self, recipe: Recipe) -> None:
        self._files = [str(file.path) for file in recipe.files]
        self.builtin = frozenset(str(file.path) for file in recipe.files if file.builtin)
        """Files that the user has not written."""
        self._about: dict[tuple[Place, str, str], dict[str, str | None]] = {}
        self.nowhere = Place(self._files[-1])
        """The place of what no line of the recipe says."""

    def add(
        self, place: Place, code: str, sentence: str, parameter: str | None = None, stored: str | None = None
    ) -> None:
        """`sentence` follows the names of the parameters, the numbers of each stored type where it matters, a colon."""
        names = self._about.setdefault((place, code, sentence), {})
        if parameter is not None:
            names[parameter] = stored

    def problems(self) -> list[Problem]:
        found = [
            place.problem(code, f"{_about(names)}: {sentence}" if names else sentence, next(iter(names), None))
            for (place, code, sentence), names in self._about.items()
        ]
        return sorted(found, key=self._position)

    def _position(self, problem: Problem) -> tuple[int, float, int]:
        # Overrides come behind all files; what has no line of its own behind what has.
        path = problem.path or ""
        file = self._files.index(path) if path in self._files else len(self._files)
        return file, problem.line if problem.line is not None else float("inf"), problem.column or 0


def _about(names: Mapping[str, str | None]) -> str:
    """`a, b, c and 4 more (5 Q4_K, 2 Q6_K)`."""
    types = Counter(stored for stored in names.values() if stored is not None)
    counts = ", ".join(f"{count} {stored}" for stored, count in types.most_common())
    return listed([*names]) + (f" ({counts})" if counts else "")


def listed(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    shown = ", ".join(printable(name) for name in names[:NAMED_AT_MOST])
    return f"{shown} and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else shown
