"""Qwen3.5, Qwen3.6 and Qwen3.8, dense and with experts: the component `text` (qwen35.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from ninfer_convert.architectures.base import Architecture, Component, Model
from ninfer_convert.architectures.filling import fill, tied_head
from ninfer_convert.architectures.qwen3_5.config import IMPLEMENTATIONS, read_text_config, refuse_another_model
from ninfer_convert.architectures.qwen3_5.execution import across_layers, unknown_banks, unknown_sizes, unread
from ninfer_convert.architectures.qwen3_5.gguf import (
    DENSE,
    MOE,
    further_block,
    gguf_places,
    header_problems,
    with_blocks,
)
from ninfer_convert.architectures.qwen3_5.text import places, stored_experts
from ninfer_convert.architectures.resources import text_resources
from ninfer_convert.errors import Problem, SourceError

if TYPE_CHECKING:
    from ninfer_convert.architectures.base import Outcome, Request, Resource
    from ninfer_convert.architectures.qwen3_5.config import TextConfig
    from ninfer_convert.architectures.table import Placed
    from ninfer_convert.sources.base import Checkpoint
    from ninfer_convert.values import Source


@dataclass(frozen=True)
class _Arrangement:
    """Where a kind of checkpoint keeps the component: its blocks, what most names begin with, and what those of other
    components begin with."""

    places: Iterator[Placed]
    prefix: str
    others: Mapping[str, str]


def build(
    checkpoint: Checkpoint, config: Mapping[str, Any] | None, sources: Mapping[str, Source], request: Request
) -> Model:
    """The component `text` with its four resources.

    Raises SourceError for a config that breaks a rule, or is of another model than the main input's or a GGUF's header,
    else with all that is wrong with tensors and resources.
    """
    path = checkpoint.shown_beside("config.json")
    text = read_text_config(config or request.main or {}, path)
    if request.main is not None:
        refuse_another_model(text, read_text_config(request.main, path), path)
    arrangement = _arrange(checkpoint, text, sources.keys())

    def passed_by(name: str) -> str | None:
        for prefix, component in arrangement.others.items():
            if name.startswith(prefix):
                return f"component {component} is not converted yet"
        return tied_head(name, text.tied)

    filling = fill(arrangement.places, sources, checkpoint, arrangement.prefix, passed_by, request)
    resources: tuple[Resource, ...] = ()
    problems: tuple[Problem, ...] = ()
    if request.main is None:
        resources, problems = text_resources(checkpoint, request.resources, text.size("vocab_size"))
    if filling.problems or problems:
        raise SourceError((*filling.problems, *problems))
    return Model(
        architecture=QWEN3_5.name,
        components=(Component("text", text.stored),),
        parameters=filling.parameters if checkpoint.kind == "safetensors" else with_blocks(filling.parameters),
        resources=resources,
        groups=filling.groups,
        passed_by=filling.passed_by,
        warnings=filling.notes,
        judge=partial(_warnings, text, path),
    )


def _arrange(checkpoint: Checkpoint, text: TextConfig, tensors: Collection[str]) -> _Arrangement:
    if checkpoint.kind == "safetensors":
        others = {"mtp.": "mtp", "model.visual.": "vision"}
        return _Arrangement(places(text, partial(stored_experts, tensors)), text.prefix, others)
    if problems := list(header_problems(checkpoint, text)):
        raise SourceError(problems)
    further = further_block(checkpoint, text)
    return _Arrangement(gguf_places(text), "blk.", {further: "mtp"} if further else {})


def _warnings(text: TextConfig, path: str, outcome: Outcome) -> Iterator[Problem]:
    """What the engine binds, but is not known to compute."""
    sizes = [Problem("geometry", message, path=path) for message in unknown_sizes(text)]
    banks = chain(unknown_banks(text, outcome), unread(outcome))
    yield from sizes or (Problem("no-kernel", message) for message in banks)
    yield from (Problem("one-device", message) for message in across_layers(outcome))


QWEN3_5 = Architecture("qwen3_5", build, classes=tuple(IMPLEMENTATIONS), gguf=(DENSE, MOE))
