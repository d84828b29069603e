"""What is exported under which name: parameters under the artifact's own, or a checkpoint's tensors, made again."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer_convert.errors import OutputError, Problem, printable
from ninfer_convert.pipeline.columns import column_orders
from ninfer_convert.pipeline.counterparts import selections, views
from ninfer_convert.pipeline.parameters import ParameterSource
from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.labels import counted, some
from ninfer_convert.sources.views import gather_columns, inverse, inverted, transpose

if TYPE_CHECKING:
    from ninfer_convert.pipeline.counterparts import Views
    from ninfer_convert.pipeline.stored import OpenArtifact, StoredParameter
    from ninfer_convert.sources import Checkpoint
    from ninfer_convert.values import Runs, Source


@dataclass(frozen=True)
class Named:
    """Sources by the names that they are exported under.

    `like` is the checkpoint that has these names, None where they are the artifact's; `ordered` are the parameters
    whose input_columns are undone.
    """

    sources: Mapping[str, Source]
    like: Checkpoint | None = None
    warnings: tuple[Problem, ...] = ()
    ordered: Collection[str] = ()


def named(artifact: OpenArtifact, like: str | os.PathLike[str] | None) -> Named:
    """The artifact's parameters under their names, or the tensors of the checkpoint `like` out of them.

    Where parameters are the same tensor there, such as a tied head and the embedding, the first counts. Raises
    OutputError with every parameter that is of no tensor there, or of another shape, and every tensor that is not
    complete; SourceError where the checkpoint cannot be read; ArtifactError for input_columns that are none.
    """
    if like is None:
        return Named({name: ParameterSource(parameter) for name, parameter in artifact.items()})
    shown = os.fspath(like)
    checkpoint = open_checkpoint(shown)
    found = views(artifact, checkpoint)
    orders = {name: inverted(order) for name, order in column_orders(artifact).items()}
    members, warnings = _members(artifact, found, orders, shown)
    sources: dict[str, Source] = {}
    faults = []
    for tensor, parts in members.items():
        try:
            sources[tensor] = inverse(found.weights[tensor], parts.items())
        except IndexError as error:
            faults.append(_incomplete(tensor, str(error), artifact, found))
    if faults:
        raise OutputError(faults)
    missing = [name for name in found.names if name not in sources]
    if missing:
        message = f"{counted(len(missing), 'weight')} not in the artifact, so not exported: {some(missing)}"
        warnings.append(Problem("not-in-artifact", message, path=shown))
    return Named(sources, checkpoint, tuple(warnings), orders.keys())


def _members(
    artifact: OpenArtifact, found: Views, orders: Mapping[str, Runs], shown: str
) -> tuple[dict[str, dict[Source, Source]], list[Problem]]:
    """For each tensor the views of it that are parameters, with their data; and a warning of each that is left out.

    Raises OutputError with every parameter that is of no tensor of the checkpoint `shown`, or does not fit.
    """
    by_parameter, taken = found.all, selections(artifact.directory)
    members: dict[str, dict[Source, Source]] = {}
    firsts: dict[Source, StoredParameter] = {}
    unknown, unfit, warnings = [], [], []
    for name, parameter in artifact.items():
        view = by_parameter.get(name)
        if view is None:
            unknown.append(_no_counterpart(name, f"was made from no tensor of {printable(shown)}"))
            continue
        tensor, first = printable(view.name), firsts.setdefault(view, parameter)
        data: Source = ParameterSource(parameter)
        if name in orders:
            data = gather_columns(data, orders[name])
        if len(view.shape) > 1 and taken.get(name) == transpose(view).origins[0].selection:
            data = transpose(data)
        if data.shape != view.shape:
            unfit.append(_no_counterpart(name, f"has the shape {list(data.shape)}, {tensor} {list(view.shape)}"))
        elif parameter.spans == first.spans:
            members.setdefault(view.name, {}).setdefault(view, data)
        elif name not in found.logical:
            unfit.append(_no_counterpart(name, f"was made from {tensor}, and so was {printable(first.name)}"))
        elif parameter.formats != first.formats:
            message = f"{printable(name)}, kept as {parameter.format}, is left out: {tensor} is written as "
            message += f"{printable(first.name)} has it, which is kept as {first.format}"
            warnings.append(Problem("left-out", message, tensor=name))
    if unknown or unfit:
        raise OutputError((*unknown, *unfit))
    return members, warnings


def _no_counterpart(name: str, fault: str) -> Problem:
    return Problem("no-counterpart", f"{printable(name)}: {fault}", tensor=name)


def _incomplete(tensor: str, error: str, artifact: OpenArtifact, found: Views) -> Problem:
    """Of a tensor some parameters of which the artifact does not have."""
    absent = [name for name, view in found.logical.items() if view.name == tensor and name not in artifact]
    message = f"{printable(tensor)}: {error}"
    if absent:
        message += f", as the artifact has no {some(absent)}; convert with them, or export under logical names"
    return Problem("incomplete-tensor", message, tensor=tensor)
