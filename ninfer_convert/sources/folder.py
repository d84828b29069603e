"""Which model a folder holds: by its index, or else by being the only one. Nothing is merged by guess."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.paths import translated
from ninfer_convert.sources.base import Checkpoint, StoredTensor, default_name
from ninfer_convert.sources.index import INDEX_SUFFIX, open_index
from ninfer_convert.sources.labels import counted, label, some
from ninfer_convert.sources.shards import SHARD, assemble, read_headers

if TYPE_CHECKING:
    from ninfer_convert.sources.safetensors import Header

MODEL = "model.safetensors"

_OTHERS = (
    ((".gguf",), "give the GGUF file itself: {}"),
    ((".bin", ".pt", ".pth", ".ckpt"), "its weights are pickles ({}), which can run code: save them as safetensors"),
    ((".npz",), "its weights are NumPy archives ({}), as old MLX ones: save them as safetensors"),
    ((".onnx",), "it holds an ONNX model ({}): take the safetensors or GGUF of the model"),
    ((".ninfer",), "it holds artifacts; info, verify and export take one by its name: {}"),
)
"""What a folder may hold in place of safetensors, by suffix, and the end of the sentence that answers."""


def open_folder(path: Path, shown: str, source: str) -> Checkpoint:
    """The checkpoint in a folder: by its index, or else the one file or set of shards that it holds.

    Raises SourceError where there is none, more than one, or an adapter only.
    """
    with translated(shown):
        names = sorted(name for name in os.listdir(path) if not name.startswith(".") and not (path / name).is_dir())
    indexes = [name for name in names if name.endswith(INDEX_SUFFIX)]
    if f"model{INDEX_SUFFIX}" in indexes:
        indexes = [f"model{INDEX_SUFFIX}"]
    if len(indexes) == 1:
        indexed = open_index(path / indexes[0], os.path.join(shown, indexes[0]), source)
        return replace(indexed, shown=shown, default_name=default_name(path))
    weights = [name for name in names if name.endswith(".safetensors")]
    if "adapter_config.json" in names and all(name.startswith("adapter_") for name in weights):
        message = "holds an adapter (adapter_config.json), not a model: merge it into its base model first"
        raise SourceError(Problem("adapter", message, path=shown))
    if not weights:
        message = f"holds no safetensors file: {_instead(path, names)}"
        raise SourceError(Problem("no-weights", message, path=shown))
    if len(indexes) > 1:
        raise _ambiguous(indexes, shown)
    if MODEL in weights:
        return _open_model(path, shown, source, weights)
    choices = [members[0] for members in _families(weights).values()]
    choices += [name for name in names if name.endswith(".gguf")]
    if len(choices) > 1:
        raise _ambiguous(choices, shown)
    _refuse_missing_numbers(weights, shown)
    headers = list(read_headers(path, shown, weights, source).values())
    return assemble(path, shown, source, headers, _union(headers, shown))


def _open_model(path: Path, shown: str, source: str, weights: Sequence[str]) -> Checkpoint:
    """model.safetensors: the Hugging Face layout's name for a model in one file, so files beside it are not its own.

    Raises SourceError where one of them holds the same tensor in the same type: an overlay or another copy of the
    model, and no index decides.
    """
    others = read_headers(path, shown, weights, source)
    model = others.pop(MODEL)
    problems = []
    for other, header in others.items():
        twice = [name for name, tensor in header.tensors.items() if _same(tensor, model.tensors.get(name))]
        if twice:
            message = (
                f"{counted(len(twice), 'tensor')} ({some(twice)}) both in {MODEL} and in {label(other)}, and no "
                f"model{INDEX_SUFFIX} says which counts: give the path of the file to convert, or move the other away"
            )
            problems.append(Problem("duplicate-tensor", message, path=shown, tensor=twice[0]))
    if problems:
        raise SourceError(problems)
    notes = (f"{counted(len(others), 'file')} ignored beside {MODEL}: {some(list(others))}",) if others else ()
    return assemble(path, shown, source, [model], model.tensors, notes)


def _same(tensor: StoredTensor, other: StoredTensor | None) -> bool:
    return other is not None and (tensor.stored, tensor.shape) == (other.stored, other.shape)


def _ambiguous(choices: Sequence[str], shown: str) -> SourceError:
    message = (
        f"holds {len(choices)} models ({some(choices)}) and nothing says which is meant: "
        "give the path of the file to convert, or move the others away"
    )
    return SourceError(Problem("ambiguous-folder", message, path=shown))


def _families(weights: Iterable[str]) -> dict[tuple[str, str], list[str]]:
    """Files by the model they seem to belong to: (prefix, total) of a numbered set, (name, "") of any other."""
    families: dict[tuple[str, str], list[str]] = {}
    for name in weights:
        shard = SHARD.fullmatch(name)
        families.setdefault((shard["prefix"], shard["total"]) if shard else (name, ""), []).append(name)
    return families


def _refuse_missing_numbers(weights: Sequence[str], shown: str) -> None:
    """`weights` are the files of one numbered set, or one single file."""
    shard = SHARD.fullmatch(weights[0])
    if shard is None:
        return
    numbers = range(1, int(shard["total"]) + 1)
    expected = [f"{shard['prefix']}-{number:05d}-of-{shard['total']}.safetensors" for number in numbers]
    present = set(weights)
    missing = [name for name in expected if name not in present]
    if missing:
        message = f"lacks {len(missing)} of the {len(expected)} shards of its model: {some(missing)}; download them"
        raise SourceError(Problem("missing-shard", message, path=shown))


def _union(headers: Sequence[Header], shown: str) -> Mapping[str, StoredTensor]:
    """The tensors of all shards; raises SourceError where two hold one of the same name, as no index decides."""
    tensors: dict[str, StoredTensor] = {}
    problems = []
    for header in headers:
        for name, tensor in header.tensors.items():
            first = tensors.setdefault(name, tensor)
            if first is not tensor:
                message = (
                    f"{label(name)} is in {label(first.file.path.name)} and in {label(tensor.file.path.name)}, "
                    f"and there is no model{INDEX_SUFFIX} to say which counts"
                )
                problems.append(Problem("duplicate-tensor", message, path=shown, tensor=name))
    if problems:
        raise SourceError(problems)
    return tensors


def _instead(path: Path, names: Sequence[str]) -> str:
    """The end of a sentence: what a folder without safetensors holds, and what to do."""
    for suffixes, advice in _OTHERS:
        found = [name for name in names if name.endswith(suffixes)]
        if found:
            return advice.format(some(found))
    inside = {file.parent for file in path.glob("*/*.safetensors")} | set(path.glob("snapshots/*"))
    if inside:
        return (
            f"give the folder inside it that holds the model: {some(sorted(str(f.relative_to(path)) for f in inside))}"
        )
    return "give a folder with a model.safetensors or an index and its shards, or a file"
