"""`ninfer-convert verify`: every byte of an artifact, and whether it is what an input gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ninfer_convert.cli import render
from ninfer_convert.cli.check import document as check_document
from ninfer_convert.cli.check import lines as check_lines
from ninfer_convert.cli.options import debug_option, jobs_option, json_option, quiet_option, shaping_options
from ninfer_convert.cli.progress import progress
from ninfer_convert.errors import SHOWN_AT_MOST, printable

if TYPE_CHECKING:
    from ninfer_convert.cli.output import Output
    from ninfer_convert.pipeline.planned import Plan, Shaping
    from ninfer_convert.pipeline.verify import VerifyReport


@click.command()
@click.argument("artifact")
@click.option("--against", "input", metavar="INPUT", help="Compare every byte with what converting INPUT would give.")
@click.option("-r", "--recipe", metavar="RECIPE", help="The recipe to convert INPUT by; needed with --against.")
@shaping_options
@jobs_option
@quiet_option
@json_option
@debug_option
@click.pass_obj
def command(output: Output, artifact: str, input: str | None, recipe: str | None, shaping: Shaping, jobs: int) -> int:
    """Check all of ARTIFACT: framing, directory, padding, every code and scale word, the digests.

    With --against INPUT everything is converted again, without writing, and compared as well: the directory and every
    byte of the payload. The exit status is 3 where there are faults or differences.

    \b
    ninfer-convert verify model.ninfer
    ninfer-convert verify model.ninfer --against model.safetensors -r q4
    """
    from ninfer_convert.pipeline.check import check
    from ninfer_convert.pipeline.verify import verify

    plan = _plan(input, recipe, shaping)
    with progress(output, "verifying") as report:
        found = verify(artifact, jobs=jobs, progress=report)
    output.warn(found.warnings)
    members = _document(found)
    lines = [] if found.ok and output.quiet else list(_lines(found))
    ok = found.ok
    if plan is not None:
        with progress(output, "comparing") as report:
            against = check(artifact, plan, full=True, jobs=jobs, progress=report)
        ok = found.ok and against.ok
        members |= {"ok": ok, "against": check_document(against, plan)}
        lines += [] if against.ok and output.quiet else check_lines(against, plan)
    if output.json:
        output.document(members)
    else:
        output.text(lines)
    return 0 if ok else 3


def _plan(input: str | None, recipe: str | None, shaping: Shaping) -> Plan | None:
    """The plan to compare with; None where nothing is said of one."""
    from ninfer_convert.pipeline.planned import Shaping

    if input is not None and recipe is not None:
        from ninfer_convert.pipeline.plan import make_plan

        return make_plan(input, recipe, shaping)
    if input is not None:
        raise click.UsageError("--against needs the recipe to convert by: -r RECIPE")
    if recipe is not None or shaping != Shaping():
        raise click.UsageError("a recipe, and what shapes a conversion, belong to --against INPUT")
    return None


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
