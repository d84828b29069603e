"""Folders of small shards, and what is said of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from ninfer_convert.errors import SourceError
from ninfer_convert.sources import Checkpoint, open_checkpoint
from tests.oracle import safetensors as oracle

INDEX = "model.safetensors.index.json"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4" * 64 + b"\nsize 4976698672\n"


def shard(folder: Path, name: str, *tensors: str, dtype: str = "U8", seed: int = 0) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(oracle.build({tensor: oracle.tensor(dtype, (4,), seed) for tensor in tensors}))
    return path


def index(folder: Path, weight_map: Mapping[str, object], name: str = INDEX) -> Path:
    path = folder / name
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return path


def refused(path: str | Path) -> list[str]:
    with pytest.raises(SourceError) as caught:
        open_checkpoint(path)
    return [str(problem) for problem in caught.value.problems]


def places(checkpoint: Checkpoint) -> dict[str, str]:
    """The file that each tensor is read from."""
    return {name: tensor.file.path.name for name, tensor in checkpoint.tensors.items()}


def sharded(folder: Path) -> dict[str, str]:
    shard(folder, "model-00001-of-00002.safetensors", "a", "b")
    shard(folder, "model-00002-of-00002.safetensors", "c")
    return {
        "a": "model-00001-of-00002.safetensors",
        "b": "model-00001-of-00002.safetensors",
        "c": "model-00002-of-00002.safetensors",
    }
