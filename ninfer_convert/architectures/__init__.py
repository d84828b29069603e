"""What a checkpoint's tensors mean: logical parameters, a component's config, its resources.

An architecture decides names, shapes, direct formats, uses and candidate groups; it reads no weight and chooses no
format of a recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ninfer_convert.architectures.base import Architecture, Component, Model, Outcome, Parameter, Request, Resource
from ninfer_convert.architectures.generic import GENERIC
from ninfer_convert.architectures.llama import LLAMA
from ninfer_convert.architectures.qwen3_5 import QWEN3_5
from ninfer_convert.errors import Problem, SourceError, printable, unknown

if TYPE_CHECKING:
    from ninfer_convert.sources.base import Checkpoint

AUTO = "auto"

_TAKE_ANOTHER = "take another, such as q4"

ARCHITECTURES = MappingProxyType(
    {architecture.name: architecture for architecture in (GENERIC, LLAMA, QWEN3_5)},
)
"""Every architecture that a recipe may name beside AUTO."""


def choose(name: str, checkpoint: Checkpoint, config: Mapping[str, Any] | None) -> Architecture:
    """The architecture that a recipe names; for AUTO the one that config.json's `architectures` means, else generic.

    `config` is config.json's object, None where there is none. Raises LookupError with the nearest names,
    SourceError where the checkpoint is not of the architecture that is named.
    """
    if name == AUTO:
        known = recognised(checkpoint, config)
        return known if known is not None and known.automatic else GENERIC
    if name not in ARCHITECTURES:
        raise LookupError(unknown("architecture", name, (AUTO, *ARCHITECTURES)))
    chosen = ARCHITECTURES[name]
    if not chosen.classes:
        return chosen
    if not _reads(chosen, checkpoint):
        kinds = f"safetensors and GGUFs of {', '.join(chosen.gguf)}" if chosen.gguf else "safetensors only"
        found = printable(str(checkpoint.metadata.get("general.architecture")))
        message = f"is a GGUF of {found}, and the recipe is for {name}, which is read from {kinds}; {_TAKE_ANOTHER}"
        raise SourceError(Problem("other-architecture", message, path=checkpoint.shown))
    path = checkpoint.shown_beside("config.json")
    if config is None:
        message = (
            f"does not exist, and the recipe is for {name}, which needs it: put it there, or give a folder that holds "
            "it by --source base=FOLDER"
        )
        raise SourceError(Problem("no-config", message, path=path))
    classes = _classes(config)
    if not _means(chosen, classes):
        found = f"describes {', '.join(map(printable, classes))}" if classes else "names no architectures"
        message = f"{found}, and the recipe is for {name} ({', '.join(chosen.classes)}); {_TAKE_ANOTHER}"
        raise SourceError(Problem("other-architecture", message, path=path))
    return chosen


def recognised(checkpoint: Checkpoint, config: Mapping[str, Any] | None) -> Architecture | None:
    """The architecture that has logical names for the checkpoint's tensors, None where none has."""
    classes = _classes(config)
    found = (each for each in ARCHITECTURES.values() if _means(each, classes) and _reads(each, checkpoint))
    return next(found, None)


def _reads(architecture: Architecture, checkpoint: Checkpoint) -> bool:
    return checkpoint.kind == "safetensors" or checkpoint.metadata.get("general.architecture") in architecture.gguf


def _classes(config: Mapping[str, Any] | None) -> list[str]:
    classes = (config or {}).get("architectures")
    return [name for name in classes if isinstance(name, str)] if isinstance(classes, list) else []


def _means(architecture: Architecture, classes: list[str]) -> bool:
    return any(name in architecture.classes for name in classes)


__all__ = [
    "ARCHITECTURES",
    "AUTO",
    "Architecture",
    "Component",
    "Model",
    "Outcome",
    "Parameter",
    "Request",
    "Resource",
    "choose",
    "recognised",
]
