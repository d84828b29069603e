"""Artifacts of objects in every format, with the words and values they must be read as, from the oracles alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from ninfer_convert.container import ArtifactWriter, Binding, Component, Directory, TensorObject, plan_files
from ninfer_convert.layouts import usual_layout
from tests.oracle import formats, gguf, layouts

Array = NDArray[Any]

GGUF = Path(__file__).parents[1] / "golden" / "gguf"
EVERY_FORMAT = (*layouts.DIRECT, *layouts.GROUPED, "nvfp4", *formats.ROW_SCALED, *layouts.GGUF)


@dataclass(frozen=True)
class Stored:
    """One object: its bytes, the words [rows, ..] they hold, and the values they mean in `shape`."""

    format: str
    shape: tuple[int, ...]
    payload: bytes
    codes: Array
    scales: Array | None
    values: Array
    divisors: int = 1


def stored(format: str, rows: int = 5, columns: int = 130, seed: int = 0) -> Stored:
    """An object of legal words: of nvfp4 256 rows of 128 with two divisors, of gguf formats the fixture's 6 of 512."""
    rng = np.random.default_rng(seed)
    if format in layouts.DIRECT:
        return direct(format, (rows, columns), rng.integers(0, 256, rows * columns * layouts.DIRECT[format], np.uint8))
    if format in layouts.GGUF:
        return _blocks(format)
    if format in formats.GROUPED:
        group, qmin, qmax = formats.GROUPED[format]
        codes: Array = rng.integers(qmin, qmax, (rows, columns), np.int8, endpoint=True)
        scales: Array = rng.integers(0x1800, 0x3000, (rows, -(-columns // group)), np.uint16) | np.uint16(0x8000)
        values = formats.decode_grouped(format, codes.tolist(), scales.tolist())
        return _made(format, codes, scales, values)
    if format == "nvfp4":
        codes, scales = rng.integers(0, 16, (256, 128), np.uint8), rng.integers(0, 0x7F, (256, 8), np.uint8)
        divisors = np.array([0.75, 12.5], np.float32).view(np.uint32).tolist()
        values = formats.decode_nvfp4(codes.tolist(), scales.tolist(), np.repeat(divisors, 128).tolist())
        return _made(format, codes, scales, values, divisors)
    codes = rng.integers(0, 0x7F, (rows, columns), np.uint8)
    scales = rng.integers(0x2000, 0x3000, rows, np.uint16)
    return _made(format, codes, scales, formats.decode_row_scaled(format, codes.tolist(), scales.tolist()))


def direct(format: str, shape: Sequence[int], data: Array) -> Stored:
    """An object of direct words; `data` is read as them."""
    words = np.frombuffer(data.tobytes(), {"bf16": np.uint16, "fp32": np.uint32, "int32": np.int32}[format])
    wide = words.astype(np.uint32) << 16 if format == "bf16" else words
    values = wide if format == "int32" else wide.view(np.float32)
    return Stored(format, tuple(shape), words.tobytes(), words, None, values.reshape(shape))


def floats(format: str, values: Array) -> Stored:
    """A bf16 (cut short) or fp32 object of these values."""
    words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return direct(format, values.shape, (words >> 16).astype(np.uint16) if format == "bf16" else words)


def _made(
    format: str, codes: Array, scales: Array, values: Sequence[Sequence[int]], divisors: Sequence[int] = ()
) -> Stored:
    content = layouts.Content(codes.tolist(), scales.tolist(), list(divisors))
    payload = layouts.encode(format, codes.shape, content)
    decoded = np.array(values, np.uint32).view(np.float32)
    return Stored(format, codes.shape, payload, codes, scales, decoded, len(divisors) or 1)


@cache
def _fixture() -> Mapping[str, tuple[int, tuple[int, ...], Array]]:
    return {**gguf.read(GGUF / "blocks.gguf"), **gguf.read(GGUF / "q2_0.gguf")}


def _blocks(format: str) -> Stored:
    name = f"blk.0.{format.removeprefix('gguf_')}.weight"
    _, shape, rows = _fixture()[name]
    return Stored(format, shape, rows.tobytes(), rows, None, load_file(GGUF / "expected.safetensors")[name])


def write(
    path: Path,
    objects: Mapping[str, Stored],
    bindings: Mapping[str, Binding] | None = None,
    provenance: Mapping[str, Any] | None = None,
    limit: int | None = None,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """An artifact of these objects; without `bindings` each is the parameter of its own id."""
    records = []
    end = 0
    for id, each in objects.items():
        offset = -(-end // 256) * 256
        layout = usual_layout(each.format).name
        records.append(TensorObject(id, each.shape, each.format, layout, offset, len(each.payload), each.divisors))
        end = records[-1].end
    directory = Directory(
        components={"text": Component(config or {})},
        objects=tuple(records),
        bindings=bindings or {id: Binding(id) for id in objects},
        provenance=provenance or {},
    )
    files = plan_files(directory, path, limit)
    with ArtifactWriter(path, files) as writer:
        for record in records:
            writer.write(record.offset, objects[record.id].payload)
        writer.finish()
    return path


def fused(objects: Mapping[str, Stored], order: Sequence[str]) -> Array:
    """The values of these objects one behind the other, in C order."""
    return np.concatenate([objects[id].values.reshape(prod(objects[id].shape)) for id in order])


def flips(file: Path, places: Sequence[int], random: Random) -> Iterator[int]:
    """Each of the places in turn; until the next is asked for, a random bit of the byte there is flipped."""
    data = file.read_bytes()
    with file.open("r+b", buffering=0) as stream:
        for place in places:
            stream.seek(place)
            stream.write(bytes([data[place] ^ 1 << random.randrange(8)]))
            yield place
            stream.seek(place)
            stream.write(data[place : place + 1])
