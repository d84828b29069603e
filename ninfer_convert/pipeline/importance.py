"""Which importance vector each object is searched with (recipes.md, Importance matrices)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ninfer_convert.errors import Problem, RecipeError, SourceError
from ninfer_convert.sources.labels import counted, some

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.architectures import Model
    from ninfer_convert.pipeline.inputs import Inputs
    from ninfer_convert.recipe import Piece
    from ninfer_convert.values import Shape

PARAMETER = "imatrix"
"""The parameter of a built-in method that names a matrix; a callable's parameters are its own."""


@dataclass
class _Asked:
    """What one place of a recipe asks of one matrix: parameters with a vector, and those without."""

    found: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Importances:
    """`vectors` hold, by parameter and piece, float64 [K], or [E, K] for a bank of E experts; none: unweighted."""

    vectors: Mapping[tuple[str, int], NDArray[np.float64]]
    warnings: tuple[Problem, ...]


def find_importance(
    decisions: Mapping[str, tuple[Piece, ...]],
    shapes: Mapping[str, Shape],
    model: Model,
    inputs: Inputs,
) -> Importances:
    """The vectors of all pieces whose method names a matrix; `shapes` are the parameters' logical ones.

    Raises SourceError for matrices that are damaged or do not fit, RecipeError for an assign of whose parameters none
    has a vector, and for a group whose shape makes other rows of a parameter that has one.
    """
    vectors: dict[tuple[str, int], NDArray[np.float64]] = {}
    asked: dict[tuple[str, str], _Asked] = {}
    places = {}
    warnings: dict[str, Problem] = {}
    problems: list[Problem] = []
    refused: list[Problem] = []
    for name, pieces in decisions.items():
        for index, piece in enumerate(pieces):
            if PARAMETER not in piece.parameters or piece.method.parameters is None:
                continue
            place = piece.places["parameters"]
            matrix = inputs.matrix(piece.parameters[PARAMETER], place)
            key = (str(place), matrix.shown)
            places[key] = place
            asking = asked.setdefault(key, _Asked())
            try:
                importance = matrix.find(name, shapes[name], model.by_name[name].importance)
            except SourceError as error:
                problems += error.problems
                continue
            if importance is None:
                asking.missing.append(name)
                continue
            asking.found.append(name)
            warnings |= {warning.message: warning for warning in importance.warnings}
            values, columns = importance.values, piece.shape[-1]
            if values.shape[-1] != columns:
                message = f"{name}: a group gives it rows of {columns}, and its importances are for {shapes[name][-1]}"
                refused.append(place.problem("importance-shape", message, name))
                continue
            vectors[name, index] = values[slice(*piece.rows)] if piece.rows and values.ndim == 2 else values
    if problems:
        raise SourceError(list(dict.fromkeys(problems)))
    refused += [
        places[key].problem("no-importance", f"{key[1]} has a vector for none of {some(asking.missing)}")
        for key, asking in asked.items()
        if not asking.found
    ]
    if refused:
        raise RecipeError(refused)
    for (_, shown), asking in asked.items():
        if asking.missing:
            missing = dict.fromkeys(asking.missing)
            message = (
                f"{counted(len(missing), 'parameter')} without a vector searched unweighted: {some(list(missing))}"
            )
            warnings[shown + message] = Problem("unweighted", message, path=shown)
    return Importances(vectors, tuple(warnings.values()))
