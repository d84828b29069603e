"""`ninfer-convert verify`: every byte of an artifact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ninfer_convert.cli import render
from ninfer_convert.cli.options import debug_option, jobs_option, json_option, quiet_option
from ninfer_convert.cli.progress import progress
from ninfer_convert.errors import SHOWN_AT_MOST, printable

if TYPE_CHECKING:
    from ninfer_convert.cli.output import Output
    from ninfer_convert.pipeline.verify import VerifyReport


@click.command()
@click.argument("artifact")
@jobs_option
@quiet_option
@json_option
@debug_option
@click.pass_obj
def command(output: Output, artifact: str, jobs: int) -> int:
    """Check all of ARTIFACT: framing, directory, padding, every code and scale word, the digests.

    The exit status is 3 where there are faults.

    \b
    ninfer-convert verify model.ninfer
    """
    from ninfer_convert.pipeline.verify import verify

    with progress(output, "verifying") as report:
        found = verify(artifact, jobs=jobs, progress=report)
    output.warn(found.warnings)
    if output.json:
        output.document(_document(found))
    elif not (found.ok and output.quiet):
        output.text(_lines(found))
    return 0 if found.ok else 3


def _lines(found: VerifyReport) -> Iterator[str]:
    if found.ok:
        yield f"{printable(found.path)}: no faults, id {found.artifact_id}"
        return
    yield f"{printable(found.path)}: {render.plural(found.total, 'fault')}"
    listed = found.faults[:SHOWN_AT_MOST]
    yield from (f"  {printable(fault.message)}" for fault in listed)
    if len(listed) < found.total:
        yield f"  ... and {found.total - len(listed):,} more"


def _document(found: VerifyReport) -> dict[str, Any]:
    return {
        "path": found.path,
        "artifact_id": found.artifact_id,
        "ok": found.ok,
        "total": found.total,
        "totals": dict(found.totals),
        "faults": [
            {
                "code": fault.code,
                "message": fault.message,
                "object": fault.object,
                "row": fault.row,
                "column": fault.column,
            }
            for fault in found.faults
        ],
    }
