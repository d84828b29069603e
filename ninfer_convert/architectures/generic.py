"""The generic architecture: every tensor is one parameter under its own name (recipes.md, The generic architecture)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ninfer_convert.architectures.base import Component, Model, Parameter, Resource
from ninfer_convert.errors import Problem
from ninfer_convert.natural import natural_key

if TYPE_CHECKING:
    from ninfer_convert.sources.base import Checkpoint
    from ninfer_convert.values import Source

RESOURCE_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
"""Files beside the checkpoint that become resources of their own name, in the order of the objects."""

DROPPED_CONFIG = ("quantization_config", "_name_or_path", "transformers_version", "torch_dtype")
"""Members of config.json that describe the source's storage, not the model."""

Rename = Callable[[Sequence[str]], Mapping[str, str]]


def build(
    checkpoint: Checkpoint, config: Mapping[str, Any] | None, sources: Mapping[str, Source], rename: Rename
) -> Model:
    """One component, `text`; `sources` are the tensors (and encoded modules) by name, `rename` is the recipe's.

    `config` is config.json's object, None where there is none.
    """
    names = rename(list(sources))
    named = ((names[name], source) for name, source in sources.items())
    resources, warnings = _resources(checkpoint)
    return Model(
        architecture="generic",
        components=(Component("text", _config(checkpoint, config)),),
        parameters=tuple(
            Parameter(name, source) for name, source in sorted(named, key=lambda pair: natural_key(pair[0]))
        ),
        resources=resources,
        warnings=warnings,
    )


def _config(checkpoint: Checkpoint, config: Mapping[str, Any] | None) -> dict[str, Any]:
    if config is not None:
        return {key: value for key, value in config.items() if key not in DROPPED_CONFIG}
    if checkpoint.kind == "gguf":
        architecture = checkpoint.metadata.get("general.architecture")
        return {"architecture": architecture} if isinstance(architecture, str) else {}
    return {}


def _resources(checkpoint: Checkpoint) -> tuple[tuple[Resource, ...], tuple[Problem, ...]]:
    resources = []
    warnings = []
    for name in RESOURCE_FILES:
        content = checkpoint.beside(name)
        if content is None:
            continue
        if content:
            resources.append(Resource("text", name, content, origin=name))
        else:
            message = "is empty and does not become a resource"
            warnings.append(Problem("empty-resource", message, path=checkpoint.shown_beside(name)))
    if checkpoint.raw_metadata:
        origin = checkpoint.files[0].path.name
        resources.append(Resource("text", "gguf_metadata", checkpoint.raw_metadata, origin))
    return tuple(resources), tuple(warnings)
