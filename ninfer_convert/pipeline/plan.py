"""Join a checkpoint, an architecture and a recipe into a `Plan`: no weight is read, nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_convert import container
from ninfer_convert.architectures import choose
from ninfer_convert.container import Directory
from ninfer_convert.errors import Problem, RecipeError, SourceError, printable
from ninfer_convert.formats import get_format
from ninfer_convert.methods.callable import CallableMethod
from ninfer_convert.pipeline import provenance
from ninfer_convert.pipeline.auxiliaries import bad_auxiliaries, input_columns
from ninfer_convert.pipeline.engine import outcome, unbound
from ninfer_convert.pipeline.importance import find_importance
from ninfer_convert.pipeline.inputs import Inputs, open_input, request
from ninfer_convert.pipeline.objects import place
from ninfer_convert.pipeline.planned import Plan, Shaping, Twin
from ninfer_convert.policies import POLICIES
from ninfer_convert.recipe import load_recipe, resolve
from ninfer_convert.recipe.model import BASE
from ninfer_convert.recipe.resolution import Use
from ninfer_convert.sources.labels import counted, some
from ninfer_convert.sources.views import transpose
from ninfer_convert.strict_json import collector_paused

if TYPE_CHECKING:
    from ninfer_convert.architectures import Model, Parameter
    from ninfer_convert.pipeline.objects import Objects
    from ninfer_convert.recipe import Piece, Recipe, Resolution
    from ninfer_convert.sources.base import Checkpoint
    from ninfer_convert.values import Source


@collector_paused()
def make_plan(input: str, recipe: str, shaping: Shaping) -> Plan:
    """What converting `input` by `recipe` will write.

    `input` and `recipe` are as a user types them. Raises SourceError for the checkpoint and the other inputs,
    RecipeError for the recipe and for whatever of the two does not fit; each with every problem that was found.
    """
    loaded = load_recipe(recipe, shaping.overrides)
    main = open_input(input, loaded, base=shaping.sources.get(BASE))
    try:
        architecture = choose(loaded.architecture, main.checkpoint, main.config)
    except LookupError as error:
        raise RecipeError(loaded.places["architecture"].problem("unknown-architecture", str(error))) from None
    asked = request(main.checkpoint, loaded, shaping, architecture)
    model = main.model(architecture, asked)
    if not model.parameters:
        raise SourceError(Problem("no-tensors", "holds no tensors: nothing to convert", path=main.checkpoint.shown))
    inputs = Inputs(main, loaded, shaping.sources, architecture, asked)
    resolution = resolve(
        loaded,
        model.parameters,
        inputs=_architecture_uses(model),
        candidates=model.groups,
        sources=shaping.sources,
        locate=inputs.locate,
        allow_code=shaping.allow_code,
        requantize=shaping.requantize,
    )
    sources = _sources(model, resolution, inputs)
    shapes = {name: pieces[0].shape for name, pieces in sources.items()}
    shapes |= {alias.name: shapes[alias.target] for alias in resolution.shares}
    columns, bad_columns = input_columns(resolution, sources)
    if problems := [
        *unbound(model, resolution, shapes),
        *_refusals(sources, resolution),
        *bad_auxiliaries(resolution, shapes),
        *bad_columns,
    ]:
        raise RecipeError(problems)
    importance = find_importance(resolution.decisions, shapes, model, inputs)
    placed = place(model.resources, sources, resolution, importance.vectors, columns)
    if not placed.objects:
        message = "every parameter is skipped, and there are no files beside them: nothing to convert"
        raise RecipeError(Problem("all-skipped", message, path=main.checkpoint.shown))
    directory = Directory(
        components=_components(model, placed.objects),
        objects=tuple(planned.record for planned in placed.objects),
        bindings=placed.bindings,
        uses=placed.uses,
        metadata=_metadata(loaded, shaping),
        provenance=provenance.record(inputs, loaded, shaping, resolution, model, placed, shapes),
    )
    notes = (*main.checkpoint.notes, *main.classification.notes)
    return Plan(
        checkpoint=main.checkpoint,
        inputs=tuple(inputs.checkpoints.values()),
        read=_read(inputs, loaded, shaping, resolution),
        recipe=loaded,
        model=model,
        resolution=resolution,
        directory=directory,
        twins=_twins(model, resolution, sources),
        objects=placed.objects,
        warnings=(
            *(Problem("source-note", note, path=main.checkpoint.shown) for note in notes),
            *_unused_scales(main.checkpoint, directory),
            *model.warnings,
            *(model.judge(outcome(resolution)) if model.judge else ()),
            *resolution.warnings,
            *importance.warnings,
        ),
    )


def _architecture_uses(model: Model) -> list[Use]:
    """The uses that the architecture knows; a recipe allows more than its least."""
    return [
        Use(parameter.name, input, POLICIES[0], {}, None) for parameter in model.parameters for input in parameter.uses
    ]


def _sources(model: Model, resolution: Resolution, inputs: Inputs) -> dict[str, tuple[Source, ...]]:
    """What each piece of a decided parameter is a region of."""

    def source(parameter: Parameter, piece: Piece) -> Source:
        located: Parameter | str = parameter
        if piece.source is not None or piece.tensor is not None:
            located = inputs.locate(parameter, piece.source, piece.tensor)
        assert not isinstance(located, str), "resolve has refused what is not to be found"
        return transpose(located.source) if piece.transpose else located.source

    return {
        name: tuple([source(model.by_name[name], piece) for piece in pieces])
        for name, pieces in resolution.decisions.items()
    }


def _refusals(sources: Mapping[str, Sequence[Source]], resolution: Resolution) -> Iterator[Problem]:
    """What headers and scales show cannot be converted as decided."""
    for name, pieces in resolution.decisions.items():
        for piece, source in zip(pieces, sources[name], strict=True):
            reason = piece.method.refusal(source, get_format(piece.format), piece.parameters)
            if reason is not None:
                message = f"{name}: {reason}"
                if piece.rule:
                    yield piece.rule.place.problem("cannot-convert", message, name)
                else:
                    yield Problem("cannot-convert", message, source.origins[0].file, name)


def _components(model: Model, objects: Objects) -> dict[str, container.Component]:
    """Each component's record, with the ids of its resources; these are the first objects, in their order."""
    ids = [planned.record.id for planned in objects]
    roles: dict[str, dict[str, str]] = {component.name: {} for component in model.components}
    for resource, id in zip(model.resources, ids, strict=False):
        roles[resource.component][resource.role] = id
    return {
        component.name: container.Component(component.config, resources=roles[component.name])
        for component in model.components
    }


def _read(inputs: Inputs, recipe: Recipe, shaping: Shaping, resolution: Resolution) -> dict[Path, str]:
    """Every file that was read, and those that functions of the recipe's own are given, with what each is of."""
    code = (
        path
        for pieces in resolution.decisions.values()
        for piece in pieces
        if isinstance(method := piece.method, CallableMethod)
        for path in (method.code.path, *(provenance.given_file(method, value) for value in piece.parameters.values()))
    )
    return {
        **{Path(matrix.shown): "the importance matrix" for matrix in inputs.matrices.values()},
        **{Path(path): f"source {printable(name)}" for name, path in shaping.sources.items()},
        **{Path(path): f"the resource {printable(role)}" for role, path in shaping.resources.items()},
        **{path: "the recipe's code" for path in code if path is not None},
        **{file.path: "the recipe" for file in recipe.files if not file.builtin},
        **{path: f"source {printable(name)}" for name, each in inputs.checkpoints.items() for path in each.read},
        **dict.fromkeys(inputs.main.checkpoint.read, "the checkpoint"),
    }


def _twins(model: Model, resolution: Resolution, sources: Mapping[str, Sequence[Source]]) -> tuple[Twin, ...]:
    """Aliases that the checkpoint holds too, beside what they are bound to."""
    return tuple(
        Twin(alias.name, model.by_name[alias.name].source, alias.target, sources[alias.target][0])
        for alias in resolution.shares
        if alias.stored
    )


def _unused_scales(checkpoint: Checkpoint, directory: Directory) -> Iterator[Problem]:
    kept = [tensor for scales in directory.provenance["activation_scales"].values() for tensor in scales]
    if kept:
        message = f"{counted(len(kept), 'activation scale')} kept in the provenance, as no use takes them: {some(kept)}"
        yield Problem("activation-scales", message, path=checkpoint.shown)


def _metadata(recipe: Recipe, shaping: Shaping) -> dict[str, Any]:
    """The recipe's [metadata]; `--name` is the public model name and wins."""
    return dict(recipe.metadata) | ({"name": shaping.name} if shaping.name is not None else {})
