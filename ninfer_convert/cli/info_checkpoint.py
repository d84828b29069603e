"""What a checkpoint holds: types, tensors with their place in the file, metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

from ninfer_convert.cli import render
from ninfer_convert.errors import Problem, SourceError, printable
from ninfer_convert.pipeline.inspect import Head, classification, declared_scheme, metadata
from ninfer_convert.pipeline.summary import shares

if TYPE_CHECKING:
    from ninfer_convert.cli.output import Output
    from ninfer_convert.pipeline.summary import Share
    from ninfer_convert.sources import Checkpoint
    from ninfer_convert.sources.base import StoredTensor
    from ninfer_convert.sources.encoded import EncodedModule


def show(output: Output, checkpoint: Checkpoint, with_tensors: bool) -> None:
    """Print a checkpoint."""
    output.warn(Problem("source-note", note, path=checkpoint.shown) for note in checkpoint.notes)
    weights = _encoded(output, checkpoint)
    if output.json:
        output.document(_document(checkpoint, weights))
    else:
        output.text(_lines(output, checkpoint, weights, with_tensors))


def show_tensor(output: Output, checkpoint: Checkpoint, name: str) -> None:
    """Print one tensor, or the encoded weight of that name; SourceError where there is neither."""
    tensor = checkpoint.tensors.get(name)
    weights = _encoded(output, checkpoint)
    weight = next((weight for weight in weights if name in (weight.parameter, *weight.tensors)), None)
    if tensor is None and weight is None:
        known = dict.fromkeys([*checkpoint.tensors, *(weight.parameter for weight in weights)])
        message = render.no_such("tensor", name, known)
        raise SourceError(Problem("unknown-tensor", message, path=checkpoint.shown, tensor=name))
    if output.json:
        document = {"tensor": _record(tensor)} if tensor else {}
        output.document(document | ({"encoded": _weight_record(checkpoint, weight)} if weight else {}))
        return
    facts = _tensor_facts(tensor) if tensor else ()
    output.text(
        [
            output.heading(printable(name)),
            *render.facts((*facts, *(_weight_facts(weight) if weight else ()))),
        ]
    )


def _tensor_facts(tensor: StoredTensor) -> Iterator[tuple[str, str]]:
    yield "type", tensor.stored
    yield "shape", render.shape(tensor.shape)
    yield "size", render.exact_size(tensor.nbytes)
    yield "file", tensor.file.shown
    yield "offset", f"{tensor.relative_offset:,} in the data, {tensor.offset:,} in the file"


def _weight_facts(weight: EncodedModule) -> Iterator[tuple[str, str]]:
    yield "encoded", f"{weight.parameter}, {_described(weight)}"
    if weight.shape is not None:
        yield "of shape", render.shape(weight.shape)
    yield "from", ", ".join(weight.tensors)
    yield "becomes", weight.prospect


def _described(weight: EncodedModule) -> str:
    return f"{weight.encoding} ({weight.details})" if weight.details else weight.encoding


def _encoded(output: Output, checkpoint: Checkpoint) -> Sequence[EncodedModule]:
    """Its encoded weights; none where its config cannot be read, which is a warning here."""
    try:
        found = classification(checkpoint)
    except SourceError as error:
        output.warn(error.problems)
        return ()
    output.warn(Problem("source-note", note, path=checkpoint.shown) for note in found.notes)
    return found.modules


def _weight_bytes(checkpoint: Checkpoint, weight: EncodedModule) -> int:
    return sum(checkpoint.tensors[name].nbytes for name in weight.tensors)


def _weight_table(output: Output, checkpoint: Checkpoint, weights: Sequence[EncodedModule]) -> Iterator[str]:
    """A line for all weights that are alike, the largest group first."""
    alike: dict[tuple[str, str], list[EncodedModule]] = {}
    for weight in weights:
        alike.setdefault((_described(weight), weight.prospect), []).append(weight)
    sized = [
        (sum(_weight_bytes(checkpoint, weight) for weight in group), *kind, group) for kind, group in alike.items()
    ]
    rows = [
        (
            described,
            f"{len(group):,}",
            f"{sum(prod(weight.shape or (0,)) for weight in group):,}",
            f"{size:,}",
            prospect,
        )
        for size, described, prospect, group in sorted(sized, key=lambda row: -row[0])
    ]
    header = ("encoding", "weights", "elements", "bytes", "becomes")
    return render.table(header, rows, right=header[1:4], heading=output.heading)


def _lines(
    output: Output, checkpoint: Checkpoint, weights: Sequence[EncodedModule], with_tensors: bool
) -> Iterator[str]:
    tensors = checkpoint.tensors.values()
    yield output.heading(printable(checkpoint.shown))
    total = sum(file.size for file in checkpoint.files)
    declared = declared_scheme(checkpoint)
    yield from render.facts(
        (
            ("kind", checkpoint.kind),
            *((("declared", f"mostly {declared}, by its metadata"),) if declared else ()),
            ("size", f"{render.exact_size(total)} in {render.plural(len(checkpoint.files), 'file')}"),
            ("tensors", f"{len(tensors):,}, of {sum(prod(tensor.shape) for tensor in tensors):,} elements"),
        )
    )
    yield ""
    yield from render.shares_table(_types(tensors), ("type", "tensors", "elements"), output.heading)
    if weights:
        yield ""
        yield from _weight_table(output, checkpoint, weights)
    if checkpoint.metadata:
        yield ""
        yield output.heading("metadata")
        yield from render.facts((key, _short(value)) for key, value in metadata(checkpoint).items())
    if with_tensors:
        yield ""
        yield from _tensor_table(output, tensors, several_files=len(checkpoint.files) > 1)
    if with_tensors and weights:
        yield ""
        rows = [
            (weight.parameter, _described(weight), render.shape(weight.shape) if weight.shape else "?", weight.prospect)
            for weight in weights
        ]
        yield from render.table(("encoded weight", "encoding", "shape", "becomes"), rows, heading=output.heading)


def _tensor_table(output: Output, tensors: Iterable[StoredTensor], several_files: bool) -> Iterator[str]:
    header = ["tensor", "type", "shape", "bytes", "offset", "file offset"]
    rows = [
        [
            tensor.name,
            tensor.stored,
            render.shape(tensor.shape),
            f"{tensor.nbytes:,}",
            f"{tensor.relative_offset:,}",
            f"{tensor.offset:,}",
        ]
        + ([tensor.file.path.name] if several_files else [])
        for tensor in tensors
    ]
    columns = [*header, "file"] if several_files else header
    return render.table(columns, rows, right=header[3:], heading=output.heading)


def _types(tensors: Iterable[StoredTensor]) -> tuple[Share, ...]:
    return shares((tensor.stored, prod(tensor.shape), tensor.nbytes) for tensor in tensors)


def _document(checkpoint: Checkpoint, weights: Sequence[EncodedModule]) -> dict[str, Any]:
    tensors = checkpoint.tensors.values()
    return {
        "kind": checkpoint.kind,
        "path": checkpoint.shown,
        "declared": declared_scheme(checkpoint),
        "files": [
            {"path": file.shown, "bytes": file.size, "data_offset": file.payload, "header_sha256": file.header_sha256}
            for file in checkpoint.files
        ],
        "types": render.shares_json(_types(tensors), "tensors"),
        "tensors": [_record(tensor) for tensor in tensors],
        "encoded": [_weight_record(checkpoint, weight) for weight in weights],
        "metadata": {key: _json(value) for key, value in metadata(checkpoint).items()},
    }


def _record(tensor: StoredTensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "type": tensor.stored,
        "shape": tensor.shape,
        "elements": prod(tensor.shape),
        "bytes": tensor.nbytes,
        "file": tensor.file.shown,
        "relative_offset": tensor.relative_offset,
        "offset": tensor.offset,
    }


def _weight_record(checkpoint: Checkpoint, weight: EncodedModule) -> dict[str, Any]:
    return {
        "name": weight.parameter,
        "encoding": weight.encoding,
        "details": weight.details,
        "shape": weight.shape,
        "bytes": _weight_bytes(checkpoint, weight),
        "tensors": weight.tensors,
        "becomes": weight.prospect,
        "fault": weight.fault,
    }


def _json(value: Any) -> Any:
    """A metadata value as JSON has it: an array by its length and first elements, NaN and infinities as texts."""
    if isinstance(value, Head):
        return {"type": value.type, "length": value.length, "first": [_json(element) for element in value.first]}
    return value if not isinstance(value, float) or isfinite(value) else str(value)


def _short(value: Any) -> str:
    """A metadata value on one line."""
    if isinstance(value, Head):
        first = ", ".join(map(_short, value.first))
        more = ", ..." if value.length > len(value.first) else ""
        return f"[{first}{more}] ({render.plural(value.length, 'element')})"
    return render.shortened(str(value))
