"""Importance matrices as llama.cpp wrote them before GGUF."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def legacy(
    entries: Sequence[tuple[str, int, Sequence[float] | NDArray[Any]]], tail: bytes = b"", *, count: int | None = None
) -> bytes:
    """A file of the older format: (name, calls, values)."""
    data = struct.pack("<i", len(entries) if count is None else count)
    for name, calls, values in entries:
        raw = name.encode()
        data += struct.pack("<i", len(raw)) + raw + struct.pack("<ii", calls, len(values))
        data += np.array(values, "<f4").tobytes()
    return data + tail
