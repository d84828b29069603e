"""GGUF files, built and taken apart by hand: slow, trusting, and able to build broken ones."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
_BLOCK_BYTES = {
    1: ((0, 4), (1, 2), (24, 1), (25, 2), (26, 4), (27, 8), (28, 8), (30, 2)),
    32: ((2, 18), (3, 20), (6, 22), (7, 24), (8, 34), (20, 18), (39, 17)),
    64: ((40, 36), (42, 18)),
    128: ((41, 18), (142, 34), (143, 28)),
    256: (
        *((10, 84), (11, 110), (12, 144), (13, 176), (14, 210), (34, 54), (35, 66)),
        *((16, 66), (17, 74), (18, 98), (19, 50), (21, 110), (22, 82), (23, 136), (29, 56)),
    ),
}
SIZES = {ggml: (size, values) for values, kinds in _BLOCK_BYTES.items() for ggml, size in kinds}
"""ggml type id -> (block bytes, block values)."""


@dataclass
class Tensor:
    """A tensor to write; `shape` slowest axis first. None: as the data and the tensors before it say."""

    name: str | bytes
    ggml: int
    shape: Sequence[int]
    data: bytes = b""
    offset: int | None = None


@dataclass
class File:
    """A GGUF file to write. `metadata`: key -> (type, encoded value), see the functions below."""

    tensors: Sequence[Tensor] = ()
    metadata: Sequence[tuple[str | bytes, int, bytes]] = ()
    magic: bytes = b"GGUF"
    version: int = 3
    tensor_count: int | None = None
    metadata_count: int | None = None
    alignment: int = 32
    pad_last: bool = True

    def header(self) -> bytes:
        """Everything before the data, its padding not included."""
        parts = [self.magic, struct.pack("<I", self.version)]
        parts.append(struct.pack("<Q", len(self.tensors) if self.tensor_count is None else self.tensor_count))
        parts.append(struct.pack("<Q", len(self.metadata) if self.metadata_count is None else self.metadata_count))
        for key, kind, value in self.metadata:
            parts += [text(key), struct.pack("<I", kind), value]
        offset = 0
        for tensor in self.tensors:
            at = offset if tensor.offset is None else tensor.offset
            parts += [text(tensor.name), struct.pack("<I", len(tensor.shape))]
            parts += [struct.pack("<Q", size) for size in reversed(tensor.shape)]
            parts.append(struct.pack("<IQ", tensor.ggml, at))
            offset = padded(offset + len(tensor.data), self.alignment)
        return b"".join(parts)

    def build(self) -> bytes:
        """The whole file."""
        header = self.header()
        data = b""
        for index, tensor in enumerate(self.tensors):
            data += tensor.data
            if self.pad_last or index < len(self.tensors) - 1:
                data += bytes(padded(len(data), self.alignment) - len(data))
        if not self.tensors:
            return header
        return header + bytes(padded(len(header), self.alignment) - len(header)) + data


def padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def text(value: str | bytes) -> bytes:
    """A length and the bytes of a string."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def scalar(kind: int, value: float) -> bytes:
    return struct.pack("<" + SCALARS[kind], value)


def array(kind: int, items: Sequence[bytes]) -> bytes:
    """An array's element type, length and encoded elements."""
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def u32(key: str, value: int) -> tuple[str, int, bytes]:
    return key, 4, scalar(4, value)


def string(key: str, value: str | bytes) -> tuple[str, int, bytes]:
    return key, STRING, text(value)


@dataclass
class Header:
    """A header taken apart: key -> its entry's bytes, and (name, shape slowest first, ggml type, offset) in order."""

    entries: dict[str, bytes]
    infos: list[tuple[str, tuple[int, ...], int, int]]
    size: int


def header(data: bytes) -> Header:
    """The header of a valid file, or of the beginning of one."""
    at = 4

    def take(code: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from("<" + code, data, at)
        at += struct.calcsize("<" + code)
        return int(value)

    def take_text() -> str:
        nonlocal at
        length = take("Q")
        at += length
        return data[at - length : at].decode()

    def skip(kind: int) -> None:
        nonlocal at
        if kind == STRING:
            length = take("Q")
            at += length
        elif kind == ARRAY:
            item, count = take("I"), take("Q")
            for _ in range(count):
                skip(item)
        else:
            at += struct.calcsize("<" + SCALARS[kind])

    assert take("I") in (2, 3)
    tensor_count, key_count = take("Q"), take("Q")
    entries = {}
    for _ in range(key_count):
        begin = at
        key = take_text()
        skip(take("I"))
        entries[key] = data[begin:at]
    infos = []
    for _ in range(tensor_count):
        name = take_text()
        shape = tuple(reversed([take("Q") for _ in range(take("I"))]))
        infos.append((name, shape, take("I"), take("Q")))
    return Header(entries, infos, at)


def read(path: Path) -> Mapping[str, tuple[int, tuple[int, ...], NDArray[np.uint8]]]:
    """name -> (ggml type, shape slowest first, rows of bytes uint8 [rows, row bytes]); of the usual alignment."""
    data = path.read_bytes()
    head = header(data)
    payload = padded(head.size, 32)
    found = {}
    for name, shape, ggml, offset in head.infos:
        size, values = SIZES[ggml]
        row_bytes = (shape[-1] if shape else 1) // values * size
        rows = int(np.prod(shape[:-1], dtype=np.int64))
        begin = payload + offset
        found[name] = (ggml, shape, np.frombuffer(data, np.uint8, rows * row_bytes, begin).reshape(rows, row_bytes))
    return found
