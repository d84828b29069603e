"""Artifacts made by the product's writer from plain bytes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from ninfer_convert.container import (
    DIGEST_PLACEHOLDER,
    ArtifactWriter,
    Binding,
    Component,
    Directory,
    ResourceObject,
    TensorObject,
    plan_files,
)


def directory(payload: int = 20_000, name: str = "tiny") -> Directory:
    """A resource of 300 bytes, a gap, and a tensor up to the end; `payload` is a multiple of 4."""
    tensor = TensorObject("a", ((payload - 512) // 4,), "fp32", "contiguous_le_v1", 512, payload - 512)
    placeholder = {"sha256": DIGEST_PLACEHOLDER}
    return Directory(
        {"text": Component({}, resources={"tokenizer.json": "r"})},
        (ResourceObject("r", 0, 300), tensor),
        {"w": Binding("a")},
        metadata={"name": name},
        provenance={"tool": {"name": "test"}, "objects": {"r": placeholder, "a": placeholder}},
    )


def payload_of(directory: Directory, seed: int) -> bytes:
    """Random bytes for the objects, zero bytes between them."""
    data = bytearray(directory.payload_bytes)
    source = random.Random(seed)
    for object in directory.objects:
        data[object.offset : object.end] = source.randbytes(object.bytes)
    return bytes(data)


def write(
    path: Path, limit: int | None = None, seed: int = 0, force: bool = False, planned: Directory | None = None
) -> bytes:
    """Write an artifact at `path`; its logical payload."""
    planned = planned or directory()
    payload = payload_of(planned, seed)
    with ArtifactWriter(path, plan_files(planned, path, limit), force) as writer:
        for object in planned.objects:
            writer.write(object.offset, payload[object.offset : object.end])
        digests = {object.id: writer.digest(object) for object in planned.objects}
        for object in planned.objects:
            writer.release(object)
        writer.finish(digests)
    return payload


def named(name: str) -> Directory:
    """The directory of another model of the same size."""
    return replace(directory(), metadata={"name": name})
