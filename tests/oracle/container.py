"""An independent reader of `.ninfer` artifacts: struct and json, no other code, nothing tolerated."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Container:
    """What the files of an artifact hold: the directory, its text, the logical payload, the id."""

    directory: dict[str, Any]
    text: bytes
    payload: bytes
    artifact_id: bytes

    def object_bytes(self, id: str) -> bytes:
        """The bytes of the object `id`."""
        (record,) = (record for record in self.directory["objects"] if record["id"] == id)
        return self.payload[record["offset"] : record["offset"] + record["bytes"]]


def read(entry: Path) -> Container:
    """Read the artifact at `entry` with all its parts; AssertionError for any byte of framing that is not right."""
    data = entry.read_bytes()
    magic, json_bytes, artifact_id = struct.unpack("<8sQ16s", data[:32])
    assert magic == bytes.fromhex("4e 49 4e 46 45 52 00 03")
    assert json_bytes > 0
    text = data[32 : 32 + json_bytes]
    assert len(text) == json_bytes
    start = (32 + json_bytes + 4095) // 4096 * 4096
    assert not any(data[32 + json_bytes : start])
    directory = json.loads(text)
    entry_file, *parts = directory["files"]
    assert entry_file["path"] is None
    assert len(data) == start + entry_file["payload_bytes"]
    payload = data[start:]
    for index, part in enumerate(parts, 1):
        data = (entry.parent / part["path"]).read_bytes()
        assert data[:8] == bytes.fromhex("4e 49 4e 50 52 54 00 03")
        assert data[8:16] == index.to_bytes(8, "little")
        assert data[16:32] == artifact_id
        assert not any(data[32:4096])
        assert len(data) == 4096 + part["payload_bytes"]
        payload += data[4096:]
    return Container(directory, text, payload, artifact_id)


def write(entry: Path, root: Any, payload: bytes, artifact_id: bytes = bytes(range(16))) -> None:
    """Write `root`, a directory or its text, and a payload as the single file `entry`, whatever they hold."""
    text = root if isinstance(root, bytes) else json.dumps(root, ensure_ascii=False).encode()
    head = struct.pack("<8sQ16s", bytes.fromhex("4e 49 4e 46 45 52 00 03"), len(text), artifact_id) + text
    entry.write_bytes(head + bytes(-len(head) % 4096) + payload)
