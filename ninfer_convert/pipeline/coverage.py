"""How far an importance matrix covers a checkpoint, both ways (recipes.md, Importance matrices)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.architectures import AUTO, Request, choose
from ninfer_convert.errors import SourceError
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.pipeline.inputs import Opened
from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.config import read_config
from ninfer_convert.sources.encoded import classify

if TYPE_CHECKING:
    from ninfer_convert.errors import Problem
    from ninfer_convert.sources.imatrix import ImportanceMatrix
    from ninfer_convert.values import Shape


@dataclass(frozen=True)
class Covered:
    """A matrix or a bank of floating values; `entry` is what the importance matrix has for it, None for nothing."""

    name: str
    shape: Shape
    entry: str | None

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Coverage:
    """Every parameter of a checkpoint that could be searched, in its order, and the entries that none of them uses."""

    input: str
    architecture: str
    parameters: tuple[Covered, ...]
    unused: tuple[str, ...]
    warnings: tuple[Problem, ...]

    @property
    def missing(self) -> tuple[Covered, ...]:
        """Those without a vector."""
        return tuple(parameter for parameter in self.parameters if parameter.entry is None)

    @property
    def users(self) -> Mapping[str, list[str]]:
        """The parameters that use an entry, by its name."""
        users: dict[str, list[str]] = {}
        for parameter in self.parameters:
            if parameter.entry is not None:
                users.setdefault(parameter.entry, []).append(parameter.name)
        return users


def cover(matrix: ImportanceMatrix, input: str) -> Coverage:
    """Look up every matrix and bank of the checkpoint at `input`, under the names that `auto` gives them.

    Raises SourceError for a checkpoint that cannot be read, and with every entry whose length is not its parameter's.
    """
    checkpoint = open_checkpoint(input)
    config = read_config(checkpoint)
    architecture = choose(AUTO, checkpoint, config)
    model = Opened(checkpoint, config, classify(checkpoint, config)).model(architecture, Request())
    covered: list[Covered] = []
    warnings: list[Problem] = []
    problems: list[Problem] = []
    for parameter in model.parameters:
        if len(parameter.shape) not in (2, 3) or not stored_type(parameter.stored).floating:
            continue
        try:
            importance = matrix.find(parameter.name, parameter.shape, parameter.importance)
        except SourceError as error:
            problems += error.problems
            continue
        covered.append(Covered(parameter.name, parameter.shape, importance.entry if importance else None))
        warnings += importance.warnings if importance else ()
    if problems:
        raise SourceError(problems)
    used = {parameter.entry for parameter in covered}
    unused = tuple(name for name in matrix.entries if name not in used)
    return Coverage(input, model.architecture, tuple(covered), unused, tuple(warnings))
