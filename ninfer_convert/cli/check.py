"""`ninfer-convert check`: is an artifact what an input and a recipe would give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ninfer_convert.cli import render
from ninfer_convert.cli.options import (
    debug_option,
    input_argument,
    jobs_option,
    json_option,
    quiet_option,
    recipe_option,
    shaping_options,
)
from ninfer_convert.cli.progress import progress
from ninfer_convert.errors import SHOWN_AT_MOST, printable

if TYPE_CHECKING:
    from ninfer_convert.cli.output import Output
    from ninfer_convert.pipeline.check import CheckReport
    from ninfer_convert.pipeline.planned import Plan, Shaping


@click.command()
@click.argument("artifact")
@input_argument
@recipe_option
@shaping_options
@click.option("--full", is_flag=True, help="Convert everything again and compare every byte; nothing is written.")
@jobs_option
@quiet_option
@json_option
@debug_option
@click.pass_obj
def command(output: Output, artifact: str, input: str, recipe: str, shaping: Shaping, full: bool, jobs: int) -> int:
    """Say whether ARTIFACT is what converting INPUT by the recipe would give; the exit status is 3 where it is not.

    Compared is what it records of its inputs (digests of the recipe and of the headers of INPUT's files), every name,
    shape, format, size and resource. That a weight was changed under the same header, only --full can tell.

    \b
    ninfer-convert check model.ninfer model.safetensors -r q4
    ninfer-convert check model.ninfer model/ -r mine.toml --full
    """
    from ninfer_convert.pipeline.check import check
    from ninfer_convert.pipeline.plan import make_plan

    plan = make_plan(input, recipe, shaping)
    with progress(output, "comparing") as report:
        found = check(artifact, plan, full=full, jobs=jobs, progress=report)
    if output.json:
        output.document({"path": found.path, **document(found, plan)})
    elif not (found.ok and output.quiet):
        output.text(lines(found, plan))
    return 0 if found.ok else 3


def lines(found: CheckReport, plan: Plan) -> Iterator[str]:
    """The judgement, and the first differences with their number."""
    given = f"what {printable(plan.checkpoint.shown)} gives with {printable(plan.recipe.name)}"
    if found.ok:
        known = "to the byte" if found.full else "as far as its directory tells; --full compares every byte"
        yield f"{printable(found.path)}: {given}, {known}"
        return
    total = len(found.differences)
    yield f"{printable(found.path)}: not {given}: {render.plural(total, 'difference')}"
    yield from (f"  {printable(difference.message)}" for difference in found.differences[:SHOWN_AT_MOST])
    if total > SHOWN_AT_MOST:
        yield f"  ... and {total - SHOWN_AT_MOST:,} more"


def document(found: CheckReport, plan: Plan) -> dict[str, Any]:
    """The judgement with every difference, for programs."""
    return {
        "input": plan.checkpoint.shown,
        "recipe": plan.recipe.name,
        "full": found.full,
        "ok": found.ok,
        "differences": [
            {
                "code": difference.code,
                "message": difference.message,
                "object": difference.object,
                "parameter": difference.parameter,
                "rows": difference.rows,
                "byte": difference.byte,
            }
            for difference in found.differences
        ],
    }
