"""Checkpoints on disk, and the models that architectures make of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from ninfer_convert.architectures import Model, Request, choose
from ninfer_convert.errors import SourceError
from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.config import read_config
from ninfer_convert.sources.encoded import classify
from tests.support import write_sparse_safetensors

WIDTHS = {"BF16": 2, "F16": 2, "F32": 4}


def resources(tokens: int = 8) -> dict[str, Any]:
    """The four files of the component `text`, by name, for a vocabulary of that many tokens."""
    return {
        "tokenizer.json": {
            "model": {"vocab": {f"t{id}": id for id in range(tokens - 1)}},
            "added_tokens": [{"id": tokens - 1, "content": "<end>", "special": True}],
        },
        "tokenizer_config.json": {"added_tokens_decoder": {str(tokens - 1): {"content": "<end>", "special": True}}},
        "chat_template.jinja": "{{ messages }}",
        "generation_config.json": {"eos_token_id": [tokens - 1, 0]},
    }


def write_files(folder: Path, files: Mapping[str, Any]) -> None:
    """Texts as they are, everything else as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def write_headers(folder: Path, shapes: Mapping[str, Sequence[int]], stored: str = "BF16") -> None:
    """model.safetensors with these tensors, of zeros that take no room."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {name: (stored, shape, prod(shape) * WIDTHS[stored]) for name, shape in shapes.items()}
    write_sparse_safetensors(folder / "model.safetensors", sizes)


def build(folder: Path, architecture: str = "auto", request: Request | None = None) -> Model:
    """What an architecture makes of the checkpoint in `folder`; that of the main input, where it is another one."""
    checkpoint = open_checkpoint(folder)
    config = read_config(checkpoint)
    sources = classify(checkpoint, config).sources
    request = request or Request()
    return choose(architecture, checkpoint, request.main or config).build(checkpoint, config, sources, request)


def refusal(folder: Path, architecture: str = "auto", request: Request | None = None) -> list[tuple[str, str]]:
    """(code, message) of everything for which the checkpoint in `folder` is refused."""
    try:
        build(folder, architecture, request)
    except SourceError as error:
        return [(problem.code, problem.message) for problem in error.problems]
    return []
