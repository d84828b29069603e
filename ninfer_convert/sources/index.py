"""An index (`*.safetensors.index.json`): it says which tensors a model has and which shard holds each.

It is the authority: other files are ignored, other tensors of its shards are passed by, both with a note.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from ninfer_convert import strict_json
from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.sources import files, sniff
from ninfer_convert.sources.labels import counted, label, some
from ninfer_convert.sources.shards import assemble, read_headers

if TYPE_CHECKING:
    from ninfer_convert.sources.base import Checkpoint
    from ninfer_convert.sources.safetensors import Header

INDEX_SUFFIX = ".safetensors.index.json"
_PICKLES = (".bin", ".pt", ".pth")


def open_index(path: Path, shown: str, source: str) -> Checkpoint:
    """The checkpoint that an index describes: each tensor from the shard its `weight_map` names, no other tensor.

    Raises SourceError for a damaged index, paths that leave the folder, missing shards, and tensors that their shards
    lack.
    """
    weight_map = _read_weight_map(path, shown)
    shards: dict[str, list[str]] = {}
    for tensor, shard in weight_map.items():
        shards.setdefault(shard, []).append(tensor)
    _refuse_missing_shards(path.parent, shown, shards)
    headers = read_headers(path.parent, os.path.dirname(shown), sorted(shards), source)
    _refuse_absent_tensors(shown, headers, shards)
    tensors = {
        tensor: stored
        for shard, header in headers.items()
        for tensor, stored in header.tensors.items()
        if weight_map.get(tensor) == shard
    }
    notes = (*_passed_by(path.name, headers, weight_map), *_strays(path, headers))
    return replace(assemble(path, shown, source, list(headers.values()), tensors, notes), others={path})


def _read_weight_map(path: Path, shown: str) -> dict[str, str]:
    content = files.read_whole(path, shown)
    if content is None:
        raise SourceError(Problem("no-such-file", "does not exist", path=shown))
    sniff.refuse_pointer(content, shown)
    try:
        index = strict_json.parse(content)
    except strict_json.JsonFault as error:
        raise SourceError(Problem("bad-index", str(error), path=shown)) from None
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        message = (
            "is JSON without a weight_map, so no index of shards: "
            "give a folder, a .safetensors file, its index or a GGUF file"
        )
        raise SourceError(Problem("bad-index", message, path=shown))
    problems = [
        Problem("bad-index", f"its weight_map puts {label(tensor)} {fault}", path=shown)
        for tensor, shard in weight_map.items()
        if (fault := _shard_fault(shard)) is not None
    ]
    if problems:
        raise SourceError(problems)
    return {tensor: str(PurePosixPath(shard)) for tensor, shard in weight_map.items()}


def _shard_fault(shard: Any) -> str | None:
    """What is wrong with the place a weight_map names, as the end of a sentence."""
    if not isinstance(shard, str) or not shard or "\0" in shard:
        return "into no file: its shard is no name"
    windows = PureWindowsPath(shard)
    if PurePosixPath(shard).is_absolute() or windows.drive or windows.root or ".." in windows.parts:
        return f"into {label(shard)}, outside the index's own folder"
    if shard.endswith(_PICKLES):
        return f"into {label(shard)}, a pickle, which can run code and is not read: save the model as safetensors first"
    return None


def _refuse_missing_shards(folder: Path, shown: str, shards: Mapping[str, Sequence[str]]) -> None:
    absent = [shard for shard in sorted(shards) if not os.path.lexists(folder / shard)]
    if not absent:
        return
    there = sorted(os.listdir(folder))
    others = [name for name in there if name.endswith(".safetensors") and name not in shards]
    if any(name.endswith(_PICKLES) for name in there):
        advice = "what lies beside it are pickles, which can run code and are not read: download the safetensors files"
    elif others:
        advice = f"download it, or give {some(others)} by its own path"
    else:
        advice = "download it"
    total = sum(map(len, shards.values()))
    raise SourceError(
        Problem(
            "missing-shard",
            f"{label(shard)} is missing, where the index puts {len(shards[shard])} of {total} tensors "
            f"({some(shards[shard])}): {advice}",
            path=shown,
        )
        for shard in absent
    )


def _refuse_absent_tensors(shown: str, headers: Mapping[str, Header], shards: Mapping[str, Sequence[str]]) -> None:
    problems = []
    for shard, header in headers.items():
        absent = [tensor for tensor in shards[shard] if tensor not in header.tensors]
        if absent:
            elsewhere = [name for name, other in headers.items() if absent[0] in other.tensors]
            hint = f" (the first is in {some(elsewhere)})" if elsewhere else ""
            message = (
                f"puts {counted(len(absent), 'tensor')} into {label(shard)} that it lacks: {some(absent)}{hint}; "
                "index and shards are not of one model, so download both again"
            )
            problems.append(Problem("absent-tensor", message, path=shown, tensor=absent[0]))
    if problems:
        raise SourceError(problems)


def _passed_by(index: str, headers: Mapping[str, Header], weight_map: Mapping[str, str]) -> tuple[str, ...]:
    """One line each for tensors in a shard that is not theirs by the index, and for those it does not list."""
    elsewhere = []
    unlisted = []
    for shard, header in headers.items():
        for tensor in header.tensors:
            place = weight_map.get(tensor)
            if place is None:
                unlisted.append(tensor)
            elif place != shard:
                elsewhere.append(tensor)
    notes = []
    if elsewhere:
        notes.append(
            f"{counted(len(elsewhere), 'tensor')} passed by, as {label(index)} takes another file's: {some(elsewhere)}"
        )
    if unlisted:
        notes.append(f"{counted(len(unlisted), 'tensor')} passed by, not listed in {label(index)}: {some(unlisted)}")
    return tuple(notes)


def _strays(index: Path, named: Iterable[str]) -> tuple[str, ...]:
    strays = sorted(
        name
        for name in os.listdir(index.parent)
        if name.endswith(".safetensors") and not name.startswith(".") and name not in named
    )
    return (
        (f"{counted(len(strays), 'file')} ignored, not named in {label(index.name)}: {some(strays)}",) if strays else ()
    )
