"""safetensors files by hand: every byte of them under the test's control, and read back the plain way."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "F64": 64,
    "I64": 64,
    "U64": 64,
    "C64": 64,
}
"""Every dtype tag of the format and the bits of one element."""

Tensor = tuple[str, Sequence[int], bytes]


def tensor(dtype: str, shape: Sequence[int], seed: int = 0) -> Tensor:
    """A tensor of bytes that tell where they stand."""
    size = prod(shape) * BITS[dtype] // 8
    return dtype, shape, bytes((seed + index * 37) % 251 for index in range(size))


def header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The header's object, tensors laid end to end in the order given."""
    described: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, (dtype, shape, data) in tensors.items():
        described[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + len(data)]}
        end += len(data)
    return described


def framed(text: bytes, payload: bytes) -> bytes:
    """A file of a header's text, whatever it is, and a payload."""
    return struct.pack("<Q", len(text)) + text + payload


def build(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None, pad: int = 0) -> bytes:
    """A valid file, its header followed by `pad` spaces."""
    text = json.dumps(header(tensors, metadata), ensure_ascii=False).encode() + b" " * pad
    return framed(text, b"".join(data for _, _, data in tensors.values()))


def read(data: bytes) -> dict[str, Tensor]:
    """The tensors of a valid file."""
    (length,) = struct.unpack("<Q", data[:8])
    payload = data[8 + length :]
    described = json.loads(data[8 : 8 + length])
    described.pop("__metadata__", None)
    return {
        name: (entry["dtype"], entry["shape"], payload[slice(*entry["data_offsets"])])
        for name, entry in described.items()
    }
