"""Join a checkpoint, an architecture and a recipe into a `Plan`: no weight is read, nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ninfer_convert.architectures import generic
from ninfer_convert.container import Component, Directory
from ninfer_convert.errors import Problem, RecipeError, SourceError
from ninfer_convert.formats import get_format
from ninfer_convert.methods import get_method
from ninfer_convert.pipeline import provenance
from ninfer_convert.pipeline.objects import place
from ninfer_convert.pipeline.planned import Plan, Shaping
from ninfer_convert.recipe import load_recipe, resolve
from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.config import read_config
from ninfer_convert.sources.encoded import classify
from ninfer_convert.sources.labels import counted, some

if TYPE_CHECKING:
    from ninfer_convert.architectures import Model, Parameter
    from ninfer_convert.recipe import Recipe, Resolution
    from ninfer_convert.sources.base import Checkpoint
    from ninfer_convert.sources.encoded import Classification


def make_plan(input: str, recipe: str, shaping: Shaping) -> Plan:
    """What converting `input` by `recipe` will write.

    `input` and `recipe` are as a user types them. Raises SourceError for the checkpoint, RecipeError for the recipe
    and for whatever of the two does not fit; each with every problem that was found.
    """
    loaded = load_recipe(recipe, shaping.overrides)
    checkpoint = open_checkpoint(input)
    config = read_config(checkpoint)
    classification = classify(checkpoint, config)
    if problems := classification.problems(checkpoint, loaded.skips_tensor, loaded.names_tensor):
        raise SourceError(problems)
    model = generic.build(checkpoint, config, classification.sources, loaded.rename)
    if not model.parameters:
        raise SourceError(Problem("no-tensors", "holds no tensors: nothing to convert", path=checkpoint.shown))
    resolution = resolve(loaded, model.parameters, allow_code=shaping.allow_code, requantize=shaping.requantize)
    parameters = {parameter.name: parameter for parameter in model.parameters}
    if problems := [*_not_carried_out(loaded, resolution), *_refusals(parameters, resolution)]:
        raise RecipeError(problems)
    return _assemble(checkpoint, classification, loaded, shaping, model, resolution)


def _not_carried_out(recipe: Recipe, resolution: Resolution) -> Iterator[Problem]:
    """What a recipe decides and a plan does not know how to carry out."""
    pieces = [piece for found in resolution.decisions.values() for piece in found]
    asked = {
        "groups": resolution.groups,
        "shares": resolution.shares,
        "uses": resolution.uses,
        "resources": recipe.resources,
        "components": recipe.components,
        "sources": [piece for piece in pieces if piece.source is not None or piece.tensor is not None],
        "transposition": [piece for piece in pieces if piece.transpose],
    }
    for what, found in asked.items():
        if found:
            message = f"{what} of a recipe cannot be carried out yet"
            yield Problem("not-carried-out", message, path=str(recipe.files[-1].path))


def _refusals(parameters: Mapping[str, Parameter], resolution: Resolution) -> Iterator[Problem]:
    """What headers and scales show cannot be converted as decided."""
    for name, pieces in resolution.decisions.items():
        source = parameters[name].source
        for piece in pieces:
            reason = get_method(piece.method).refusal(source, get_format(piece.format), piece.parameters)
            if reason is not None:
                rule = piece.rule
                yield Problem(
                    "cannot-convert",
                    f"{name}: {reason}",
                    path=rule.path if rule else source.origins[0].file,
                    tensor=name,
                    line=rule.line if rule else None,
                )


def _assemble(
    checkpoint: Checkpoint,
    classification: Classification,
    recipe: Recipe,
    shaping: Shaping,
    model: Model,
    resolution: Resolution,
) -> Plan:
    parameters = {parameter.name: parameter for parameter in model.parameters}
    objects, bindings = place(model.resources, parameters, resolution.decisions)
    resources = {
        component.name: {
            resource.role: planned.record.id
            for resource, planned in zip(model.resources, objects, strict=False)
            if resource.component == component.name
        }
        for component in model.components
    }
    directory = Directory(
        components={
            component.name: Component(component.config, resources=resources[component.name])
            for component in model.components
        },
        objects=tuple(planned.record for planned in objects),
        bindings=bindings,
        uses=(),
        files=(),
        metadata=_metadata(recipe, shaping),
        provenance=provenance.record(checkpoint, classification, recipe, shaping, resolution, objects, model, bindings),
    )
    notes = tuple(
        Problem("source-note", note, path=checkpoint.shown) for note in (*checkpoint.notes, *classification.notes)
    )
    warnings = (*notes, *_unused_scales(checkpoint, directory), *model.warnings, *resolution.warnings)
    return Plan(checkpoint, recipe, model, resolution, directory, objects, warnings)


def _unused_scales(checkpoint: Checkpoint, directory: Directory) -> Iterator[Problem]:
    kept = [tensor for scales in directory.provenance["activation_scales"].values() for tensor in scales]
    if kept:
        message = f"{counted(len(kept), 'activation scale')} kept in the provenance, as no use takes them: {some(kept)}"
        yield Problem("activation-scales", message, path=checkpoint.shown)


def _metadata(recipe: Recipe, shaping: Shaping) -> dict[str, Any]:
    """The recipe's [metadata]; `--name` is the public model name and wins."""
    return dict(recipe.metadata) | ({"name": shaping.name} if shaping.name is not None else {})
