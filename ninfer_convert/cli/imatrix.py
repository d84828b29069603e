"""`ninfer-convert imatrix`: what an importance matrix holds, and what of a checkpoint it covers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ninfer_convert.cli import render
from ninfer_convert.cli.options import debug_option, json_option
from ninfer_convert.errors import printable

if TYPE_CHECKING:
    from ninfer_convert.cli.output import Output
    from ninfer_convert.pipeline.coverage import Coverage
    from ninfer_convert.sources.imatrix import Entry, ImportanceMatrix


@click.command()
@click.argument("file")
@click.argument("input", required=False)
@json_option
@debug_option
@click.pass_obj
def command(output: Output, file: str, input: str | None) -> None:
    """Show what FILE, an importance matrix of llama-imatrix, holds: its entries, what they were measured on.

    With INPUT, a checkpoint, also what it covers, both ways: parameters without a vector, and how much of the weights
    they are; entries that no parameter uses.

    \b
    ninfer-convert imatrix imatrix.gguf
    ninfer-convert imatrix imatrix.gguf model.safetensors
    """
    from ninfer_convert.pipeline.coverage import cover
    from ninfer_convert.sources.imatrix import open_imatrix

    matrix = open_imatrix(file)
    coverage = None if input is None else cover(matrix, input)
    output.warn(coverage.warnings if coverage else ())
    if output.json:
        output.document(_document(matrix, coverage))
    else:
        output.text(_lines(output, matrix, coverage))


def _lines(output: Output, matrix: ImportanceMatrix, coverage: Coverage | None) -> Iterator[str]:
    yield output.heading(printable(matrix.shown))
    yield from render.facts(_facts(matrix))
    yield ""
    yield from _entries(output, matrix, coverage)
    if coverage is None:
        return
    yield ""
    yield output.heading(printable(coverage.input))
    yield from render.facts(_coverage_facts(matrix, coverage))
    if coverage.missing:
        yield ""
        yield from _missing(output, coverage)


def _facts(matrix: ImportanceMatrix) -> Iterator[tuple[str, str]]:
    yield "kind", {"gguf": "GGUF", "legacy": "the older binary format"}[matrix.kind]
    yield "size", render.exact_size(matrix.size)
    vectors = sum(len(entry.sums) for entry in matrix.entries.values())
    yield "entries", f"{len(matrix.entries):,}, of {render.plural(vectors, 'vector')}"
    for dataset in matrix.datasets:
        yield "measured on", dataset
    if matrix.chunks is not None:
        yield "chunks", f"{matrix.chunks:,}"


def _entries(output: Output, matrix: ImportanceMatrix, coverage: Coverage | None) -> Iterator[str]:
    header = ["entry", "vectors", "length", "counted"]
    rows = [
        [entry.name, f"{len(entry.sums):,}", f"{entry.sums.shape[1]:,}", _counted(entry)]
        for entry in matrix.entries.values()
    ]
    if coverage is not None:
        header.append("used by")
        users = coverage.users
        for row in rows:
            row.append(_some(users.get(row[0], [])))
    return render.table(header, rows, right=header[1:4], heading=output.heading)


def _counted(entry: Entry) -> str:
    """How often an entry's vectors were added to: once for all, or from the fewest to the most."""
    least, most = (f"{int(number):,}" for number in (entry.counts.min(), entry.counts.max()))
    return least if least == most else f"{least} to {most}"


def _some(names: list[str]) -> str:
    if not names:
        return "-"
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"


def _coverage_facts(matrix: ImportanceMatrix, coverage: Coverage) -> Iterator[tuple[str, str]]:
    total = sum(parameter.elements for parameter in coverage.parameters)
    missing = sum(parameter.elements for parameter in coverage.missing)
    count, of = len(coverage.parameters) - len(coverage.missing), len(coverage.parameters)
    yield "architecture", coverage.architecture
    yield (
        "covered",
        f"{count:,} of {of:,} matrices and banks, {render.percent(total - missing, total)} of their weights",
    )
    yield "unused", f"{len(coverage.unused):,} of {len(matrix.entries):,} entries"


def _missing(output: Output, coverage: Coverage) -> Iterator[str]:
    total = sum(parameter.elements for parameter in coverage.parameters)
    rows = [
        (
            parameter.name,
            render.shape(parameter.shape),
            f"{parameter.elements:,}",
            render.percent(parameter.elements, total),
        )
        for parameter in coverage.missing
    ]
    header = ("without a vector", "shape", "weights", "share")
    return render.table(header, rows, right=header[2:], heading=output.heading)


def _document(matrix: ImportanceMatrix, coverage: Coverage | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "path": matrix.shown,
        "kind": matrix.kind,
        "bytes": matrix.size,
        "sha256": matrix.sha256,
        "datasets": matrix.datasets,
        "chunks": matrix.chunks,
        "entries": [
            {
                "name": entry.name,
                "vectors": len(entry.sums),
                "length": entry.sums.shape[1],
                "counts": entry.counts.tolist(),
            }
            for entry in matrix.entries.values()
        ],
    }
    if coverage is not None:
        document["coverage"] = {
            "input": coverage.input,
            "architecture": coverage.architecture,
            "elements": sum(parameter.elements for parameter in coverage.parameters),
            "missing_elements": sum(parameter.elements for parameter in coverage.missing),
            "parameters": [
                {"name": parameter.name, "shape": parameter.shape, "entry": parameter.entry}
                for parameter in coverage.parameters
            ],
            "unused": coverage.unused,
        }
    return document
