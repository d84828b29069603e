"""What an artifact records of where it came from (recipes.md, Provenance).

No absolute path, user, host or time: the same inputs give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from ninfer_convert.methods.imported import IMPORT_ENCODED
from ninfer_convert.pipeline.planned import PlannedResource

if TYPE_CHECKING:
    from ninfer_convert.architectures import Model
    from ninfer_convert.container import Binding
    from ninfer_convert.pipeline.objects import Objects
    from ninfer_convert.pipeline.planned import PlannedTensor, Shaping
    from ninfer_convert.recipe import Recipe, Resolution
    from ninfer_convert.sources.base import Checkpoint
    from ninfer_convert.sources.encoded import Classification

ENCODING = 1
"""Changes only when the bytes for the same inputs change."""


def record(
    checkpoint: Checkpoint,
    classification: Classification,
    recipe: Recipe,
    shaping: Shaping,
    resolution: Resolution,
    objects: Objects,
    model: Model,
    bindings: Mapping[str, Binding],
) -> dict[str, Any]:
    """The directory's `provenance`, but for the digests, which are taken once the payload is written."""
    tensors = {parameter.name: [origin.tensor for origin in parameter.source.origins] for parameter in model.parameters}
    shapes = {parameter.name: parameter.source.shape for parameter in model.parameters}
    return {
        "tool": {"name": "ninfer-convert", "encoding": ENCODING},
        "recipe": {
            "name": _utf8(recipe.name),
            "files": [{"name": _utf8(file.path.name), "sha256": file.sha256} for file in recipe.files],
        },
        "overrides": {"set": list(recipe.overrides), "requantize": shaping.requantize, "name": shaping.name},
        "sources": {checkpoint.source: {"files": _files(checkpoint)}},
        "objects": {planned.record.id: _object(planned) for planned in objects},
        "parameters": {
            name: {"shape": list(shapes[name])} for name, binding in bindings.items() if binding.object is None
        },
        "skipped": [
            *({"name": skip.name, "tensors": tensors[skip.name], "reason": skip.reason} for skip in resolution.skipped),
            *(
                {"name": name, "tensors": [name], "reason": reason}
                for reason, names in classification.skipped.items()
                for name in names
            ),
        ],
        "activation_scales": activation_scales(model, resolution),
    }


def activation_scales(model: Model, resolution: Resolution) -> dict[str, dict[str, Any]]:
    """Scales of the inputs and outputs of encoded weights that are stored: parameter -> tensor -> number, or numbers.

    JSON has no word for NaN and infinities: they are spelled out.
    """

    def spelled(scales: tuple[float, ...]) -> Any:
        numbers = [scale if isfinite(scale) else str(scale) for scale in scales]
        return numbers[0] if len(numbers) == 1 else numbers

    encodings = {p.name: p.source.encoding for p in model.parameters if p.name in resolution.decisions}
    return {
        name: {tensor: spelled(scales) for tensor, scales in encoding.activations.items()}
        for name, encoding in encodings.items()
        if encoding and encoding.activations
    }


def _files(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    return [
        {"name": _utf8(file.path.name), "size": file.size, "header_sha256": file.header_sha256}
        for file in checkpoint.files
    ]


def _utf8(name: str) -> str:
    """A file's name as JSON can hold it, the same in every locale; bytes that are not UTF-8 are spelled `\\xNN`."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _object(planned: PlannedTensor | PlannedResource) -> dict[str, Any]:
    """What an object was made from; the origins of its members in the order of its rows."""
    if isinstance(planned, PlannedResource):
        return {"file": planned.origin}
    members = planned.members
    origins = [origin for member in members for origin in member.job.source.origins]
    made: dict[str, Any] = {
        "parameters": [member.parameter for member in members],
        "tensors": [origin.tensor for origin in origins],
        "stored": [origin.stored for origin in origins],
        "method": members[0].method.name,
    }
    if any(origin.selection for origin in origins):
        made["selections"] = [origin.selection for origin in origins]
    if members[0].job.parameters:
        made["method_parameters"] = dict(members[0].job.parameters)
    sources = [member.job.source for member in members]
    encodings = [encoding for source in sources if (encoding := source.encoding)]
    if encodings:
        made["encodings"] = [f"{source.stored}: {source.encoding.details}" for source in sources if source.encoding]
    if members[0].job.parameters.get("round_scales"):
        changes = [encoding.rounded.get(planned.record.format, 0.0) for encoding in encodings]
        made["largest_scale_change"] = f"{max(changes, default=0.0):.6e}"
    if members[0].method is IMPORT_ENCODED and (notes := [encoding.note for encoding in encodings if encoding.note]):
        made["notes"] = notes
    return made
