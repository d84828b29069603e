"""Qwen3.5, Qwen3.6 and Qwen3.8, dense and with experts: the component `text` (qwen35.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ninfer_convert.architectures.base import Architecture, Component, Model
from ninfer_convert.architectures.filling import fill, tied_head
from ninfer_convert.architectures.qwen3_5.config import (
    FULL,
    IMPLEMENTATIONS,
    LINEAR,
    read_text_config,
    refuse_another_model,
)
from ninfer_convert.architectures.qwen3_5.text import Sizes, places
from ninfer_convert.architectures.resources import text_resources
from ninfer_convert.errors import Problem, SourceError

if TYPE_CHECKING:
    from ninfer_convert.architectures.base import Request, Resource
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
    geometry = (Problem("geometry", message, path=path) for message in _not_executed(text))
    return Model(
        architecture=QWEN3_5.name,
        components=(Component("text", text.stored),),
        parameters=filling.parameters,
        resources=resources,
        groups=filling.groups,
        passed_by=filling.passed_by,
        warnings=(*filling.notes, *geometry),
    )


def _not_executed(text: TextConfig) -> Iterator[str]:
    """Geometries that bind, but that no kernel of the engine computes (qwen35.md 7.4)."""
    s = Sizes.of(text)
    if FULL in text.layer_types and (s.Q, s.K, s.H) not in ((6144, 1024, 5120), (4096, 512, 2048)):
        yield (
            f"queries of {s.Q}, keys of {s.K} and a hidden size of {s.H} bind, but the engine computes full attention "
            "of 6144, 1024 and 5120 or of 4096, 512 and 2048 only"
        )
    if LINEAR in text.layer_types and (s.KG, s.VG, s.H) not in ((2048, 6144, 5120), (2048, 4096, 2048)):
        yield (
            f"keys of {s.KG}, values of {s.VG} and a hidden size of {s.H} bind, but the engine computes linear "
            "attention of 2048, 6144 and 5120 or of 2048, 4096 and 2048 only"
        )
    chosen = text.size("num_experts_per_tok")
    if text.moe and (s.E, chosen, s.H, s.Fe, s.Fs) != (256, 8, 2048, 512, 512):
        yield (
            f"{chosen} of {s.E} experts of {s.Fe}, a shared one of {s.Fs} and a hidden size of {s.H} bind, but the "
            "engine computes 8 of 256 of 512, 512 and 2048 only"
        )


QWEN3_5 = Architecture("qwen3_5", build, classes=tuple(IMPLEMENTATIONS))
