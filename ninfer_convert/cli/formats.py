"""`ninfer-convert formats`: the registry, as it stands in the code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ninfer_convert.cli import render
from ninfer_convert.cli.options import debug_option, json_option

if TYPE_CHECKING:
    from ninfer_convert.cli.output import Output


@click.command()
@json_option
@debug_option
@click.pass_obj
def command(output: Output) -> None:
    """List the numeric formats: bits per weight, the layouts that store them, the methods that make them.

    \b
    ninfer-convert formats
    ninfer-convert formats --json
    """
    records = [_record(name) for name in _names()]
    if output.json:
        output.document({"formats": records})
    else:
        output.text(_lines(records, output))


def _names() -> list[str]:
    from ninfer_convert.formats import FORMATS

    return list(FORMATS)


def _record(name: str) -> dict[str, Any]:
    from ninfer_convert.formats import FORMATS
    from ninfer_convert.layouts import LAYOUTS
    from ninfer_convert.methods import METHODS

    format = FORMATS[name]
    return {
        "name": format.name,
        "category": format.category,
        "bits_per_weight": format.bits_per_weight,
        "summary": format.summary,
        "layouts": [layout.name for layout in LAYOUTS.values() if name in layout.formats],
        "methods": [method.name for method in METHODS.values() if name in method.formats],
    }


def _lines(records: list[dict[str, Any]], output: Output) -> Iterator[str]:
    header = ("format", "bits", "layouts", "methods", "what it is")
    rows = [
        (
            record["name"],
            f"{record['bits_per_weight']:.4g}",
            ", ".join(record["layouts"]),
            ", ".join(record["methods"]) or "-",
            record["summary"],
        )
        for record in records
    ]
    return render.table(header, rows, right=["bits"], heading=output.heading)
