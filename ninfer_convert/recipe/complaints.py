"""Gathering what is wrong while a recipe is resolved, to be reported together in file order (recipes.md, Errors)."""

from __future__ import annotations

from collections.abc import Sequence

from ninfer_convert.errors import Problem, printable
from ninfer_convert.recipe.model import Place, Recipe

NAMED_AT_MOST = 3


class Complaints:
    """Problems of one recipe: one for each place and sentence, naming the parameters it is about."""

    def __init__(self, recipe: Recipe) -> None:
        self._files = [str(file.path) for file in recipe.files]
        self._about: dict[tuple[Place, str, str], dict[str, None]] = {}
        self.nowhere = Place(self._files[-1])
        """The place of what no line of the recipe says."""

    def add(self, place: Place, code: str, sentence: str, parameter: str | None = None) -> None:
        """`sentence` follows the names of the parameters and a colon, where there are any."""
        names = self._about.setdefault((place, code, sentence), {})
        if parameter is not None:
            names[parameter] = None

    def problems(self) -> list[Problem]:
        found = [
            place.problem(code, f"{listed([*names])}: {sentence}" if names else sentence, next(iter(names), None))
            for (place, code, sentence), names in self._about.items()
        ]
        return sorted(found, key=self._position)

    def _position(self, problem: Problem) -> tuple[int, float, int]:
        # Overrides come behind all files; what has no line of its own behind what has.
        path = problem.path or ""
        file = self._files.index(path) if path in self._files else len(self._files)
        return file, problem.line if problem.line is not None else float("inf"), problem.column or 0


def listed(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    shown = ", ".join(printable(name) for name in names[:NAMED_AT_MOST])
    return f"{shown} and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else shown
