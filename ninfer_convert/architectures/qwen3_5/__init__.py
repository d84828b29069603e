"""Qwen3.5, Qwen3.6 and Qwen3.8, dense and with experts: the component `text` (qwen35.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ninfer_convert.architectures.base import Architecture, Component, Model
from ninfer_convert.architectures.filling import fill, tied_head
from ninfer_convert.architectures.qwen3_5.config import IMPLEMENTATIONS, read_text_config, refuse_another_model
from ninfer_convert.architectures.qwen3_5.execution import unknown_banks, unknown_sizes
from ninfer_convert.architectures.qwen3_5.text import places
from ninfer_convert.architectures.resources import text_resources
from ninfer_convert.errors import Problem, SourceError

if TYPE_CHECKING:
    from ninfer_convert.architectures.base import Request, Resource, Stored
    from ninfer_convert.architectures.qwen3_5.config import TextConfig
    from ninfer_convert.sources.base import Checkpoint
    from ninfer_convert.values import Source

OTHER_COMPONENTS = {"mtp.": "mtp", "model.visual.": "vision"}
"""What the tensors of components begin with that are not converted yet."""


def build(
    checkpoint: Checkpoint, config: Mapping[str, Any] | None, sources: Mapping[str, Source], request: Request
) -> Model:
    """The component `text` with its four resources.

    Raises SourceError for a config that breaks a rule, or is of another model than the main input's, else with all that
    is wrong with tensors and resources.
    """
    path = checkpoint.shown_beside("config.json")
    text = read_text_config(config or request.main or {}, path)
    if request.main is not None:
        refuse_another_model(text, read_text_config(request.main, path), path)

    def passed_by(name: str) -> str | None:
        for prefix, component in OTHER_COMPONENTS.items():
            if name.startswith(prefix):
                return f"component {component} is not converted yet"
        return tied_head(name, text.tied)

    filling = fill(places(text, sources.keys()), sources, checkpoint, text.prefix, passed_by, request)
    resources: tuple[Resource, ...] = ()
    problems: tuple[Problem, ...] = ()
    if request.main is None:
        resources, problems = text_resources(checkpoint, request.resources, text.size("vocab_size"))
    if filling.problems or problems:
        raise SourceError((*filling.problems, *problems))
    return Model(
        architecture=QWEN3_5.name,
        components=(Component("text", text.stored),),
        parameters=filling.parameters,
        resources=resources,
        groups=filling.groups,
        passed_by=filling.passed_by,
        warnings=filling.notes,
        judge=partial(_warnings, text, path),
    )


def _warnings(text: TextConfig, path: str, stored: Stored) -> Iterator[Problem]:
    """What the engine binds, but is not known to compute."""
    sizes = [Problem("geometry", message, path=path) for message in unknown_sizes(text)]
    yield from sizes or (Problem("no-kernel", message) for message in unknown_banks(text, stored))


QWEN3_5 = Architecture("qwen3_5", build, classes=tuple(IMPLEMENTATIONS))
