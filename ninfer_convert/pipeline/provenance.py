"""What an artifact records of where it came from (recipes.md, Provenance).

No absolute path, user, host or time: the same inputs give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_convert.container import DIGEST_PLACEHOLDER
from ninfer_convert.methods.callable import CallableMethod
from ninfer_convert.methods.import_encoded import IMPORT_ENCODED
from ninfer_convert.pipeline.importance import PARAMETER as IMATRIX
from ninfer_convert.pipeline.planned import PlannedBytes, PlannedTensor
from ninfer_convert.recipe.uses import DIVISOR

if TYPE_CHECKING:
    from ninfer_convert.architectures import Model
    from ninfer_convert.methods import Method
    from ninfer_convert.pipeline.inputs import Inputs
    from ninfer_convert.pipeline.objects import Placed
    from ninfer_convert.pipeline.planned import Member, Shaping
    from ninfer_convert.recipe import Recipe, Resolution
    from ninfer_convert.sources.base import Checkpoint, SourceFile
    from ninfer_convert.sources.imatrix import ImportanceMatrix
    from ninfer_convert.values import Shape

ENCODING = 1
"""Changes only when the bytes for the same inputs change."""


def record(
    inputs: Inputs,
    recipe: Recipe,
    shaping: Shaping,
    resolution: Resolution,
    model: Model,
    placed: Placed,
    shapes: Mapping[str, Shape],
) -> dict[str, Any]:
    """The directory's `provenance`, with placeholders for the digests, which are taken once the payload is written.

    `shapes` are the logical ones of the parameters that are stored.
    """
    main = inputs.main.checkpoint
    left_out = {**model.passed_by, **inputs.main.classification.skipped}
    members = [member for planned in placed.objects if isinstance(planned, PlannedTensor) for member in planned.members]
    return {
        "tool": {"name": "ninfer-convert", "encoding": ENCODING},
        "recipe": {
            "name": _utf8(recipe.name),
            "files": [{"name": file_name(file.path), "sha256": file.sha256} for file in recipe.files],
        },
        "overrides": {"set": list(recipe.overrides), "requantize": shaping.requantize, "name": shaping.name},
        "sources": {
            main.source: {"files": _files(main)},
            **{name: {"files": _files(checkpoint)} for name, checkpoint in inputs.checkpoints.items()},
            **{
                matrix.source: {"files": [{**_matrix(matrix), "size": matrix.size}]}
                for name, matrix in inputs.matrices.items()
                if name in recipe.sources
            },
        },
        "objects": {planned.record.id: _object(planned, main.source, inputs.matrices) for planned in placed.objects},
        "parameters": dict(_parameters(members, placed, resolution, shapes)),
        "skipped": [
            *(
                {"name": skip.name, "tensors": model.by_name[skip.name].tensors, "reason": skip.reason}
                for skip in resolution.skipped
            ),
            *(
                {"name": name, "tensors": [name], "reason": reason}
                for reason, names in left_out.items()
                for name in names
            ),
        ],
        "activation_scales": _activation_scales(members, resolution),
    }


def _parameters(
    members: Iterable[Member], placed: Placed, resolution: Resolution, shapes: Mapping[str, Shape]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of parameters what neither binding nor object shows: the logical shape, the tensor whose axes it exchanges."""
    transposed = {member.parameter: member.source.origins[0] for member in members if member.piece.transpose}
    transposed |= {alias.name: transposed[alias.target] for alias in resolution.shares if alias.target in transposed}
    for name, binding in placed.bindings.items():
        record: dict[str, Any] = {}
        if binding.object is None and name in shapes:
            record["shape"] = list(shapes[name])
        if origin := transposed.get(name):
            record["transposed"] = {"source": origin.source, "tensor": origin.tensor}
        if record:
            yield name, record


def _matrix(matrix: ImportanceMatrix) -> dict[str, Any]:
    """A path inside parameters: the file's name and digest."""
    return {"name": file_name(matrix.shown), "sha256": matrix.sha256}


def _activation_scales(members: Iterable[Member], resolution: Resolution) -> dict[str, dict[str, Any]]:
    """Scales of the inputs and outputs of stored weights of whose uses none has a divisor of them.

    Parameter -> tensor -> number, or numbers. JSON has no word for NaN and infinities: they are spelled out.
    """

    def spelled(scales: tuple[float, ...]) -> Any:
        numbers = [scale if isfinite(scale) else str(scale) for scale in scales]
        return numbers[0] if len(numbers) == 1 else numbers

    used = {use.parameter for use in resolution.uses if DIVISOR in use.auxiliaries}
    return {
        member.parameter: {tensor: spelled(scales) for tensor, scales in encoding.activations.items()}
        for member in members
        if member.parameter not in used and (encoding := member.source.encoding) and encoding.activations
    }


def _files(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """Of a split GGUF the resource `gguf_metadata` keeps the first part's order of tensors; the others' stands here."""
    files: dict[SourceFile, dict[str, Any]] = {
        file: {"name": file_name(file.path), "size": file.size, "header_sha256": file.header_sha256}
        for file in checkpoint.files
    }
    if checkpoint.kind == "gguf":
        for tensor in checkpoint.tensors.values():
            if tensor.file is not checkpoint.files[0]:
                files[tensor.file].setdefault("tensors", []).append(tensor.name)
    return list(files.values())


def file_name(path: str | os.PathLike[str]) -> str:
    """The last component of a path, as JSON can hold it."""
    return _utf8(os.path.basename(path))


def _utf8(name: str) -> str:
    """A name that may be a file's, the same in every locale; bytes that are not UTF-8 are spelled `\\xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _object(
    planned: PlannedTensor | PlannedBytes, main: str, matrices: Mapping[str, ImportanceMatrix]
) -> dict[str, Any]:
    """What an object was made from; the origins of its members in the order of its rows.

    Their sources are told where they are not all the one called `main`.
    """
    if isinstance(planned, PlannedBytes):
        return {**planned.origin, "sha256": DIGEST_PLACEHOLDER}
    members = planned.members
    method, parameters = members[0].method, members[0].piece.parameters
    sources = [member.source for member in members]
    inputs, tensors, stored, selections = [], [], [], []
    for source in sources:
        for origin in source.origins:
            inputs.append(origin.source)
            tensors.append(origin.tensor)
            stored.append(origin.stored)
            selections.append(origin.selection)
    made: dict[str, Any] = {
        "parameters": [member.parameter for member in members],
        "tensors": tensors,
        "stored": stored,
        "method": method.name,
    }
    if isinstance(method, CallableMethod):
        made["code"] = {"name": file_name(method.code.path), "sha256": method.code.sha256, "function": method.function}
    if inputs.count(main) < len(inputs):
        made["sources"] = inputs
    if any(selections):
        made["selections"] = selections
    if parameters:
        made["method_parameters"] = {
            name: _parameter(method, name, value, matrices) for name, value in parameters.items()
        }
    encodings = [encoding for source in sources if (encoding := source.encoding)]
    if encodings:
        made["encodings"] = [f"{source.stored}: {source.encoding.details}" for source in sources if source.encoding]
    if method is IMPORT_ENCODED and parameters.get("round_scales"):
        changes = [encoding.rounded.get(planned.record.format, 0.0) for encoding in encodings]
        made["largest_scale_change"] = f"{max(changes, default=0.0):.6e}"
    if method is IMPORT_ENCODED and (notes := [encoding.note for encoding in encodings if encoding.note]):
        made["notes"] = notes
    made["sha256"] = DIGEST_PLACEHOLDER
    return made


def given_file(method: CallableMethod, value: Any) -> Path | None:
    """The file that a parameter of a callable is: any text that leads to one from where its code stands."""
    path = method.code.path.parent / value if isinstance(value, str) else None
    return path if path is not None and os.path.isfile(path) else None


def _parameter(method: Method, name: str, value: Any, matrices: Mapping[str, ImportanceMatrix]) -> Any:
    """A path is recorded by its file: a matrix's, or one that a callable is given."""
    if isinstance(method, CallableMethod):
        path = given_file(method, value)
        return value if path is None else {"name": file_name(path), "sha256": sha256(path.read_bytes()).hexdigest()}
    return _matrix(matrices[value]) if name == IMATRIX else value
