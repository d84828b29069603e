"""The fixed bytes of an artifact's files: magics, headers, alignment (container.md 1)."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

ENTRY_MAGIC = b"NINFER\x00\x03"
PART_MAGIC = b"NINPRT\x00\x03"
HEADER = struct.Struct("<8sQ16s")
"""Magic; `json_bytes` of an entry or the index of a part; artifact_id."""

PAYLOAD_ALIGNMENT = 4096
"""Where a file's payload starts: the next multiple behind the header, and behind the directory in an entry."""

MAX_DIRECTORY = 1 << 30
"""Longest directory that is read or written, in bytes: over a million objects. A header may promise any length."""

ID_BYTES = 16
U64_MAX = 2**64 - 1


def align_up(x: int, a: int) -> int:
    """The smallest multiple of `a` that is not below `x`."""
    return -(-x // a) * a


def derive_id(json: Iterable[bytes]) -> bytes:
    """The artifact_id of a directory: the first 16 bytes of the SHA-256 of its `json_bytes` bytes, given in parts."""
    digest = hashlib.sha256()
    for part in json:
        digest.update(part)
    return digest.digest()[:ID_BYTES]


def entry_start(json_bytes: int) -> int:
    """Where the payload of an entry with a directory of `json_bytes` bytes starts."""
    return align_up(HEADER.size + json_bytes, PAYLOAD_ALIGNMENT)
