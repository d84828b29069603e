"""What is exported under which name: parameters under the artifact's own, or a checkpoint's tensors, made again."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer_convert.errors import OutputError, Problem, printable
from ninfer_convert.pipeline import recorded
from ninfer_convert.pipeline.counterparts import views
from ninfer_convert.pipeline.export.tensors import Tensor
from ninfer_convert.pipeline.parameters import ParameterSource
from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.labels import counted, some
from ninfer_convert.sources.views import inverse

if TYPE_CHECKING:
    from ninfer_convert.container import Directory
    from ninfer_convert.pipeline.counterparts import Views
    from ninfer_convert.pipeline.stored import OpenArtifact, StoredParameter
    from ninfer_convert.sources import Checkpoint
    from ninfer_convert.values import Source


@dataclass(frozen=True)
class Named:
    """Tensors under the names that they are exported by.

    `like` is the checkpoint that has these names, None where they are the artifact's; `ordered` are the parameters
    whose input_columns are undone.
    """

    tensors: tuple[Tensor, ...]
    like: Checkpoint | None = None
    warnings: tuple[Problem, ...] = ()
    ordered: Collection[str] = ()


@dataclass(frozen=True)
class _Part:
    """A parameter, and its data as it lies in the tensor that it is a part of."""

    parameter: StoredParameter
    data: Source


def named(artifact: OpenArtifact, like: str | os.PathLike[str] | None) -> Named:
    """The artifact's parameters under their names, or the tensors of the checkpoint `like` out of them.

    Where parameters are the same tensor there, such as a tied head and the embedding, the first counts. Raises
    OutputError with every parameter that is of no tensor there, or of another shape, and every tensor that is not
    complete; SourceError where the checkpoint cannot be read; ArtifactError for input_columns that are none.
    """
    if like is None:
        return Named(tuple(Tensor(name, ParameterSource(each), each.format) for name, each in artifact.items()))
    shown = os.fspath(like)
    checkpoint = open_checkpoint(shown)
    found = views(artifact, checkpoint)
    members, warnings = _members(artifact, found, shown)
    tensors = []
    faults = []
    for name, parts in members.items():
        try:
            source = inverse(found.weights[name], ((view, part.data) for view, part in parts.items()))
        except IndexError as error:
            faults.append(_incomplete(name, str(error), artifact, found))
        else:
            formats = dict.fromkeys(format for part in parts.values() for format in part.parameter.formats)
            tensors.append(Tensor(name, source, "+".join(formats)))
    if faults:
        raise OutputError(faults)
    missing = [name for name in found.names if name not in members]
    if missing:
        message = f"{counted(len(missing), 'weight')} not in the artifact, so not exported: {some(missing)}"
        warnings.append(Problem("not-in-artifact", message, path=shown))
    ordered = [name for name, arrangement in found.arranged.items() if arrangement.columns is not None]
    return Named(tuple(tensors), checkpoint, tuple(warnings), ordered)


def _members(artifact: OpenArtifact, found: Views, shown: str) -> tuple[dict[str, dict[Source, _Part]], list[Problem]]:
    """For each tensor the views of it that are parameters, with these; and a warning of each whose values are left out.

    Raises OutputError with every parameter that is of no tensor of the checkpoint `shown`, or does not fit; one error
    where that is most of them.
    """
    by_parameter = found.all
    members: dict[str, dict[Source, _Part]] = {}
    absent = [name for name in artifact if name not in by_parameter]
    if 2 * len(absent) > len(artifact):
        message = (
            f"{len(absent)} of the {len(artifact)} parameters were made from no tensor of {printable(shown)}, "
            f"{printable(absent[0])} the first; give the checkpoint that the artifact was made from"
        )
        raise OutputError(Problem("another-model", message, tensor=absent[0]))
    unknown = [_no_counterpart(name, f"was made from no tensor of {printable(shown)}") for name in absent]
    unfit, warnings = [], []
    for name, parameter in artifact.items():
        view = by_parameter.get(name)
        if view is None:
            continue
        tensor = printable(view.name)
        part = _Part(parameter, found.arranged[name].undone(ParameterSource(parameter)))
        first = members.setdefault(view.name, {}).setdefault(view, part).parameter
        if part.data.shape != view.shape:
            unfit.append(_no_counterpart(name, f"has the shape {list(part.data.shape)}, {tensor} {list(view.shape)}"))
        elif parameter.spans != first.spans:
            if name not in found.logical:
                unfit.append(_no_counterpart(name, f"was made from {tensor}, and so was {printable(first.name)}"))
            elif not _same_values(parameter, first, artifact.directory):
                warnings.append(_left_out(parameter, first, tensor))
    if unknown or unfit:
        raise OutputError((*unknown, *unfit))
    return members, warnings


def _same_values(one: StoredParameter, other: StoredParameter, directory: Directory) -> bool:
    """Whether two parameters are known to have the same values: one format, and the same elements of one object, or of
    objects whose digests are equal.
    """

    def content(parameter: StoredParameter) -> list[tuple[str, int, int]]:
        return [
            (recorded.digest(directory, span.object.id) or span.object.id, span.begin, span.end)
            for span in parameter.spans
        ]

    return one.formats == other.formats and content(one) == content(other)


def _left_out(parameter: StoredParameter, first: StoredParameter, tensor: str) -> Problem:
    """A parameter of the same tensor as `first`, whose values are others, or not known to be the same."""
    message = f"{printable(parameter.name)}, kept as {parameter.format}, is left out: {tensor} is written as "
    message += f"{printable(first.name)} has it, which is kept as {first.format}"
    if parameter.formats == first.formats:
        message += " in another object"
    return Problem("left-out", message, tensor=parameter.name)


def _no_counterpart(name: str, fault: str) -> Problem:
    return Problem("no-counterpart", f"{printable(name)}: {fault}", tensor=name)


def _incomplete(tensor: str, error: str, artifact: OpenArtifact, found: Views) -> Problem:
    """Of a tensor some parameters of which the artifact does not have."""
    absent = [name for name, view in found.logical.items() if view.name == tensor and name not in artifact]
    message = f"{printable(tensor)}: {error}"
    if absent:
        message += f", as the artifact has no {some(absent)}; convert with them, or export under logical names"
    return Problem("incomplete-tensor", message, tensor=tensor)
