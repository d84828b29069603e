"""Exports as safetensors: decoded values under logical names, in one file or in shards with an index.

The `safetensors` package writes from whole arrays in memory and has no bfloat16 without a framework, so the header is
made here; the package's readers are its judges in the tests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.errors import OutputError, Problem
from ninfer_convert.formats.stored import STORED_TYPES
from ninfer_convert.pipeline.export.files import File
from ninfer_convert.pipeline.export.tensors import region

if TYPE_CHECKING:
    from ninfer_convert.formats.stored import StoredType
    from ninfer_convert.pipeline.export.tensors import Tensor

    Written = tuple[Tensor, StoredType]

SUFFIX = ".safetensors"
DTYPES = {"fp32": STORED_TYPES["F32"], "bf16": STORED_TYPES["BF16"]}
"""What values of scaled formats may be exported as."""
_METADATA = "__metadata__"
_ALIGNMENT = 8


def plan_files(
    tensors: Sequence[Tensor], artifact_id: str, stem: str, dtype: str, limit: int | None
) -> tuple[File, ...]:
    """The files that hold `tensors`: one, or, above `limit` bytes of tensors, shards and behind them an index.

    Those of one direct format keep their words; the others are decoded to `dtype`. Raises OutputError for a name
    that the format reserves.
    """
    if any(tensor.name == _METADATA for tensor in tensors):
        message = f"the parameter {_METADATA} cannot be exported: safetensors keeps this name for itself"
        raise OutputError(Problem("reserved-name", message, tensor=_METADATA))
    written = [(tensor, _kind(tensor, dtype)) for tensor in tensors]
    shards = _shards(written, limit)
    if len(shards) == 1:
        return (_file(stem + SUFFIX, written, artifact_id),)
    names = [f"{stem}-{number:05d}-of-{len(shards):05d}{SUFFIX}" for number in range(1, len(shards) + 1)]
    files = [_file(name, shard, artifact_id) for name, shard in zip(names, shards, strict=True)]
    index = {
        "metadata": {"total_size": sum(map(_nbytes, written))},
        "weight_map": {tensor.name: file for file, shard in zip(names, shards, strict=True) for tensor, _ in shard},
    }
    text = json.dumps(index, ensure_ascii=False, indent=2).encode() + b"\n"
    return (*files, File(f"{stem}{SUFFIX}.index.json", len(text), text))


def is_decoded(tensor: Tensor) -> bool:
    """Whether its values are exported, and not its words: whether it is anything but words of one direct format."""
    kind = tensor.kind
    return kind is None or kind.kind == "block" or kind.identical != tensor.formats


def _kind(tensor: Tensor, dtype: str) -> StoredType:
    return DTYPES[dtype] if tensor.kind is None or is_decoded(tensor) else tensor.kind


def _nbytes(written: Written) -> int:
    tensor, kind = written
    return prod(tensor.shape) * kind.block_bytes


def _shards(written: Sequence[Written], limit: int | None) -> list[list[Written]]:
    """The tensors in order; a shard ends where the next one would take it above `limit`."""
    shards: list[list[Written]] = [[]]
    size = 0
    for each in written:
        nbytes = _nbytes(each)
        if limit is not None and shards[-1] and size + nbytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(each)
        size += nbytes
    return shards


def _file(name: str, written: Sequence[Written], artifact_id: str) -> File:
    """Wide words lie in front of narrow ones, so that every tensor is aligned to its own."""
    placed = []
    header: dict[str, object] = {_METADATA: _metadata([tensor for tensor, _ in written], artifact_id)}
    end = 0
    for tensor, kind in sorted(written, key=lambda each: -each[1].block_bytes):
        begin, end = end, end + _nbytes((tensor, kind))
        header[tensor.name] = {"dtype": kind.name, "shape": tensor.shape, "data_offsets": [begin, end]}
        placed.append((tensor, kind, begin))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    head = len(text).to_bytes(8, "little") + text
    regions = tuple(region(tensor, kind, len(head) + begin) for tensor, kind, begin in placed)
    return File(name, len(head) + end, head, regions)


def _metadata(tensors: Sequence[Tensor], artifact_id: str) -> dict[str, str]:
    """`format` is what Hugging Face's readers ask for; of decoded tensors, what their words were."""
    decoded = {tensor.name: tensor.formats for tensor in tensors if is_decoded(tensor)}
    return {
        "format": "pt",
        "ninfer.artifact_id": artifact_id,
        "ninfer.decoded": json.dumps(decoded, ensure_ascii=False, separators=(",", ":")),
    }
