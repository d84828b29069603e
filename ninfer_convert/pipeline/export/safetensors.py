"""Exports as safetensors: decoded values under logical names, in one file or in shards with an index.

The `safetensors` package writes from whole arrays in memory and has no bfloat16 without a framework, so the header is
made here; the package's readers are its judges in the tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.errors import OutputError, Problem
from ninfer_convert.formats.stored import STORED_TYPES
from ninfer_convert.pipeline.export.files import File
from ninfer_convert.pipeline.export.tensors import region
from ninfer_convert.pipeline.parameters import formats, keeping

if TYPE_CHECKING:
    from ninfer_convert.formats.stored import StoredType
    from ninfer_convert.values import Source

    Tensor = tuple[str, Source, StoredType]

SUFFIX = ".safetensors"
DTYPES = {"fp32": STORED_TYPES["F32"], "bf16": STORED_TYPES["BF16"]}
"""What values of scaled formats may be exported as."""
_METADATA = "__metadata__"
_ALIGNMENT = 8


def plan_files(
    sources: Mapping[str, Source], artifact_id: str, stem: str, dtype: str, limit: int | None
) -> tuple[File, ...]:
    """The files that hold `sources`, by the name each has there: one, or, above `limit` bytes of tensors, shards and
    behind them an index.

    Those of one direct format keep their words; the others are decoded to `dtype`. Raises OutputError for a name
    that the format reserves.
    """
    if _METADATA in sources:
        message = f"the parameter {_METADATA} cannot be exported: safetensors keeps this name for itself"
        raise OutputError(Problem("reserved-name", message, tensor=_METADATA))
    tensors = [(name, source, _kind(source, dtype)) for name, source in sources.items()]
    shards = _shards(tensors, limit)
    if len(shards) == 1:
        return (_file(stem + SUFFIX, tensors, artifact_id),)
    names = [f"{stem}-{number:05d}-of-{len(shards):05d}{SUFFIX}" for number in range(1, len(shards) + 1)]
    files = [_file(name, shard, artifact_id) for name, shard in zip(names, shards, strict=True)]
    index = {
        "metadata": {"total_size": sum(map(_nbytes, tensors))},
        "weight_map": {name: file for file, shard in zip(names, shards, strict=True) for name, _, _ in shard},
    }
    text = json.dumps(index, ensure_ascii=False, indent=2).encode() + b"\n"
    return (*files, File(f"{stem}{SUFFIX}.index.json", len(text), text))


def is_decoded(source: Source) -> bool:
    """Whether its values are exported, and not its words: whether it is anything but words of one direct format."""
    kind = keeping(source)
    return kind is None or kind.kind == "block" or kind.identical != formats(source)


def _kind(source: Source, dtype: str) -> StoredType:
    kind = keeping(source)
    return DTYPES[dtype] if kind is None or is_decoded(source) else kind


def _nbytes(tensor: Tensor) -> int:
    _, source, kind = tensor
    return prod(source.shape) * kind.block_bytes


def _shards(tensors: Sequence[Tensor], limit: int | None) -> list[list[Tensor]]:
    """The tensors in order; a shard ends where the next one would take it above `limit`."""
    shards: list[list[Tensor]] = [[]]
    size = 0
    for tensor in tensors:
        nbytes = _nbytes(tensor)
        if limit is not None and shards[-1] and size + nbytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += nbytes
    return shards


def _file(name: str, tensors: Sequence[Tensor], artifact_id: str) -> File:
    """Wide words lie in front of narrow ones, so that every tensor is aligned to its own."""
    placed = []
    header: dict[str, object] = {_METADATA: _metadata(tensors, artifact_id)}
    end = 0
    for tensor in sorted(tensors, key=lambda tensor: -tensor[2].block_bytes):
        own, source, kind = tensor
        begin, end = end, end + _nbytes(tensor)
        header[own] = {"dtype": kind.name, "shape": source.shape, "data_offsets": [begin, end]}
        placed.append((own, source, kind, begin))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    head = len(text).to_bytes(8, "little") + text
    regions = tuple(region(own, source, kind, len(head) + begin) for own, source, kind, begin in placed)
    return File(name, len(head) + end, head, regions)


def _metadata(tensors: Sequence[Tensor], artifact_id: str) -> dict[str, str]:
    """`format` is what Hugging Face's readers ask for; of decoded tensors, what their words were."""
    decoded = {name: formats(source) for name, source, _ in tensors if is_decoded(source)}
    return {
        "format": "pt",
        "ninfer.artifact_id": artifact_id,
        "ninfer.decoded": json.dumps(decoded, ensure_ascii=False, separators=(",", ":")),
    }
