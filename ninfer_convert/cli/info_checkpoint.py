"""What a checkpoint holds: types, tensors with their place in the file, metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

from ninfer_convert.cli import render
from ninfer_convert.errors import Problem, SourceError, printable
from ninfer_convert.pipeline.inspect import Head, metadata
from ninfer_convert.pipeline.summary import shares

if TYPE_CHECKING:
    from ninfer_convert.cli.output import Output
    from ninfer_convert.pipeline.summary import Share
    from ninfer_convert.sources import Checkpoint
    from ninfer_convert.sources.base import StoredTensor


def show(output: Output, checkpoint: Checkpoint, with_tensors: bool) -> None:
    """Print a checkpoint."""
    output.warn(Problem("source-note", note, path=checkpoint.shown) for note in checkpoint.notes)
    if output.json:
        output.document(_document(checkpoint))
    else:
        output.text(_lines(output, checkpoint, with_tensors))


def show_tensor(output: Output, checkpoint: Checkpoint, name: str) -> None:
    """Print one tensor; SourceError where there is none of that name."""
    tensor = checkpoint.tensors.get(name)
    if tensor is None:
        message = render.no_such("tensor", name, checkpoint.tensors)
        raise SourceError(Problem("unknown-tensor", message, path=checkpoint.shown, tensor=name))
    if output.json:
        output.document({"tensor": _record(tensor)})
        return
    output.text(
        [
            output.heading(printable(name)),
            *render.facts(
                (
                    ("type", tensor.stored),
                    ("shape", render.shape(tensor.shape)),
                    ("size", render.exact_size(tensor.nbytes)),
                    ("file", tensor.file.shown),
                    ("offset", f"{tensor.relative_offset:,} in the data, {tensor.offset:,} in the file"),
                )
            ),
        ]
    )


def _lines(output: Output, checkpoint: Checkpoint, with_tensors: bool) -> Iterator[str]:
    tensors = checkpoint.tensors.values()
    yield output.heading(printable(checkpoint.shown))
    total = sum(file.size for file in checkpoint.files)
    yield from render.facts(
        (
            ("kind", checkpoint.kind),
            ("size", f"{render.exact_size(total)} in {render.plural(len(checkpoint.files), 'file')}"),
            ("tensors", f"{len(tensors):,}, of {sum(prod(tensor.shape) for tensor in tensors):,} elements"),
        )
    )
    yield ""
    yield from render.shares_table(_types(tensors), ("type", "tensors", "elements"), output.heading)
    if checkpoint.metadata:
        yield ""
        yield output.heading("metadata")
        yield from render.facts((key, _short(value)) for key, value in metadata(checkpoint).items())
    if with_tensors:
        yield ""
        yield from _tensor_table(output, tensors, several_files=len(checkpoint.files) > 1)


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


def _document(checkpoint: Checkpoint) -> dict[str, Any]:
    tensors = checkpoint.tensors.values()
    return {
        "kind": checkpoint.kind,
        "path": checkpoint.shown,
        "files": [
            {"path": file.shown, "bytes": file.size, "data_offset": file.payload, "header_sha256": file.header_sha256}
            for file in checkpoint.files
        ],
        "types": render.shares_json(_types(tensors), "tensors"),
        "tensors": [_record(tensor) for tensor in tensors],
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
