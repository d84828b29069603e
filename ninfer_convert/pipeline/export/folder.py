"""What a folder as Hugging Face lays it out holds beside the weights: config.json and the resources."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ninfer_convert.architectures.generic import whole_config
from ninfer_convert.container.rules import part_name_fault
from ninfer_convert.errors import OutputError, Problem, printable
from ninfer_convert.pipeline.export.files import File, Region
from ninfer_convert.sources.config import read_config

if TYPE_CHECKING:
    from ninfer_convert.container import Artifact
    from ninfer_convert.sources import Checkpoint

STEM = "model"
"""The name of the weights without suffix and shard number."""
PIECE_BYTES = 1 << 20
_WEIGHTS = re.compile(rf"{STEM}(-\d{{5}}-of-\d{{5}})?\.safetensors|{STEM}\.safetensors\.index\.json")


def is_weights(name: str) -> bool:
    """Whether a file of this name is the model that a folder holds, a shard of it or its index."""
    return _WEIGHTS.fullmatch(name) is not None


def turn(name: str) -> int:
    """When a file of this name may appear: what goes with the weights (0), shards (1), last what shows a model (2).

    A set of shards is whole without its index to some readers: the companions stand before the last of them does.
    """
    match = _WEIGHTS.fullmatch(name)
    if match is None:
        return 0
    return 1 if match[1] else 2


def companions(artifact: Artifact, weights: Iterable[str], like: Checkpoint | None) -> tuple[File, ...]:
    """The files beside those called `weights`: each resource by its role, and config.json as the main component has it,
    or as the checkpoint does whose names the weights have, but for the storage of its own.

    Raises OutputError with every role that cannot be a file's name, SourceError where that config cannot be read.
    """
    config = read_config(like) if like is not None else None
    files = list(_files(artifact, artifact.directory.main.config if config is None else whole_config(config)))
    taken = set(weights)
    problems = []
    for name in (file.name for file in files):
        fault = "is the name of another file of the export" if name in taken else part_name_fault(name, "")
        taken.add(name)
        if fault is not None:
            message = f"the resource {printable(name)!r} cannot be written: it {fault}; name an output that ends in "
            problems.append(Problem("resource-name", f"{message}.safetensors to export the tensors alone"))
    if problems:
        raise OutputError(problems)
    return tuple(files)


def _files(artifact: Artifact, config: Mapping[str, Any]) -> Iterator[File]:
    directory = artifact.directory
    resources = dict.fromkeys(item for each in directory.components.values() for item in each.resources.items())
    for role, id in resources:
        record = directory.by_id[id]
        read = partial(_read, artifact, record.offset)
        yield File(role, record.bytes, regions=(Region(role, 0, 1, record.bytes, PIECE_BYTES, read),))
    if config and "config.json" not in (role for role, _ in resources):
        text = json.dumps(config, ensure_ascii=False, indent=2).encode() + b"\n"
        yield File("config.json", len(text), text)


def _read(artifact: Artifact, offset: int, begin: int, end: int) -> bytes:
    return artifact.read(offset + begin, end - begin)
