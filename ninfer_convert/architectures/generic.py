"""The generic architecture: every tensor is one parameter under its own name (recipes.md, The generic architecture)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ninfer_convert.architectures.base import Architecture, Component, Model, Parameter, Resource
from ninfer_convert.architectures.resources import optional_resources
from ninfer_convert.natural import natural_key

if TYPE_CHECKING:
    from ninfer_convert.architectures.base import Request
    from ninfer_convert.sources.base import Checkpoint
    from ninfer_convert.values import Source

DROPPED_CONFIG = ("quantization_config", "_name_or_path", "transformers_version", "torch_dtype")
"""Members of config.json that describe the source's storage, not the model."""


def build(
    checkpoint: Checkpoint, config: Mapping[str, Any] | None, sources: Mapping[str, Source], request: Request
) -> Model:
    """One component, `text`; `sources` are the tensors (and encoded modules) by name, renamed as the recipe says.

    `config` is config.json's object, None where there is none.
    """
    names = request.rename(list(sources))
    named = ((names[name], source) for name, source in sources.items())
    resources, warnings = optional_resources(checkpoint, request.resources, _gguf_metadata(checkpoint))
    return Model(
        architecture="generic",
        components=(Component("text", _config(checkpoint, config)),),
        parameters=tuple(
            Parameter(name, source) for name, source in sorted(named, key=lambda pair: natural_key(pair[0]))
        ),
        resources=resources,
        unbindable="no engine binds the artifact today: its parameters have the tensors' own names",
        warnings=warnings,
    )


def whole_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json's object without what describes the storage of its weights."""
    return {key: value for key, value in config.items() if key not in DROPPED_CONFIG}


def _config(checkpoint: Checkpoint, config: Mapping[str, Any] | None) -> dict[str, Any]:
    if config is not None:
        return whole_config(config)
    if checkpoint.kind == "gguf":
        architecture = checkpoint.metadata.get("general.architecture")
        return {"architecture": architecture} if isinstance(architecture, str) else {}
    return {}


def _gguf_metadata(checkpoint: Checkpoint) -> tuple[Resource, ...]:
    """The key values and tensor infos of a GGUF, so that an export can give them back."""
    if not checkpoint.raw_metadata:
        return ()
    return (Resource("text", "gguf_metadata", checkpoint.raw_metadata, checkpoint.files[0].shown),)


GENERIC = Architecture("generic", build, renames=True)
