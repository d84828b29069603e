"""The inputs of a plan: the checkpoint, and what a recipe names beside it (recipes.md, Sources and Tensor).

Checkpoints and importance matrices are opened when first asked for, once each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_convert.architectures import Model, Parameter, Request, Resource
from ninfer_convert.errors import Problem, RecipeError, SourceError, nearest, printable, unknown
from ninfer_convert.recipe.model import Place
from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.config import read_config
from ninfer_convert.sources.encoded import Classification, classify
from ninfer_convert.sources.files import read_whole
from ninfer_convert.sources.imatrix import ImportanceMatrix, open_imatrix

if TYPE_CHECKING:
    from ninfer_convert.architectures import Architecture
    from ninfer_convert.pipeline.planned import Shaping
    from ninfer_convert.recipe import Recipe, Subject
    from ninfer_convert.sources.base import Checkpoint


@dataclass(frozen=True, eq=False)
class Opened:
    """A checkpoint with its config and what its tensors make up."""

    checkpoint: Checkpoint
    config: Mapping[str, Any] | None
    classification: Classification

    def model(self, architecture: Architecture, request: Request) -> Model:
        """What `architecture` sees in it. Raises SourceError."""
        return architecture.build(self.checkpoint, self.config, self.classification.sources, request)


def open_input(path: str, recipe: Recipe, source: str = "model", base: str | None = None) -> Opened:
    """Open the checkpoint at `path`; `base` is the folder to read config and resources from instead of its own.

    Raises SourceError for all that stands in the way of converting it.
    """
    checkpoint = open_checkpoint(path, source)
    if base is not None:
        folder = Path(base)
        if not folder.is_dir():
            message = "is no folder; --source base gives one with a config.json and the files of a tokenizer"
            raise SourceError(Problem("no-folder", message, path=base))
        checkpoint = replace(checkpoint, folder=folder)
    config = read_config(checkpoint)
    classification = classify(checkpoint, config)

    def skipped(name: str) -> bool:
        return recipe.skip_reason(name) is not None

    if problems := classification.problems(checkpoint, skipped, recipe.names_tensor):
        raise SourceError(problems)
    return Opened(checkpoint, config, classification)


def request(checkpoint: Checkpoint, recipe: Recipe, shaping: Shaping, architecture: Architecture) -> Request:
    """What recipe and options ask of the architecture; a role's file is that of the last that gives one.

    Raises RecipeError for what the architecture or the checkpoint's folder lacks, SourceError for files that cannot be
    read.
    """
    problems = []
    if recipe.renames and not architecture.renames:
        message = f"[[rename]] is for the generic architecture; {architecture.name} has names of its own"
        problems.append(recipe.renames[0].place.problem("own-names", message))
    components = shaping.components or recipe.components or ()
    place = Place("--components") if shaping.components else recipe.places.get("components", Place(recipe.name))
    for name in components:
        if name not in architecture.components:
            message = unknown("component", name, architecture.components, f"of {architecture.name}")
            problems.append(place.problem("unknown-component", message))
    resources: dict[tuple[str, str], Resource] = {}
    for table in recipe.resources:
        content = checkpoint.beside(table.path)
        shown = checkpoint.shown_beside(table.path)
        if table.component not in architecture.components:
            message = unknown("component", table.component, architecture.components, f"of {architecture.name}")
            problems.append(table.place.problem("unknown-component", message))
        elif content is None:
            message = f"there is no {shown} for the role {printable(table.role)}"
            problems.append(table.place.problem("no-resource", message))
        else:
            resources[table.component, table.role] = Resource(table.component, table.role, content, shown)
    if problems:
        raise RecipeError(problems)
    for role, path in shaping.resources.items():
        given = read_whole(Path(path), path)
        if given is None:
            raise SourceError(
                Problem("no-such-file", f"does not exist; it was given for the role {printable(role)}", path=path)
            )
        resources["text", role] = Resource("text", role, given, path)
    return Request(
        components=components or None,
        resources=tuple(resources.values()),
        skips=recipe.skip_reason,
        rename=recipe.rename,
    )


class Inputs:
    """The main input and those given by name, which the plan's architecture sees alike."""

    def __init__(
        self, main: Opened, recipe: Recipe, given: Mapping[str, str], architecture: Architecture, request: Request
    ) -> None:
        self.main = main
        self.checkpoints: dict[str, Checkpoint] = {}
        """Checkpoints opened so far beside the main one, by source name."""
        self.matrices: dict[str, ImportanceMatrix] = {}
        """Importance matrices opened so far, by source name or path."""
        self._recipe = recipe
        self._given = given
        self._architecture = architecture
        self._request = replace(request, rename=recipe.rename_elsewhere, main=main.config)
        self._opened: dict[str | None, Opened] = {None: main}
        self._parameters: dict[str | None, Mapping[str, Parameter]] = {}

    def locate(self, parameter: Subject, source: str | None, tensor: str | None) -> Parameter | str:
        """`parameter` as it is read from `source` (None: the main input) and its `tensor` (None: of its own name).

        A sentence, the end of one that begins with its name, where it cannot be.
        """
        where = "the checkpoint" if source is None else f"source {printable(source)}"
        if tensor is not None:
            sources = self._open(source).classification.sources
            if tensor not in sources:
                close = nearest(tensor, sources)
                hint = f"; did you mean {' or '.join(map(printable, close))}?" if close else ""
                return f"{where} has no tensor '{printable(tensor)}'{hint}"
            return Parameter(parameter.name, sources[tensor])
        if source not in self._parameters:
            model = self._open(source).model(self._architecture, self._request)
            self._parameters[source] = {found.name: found for found in model.parameters}
        return self._parameters[source].get(parameter.name) or f"{where} has no parameter of that name"

    def matrix(self, name: str, place: Place) -> ImportanceMatrix:
        """The importance matrix that a recipe calls `name` at `place`: a source, or a path from there."""
        if name not in self.matrices:
            if name in self._recipe.sources and name not in self._given:
                message = f"source {printable(name)} is not given; pass --source {printable(name)}=PATH"
                raise SourceError(place.problem("source-not-given", message))
            path = self._given[name] if name in self._given else place.folder / name
            self.matrices[name] = open_imatrix(path, name)
        return self.matrices[name]

    def _open(self, source: str | None) -> Opened:
        if source not in self._opened:
            assert source is not None
            opened = open_input(self._given[source], self._recipe, source)
            self._opened[source] = opened
            self.checkpoints[source] = opened.checkpoint
        return self._opened[source]
