"""The safetensors format: a length, a JSON header, a payload that the tensors cover without hole or overlap.

Headers are untrusted: nothing is believed before it is checked against the file. The payload may start at any byte,
odd ones included, and the order of the JSON members means nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from ninfer_convert import strict_json
from ninfer_convert.errors import Problem, SourceError, unknown
from ninfer_convert.formats.stored import STORED_TYPES
from ninfer_convert.paths import translated
from ninfer_convert.sources.base import SourceFile, StoredTensor
from ninfer_convert.sources.labels import label

MAX_HEADER = 256 << 20
"""Longest header that is read, in bytes: enough for about 2.7 million tensors."""

MAX_NAME = 65_536
"""Longest name of a tensor, in bytes of UTF-8."""

MAX_AXES = 64
"""Most axes of a tensor; products of more would only cost time."""

DTYPES = {kind.name: kind for kind in STORED_TYPES.values() if kind.kind not in ("block", "encoded")}
"""The dtype tags of the format."""

_MEMBERS = {"dtype", "shape", "data_offsets"}
_MAX_INTEGER = 2**63 - 1


@dataclass(frozen=True)
class Header:
    """One file's header, checked: tensors by name in order of their offsets, and `__metadata__`."""

    file: SourceFile
    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, str]


def read_header(path: Path, shown: str, source: str = "model") -> Header:
    """Read and check the header of one safetensors file.

    Raises SourceError with every problem: a header longer than the file or MAX_HEADER, text that is no strict JSON,
    unknown dtypes, shapes and offsets of wrong types, sizes that contradict dtype and shape, overlaps, holes, trailing
    bytes, a file that is shorter than its header says.
    """
    status, text = _read_text(path, shown)
    digest = hashlib.sha256(len(text).to_bytes(8, "little") + text).hexdigest()
    file = SourceFile(path, shown, status, digest, payload=8 + len(text), source=source)
    if not text.startswith(b"{"):
        raise _error(shown, "bad-header", "its header is no JSON object")
    try:
        header = strict_json.parse(text)
    except strict_json.JsonFault as error:
        raise _error(shown, "bad-header", f"its header {error}") from None
    metadata = header.pop("__metadata__", {})
    problems = [
        Problem("bad-header", f"{label(name)}: {fault}", path=shown, tensor=name)
        for name, entry in header.items()
        if (fault := _entry_fault(name, entry)) is not None
    ]
    if not _is_string_map(metadata):
        problems.append(Problem("bad-header", "its __metadata__ is no object of strings", path=shown))
    if problems:
        raise SourceError(problems)
    with strict_json.collector_paused():
        tensors = [_tensor(file, name, entry) for name, entry in header.items()]
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.nbytes, tensor.name))
    _check_coverage(file, tensors)
    return Header(file, {tensor.name: tensor for tensor in tensors}, metadata)


def _read_text(path: Path, shown: str) -> tuple[os.stat_result, bytes]:
    """The file's status and the header's JSON text."""
    with translated(shown), path.open("rb") as stream:
        status = os.fstat(stream.fileno())
        size = status.st_size
        start = stream.read(8)
        if len(start) < 8:
            raise _error(shown, "truncated", f"is {size} bytes long: truncated, or not safetensors; download it again")
        length = int.from_bytes(start, "little")
        if length > size - 8:
            message = (
                f"is {size} bytes long, but says that its header alone is {length} bytes: "
                "truncated, or not safetensors; download it again"
            )
            raise _error(shown, "truncated", message)
        if length > MAX_HEADER:
            message = f"its header of {length} bytes (of a file of {size}) is over the limit of {MAX_HEADER} bytes"
            raise _error(shown, "header-too-long", message)
        text = stream.read(length)
    if len(text) < length:
        raise _error(shown, "file-changed", "became shorter while its header was read")
    return status, text


def _entry_fault(name: str, entry: Any) -> str | None:
    """What is wrong with one tensor's entry taken by itself, None if nothing is."""
    if len(name) * 4 > MAX_NAME and len(name.encode()) > MAX_NAME:
        return f"a name of {len(name.encode())} bytes is over the limit of {MAX_NAME}"
    if not isinstance(entry, dict) or entry.keys() != _MEMBERS:
        return "is no object of exactly dtype, shape and data_offsets"
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str):
        return "its dtype is no string"
    kind = DTYPES.get(dtype)
    if kind is None:
        return unknown("dtype", dtype[:40], DTYPES)
    if not _are_sizes(shape):
        return "its shape is no list of whole numbers from 0 to 2^63 - 1"
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        return "its data_offsets are no list [begin, end] of whole numbers with begin <= end"
    if len(shape) > MAX_AXES:
        return f"its shape has {len(shape)} axes, over the limit of {MAX_AXES}"
    elements = prod(shape)
    needed, rest = divmod(elements * kind.block_bytes, kind.block_values)
    if rest:
        return f"{elements} elements of {dtype} fill no whole number of bytes"
    if needed != offsets[1] - offsets[0]:
        found = offsets[1] - offsets[0]
        return f"{dtype} {label(str(shape))} takes {needed} bytes, but its data_offsets span {found}"
    return None


def _tensor(file: SourceFile, name: str, entry: Mapping[str, Any]) -> StoredTensor:
    begin, end = entry["data_offsets"]
    stored = DTYPES[entry["dtype"]].name  # one string for all of a type
    return StoredTensor(name, stored, tuple(entry["shape"]), file, file.payload + begin, end - begin)


def _are_sizes(items: Any) -> bool:
    if not isinstance(items, list):
        return False
    for item in items:  # noqa: SIM110 - a generator would take longer than what it checks
        if type(item) is not int or not 0 <= item <= _MAX_INTEGER:
            return False
    return True


def _is_string_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _check_coverage(file: SourceFile, tensors: list[StoredTensor]) -> None:
    """Refuse a cut file, overlaps, holes and trailing bytes; `tensors` are in order of offset."""
    end = max((tensor.offset + tensor.nbytes for tensor in tensors), default=file.payload)
    if end > file.size:
        cut = next(tensor for tensor in tensors if tensor.offset + tensor.nbytes > file.size)
        message = (
            f"is truncated: its header describes {end} bytes, the file has {file.size} "
            f"(the first tensor cut is {label(cut.name)}); download it again"
        )
        raise _error(file.shown, "truncated", message)
    problems = []
    covered, last = file.payload, ""
    for tensor in tensors:
        if not tensor.nbytes:
            continue
        if tensor.offset < covered:
            message = f"{label(tensor.name)} and {label(last)} overlap by {covered - tensor.offset} bytes"
            problems.append(Problem("overlap", message, path=file.shown, tensor=tensor.name))
        elif tensor.offset > covered:
            message = f"{tensor.offset - covered} bytes before {label(tensor.name)} belong to no tensor"
            problems.append(Problem("hole", message, path=file.shown, tensor=tensor.name))
        if tensor.offset + tensor.nbytes > covered:
            covered, last = tensor.offset + tensor.nbytes, tensor.name
    if covered < file.size:
        message = f"{file.size - covered} bytes at its end belong to no tensor"
        problems.append(Problem("trailing-bytes", message, path=file.shown))
    if problems:
        raise SourceError(problems)


def _error(shown: str, code: str, message: str) -> SourceError:
    return SourceError(Problem(code, message, path=shown))
