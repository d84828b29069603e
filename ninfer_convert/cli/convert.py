"""`ninfer-convert convert`, the main job; the word may be left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ninfer_convert.cli import render
from ninfer_convert.cli.options import (
    debug_option,
    destination,
    json_option,
    planning_options,
    quiet_option,
    refuse_lost,
)
from ninfer_convert.cli.plan import named_files, show
from ninfer_convert.cli.progress import progress
from ninfer_convert.errors import printable

if TYPE_CHECKING:
    from ninfer_convert.cli.output import Output
    from ninfer_convert.pipeline.planned import Shaping
    from ninfer_convert.pipeline.run import Result, Running
    from ninfer_convert.pipeline.summary import Summary


@click.command()
@planning_options
@click.option("--force", is_flag=True, help="Replace what stands under the artifact's name.")
@click.option("--profile", is_flag=True, help="Show the seconds that each stage took, summed over the threads.")
@click.option("--dry-run", is_flag=True, help="Write nothing; show the plan, as the command of that name.")
@quiet_option
@json_option
@debug_option
@click.pass_obj
def command(
    output: Output,
    input: str,
    recipe: str,
    shaping: Shaping,
    out: str | None,
    running: Running,
    force: bool,
    profile: bool,
    dry_run: bool,
) -> None:
    """Convert INPUT into a .ninfer artifact.

    INPUT is a .safetensors file, a folder as Hugging Face lays it out, a .safetensors.index.json, or a GGUF file.

    \b
    ninfer-convert convert model.safetensors --recipe q4
    ninfer-convert model/ -r mine.toml -o artifacts/ --max-file-bytes 32GB
    """
    from ninfer_convert.pipeline.plan import make_plan
    from ninfer_convert.pipeline.run import run
    from ninfer_convert.pipeline.summary import summarise

    refuse_lost(out)
    plan = make_plan(input, recipe, shaping)
    path = destination(out, plan.checkpoint.default_name)
    if dry_run:
        show(output, plan, path, running)
        return
    output.warn(plan.warnings)
    with progress(output, "converting") as report:
        result = run(plan, path, replace(running, force=force, profile=profile), report)
    output.warn(result.warnings)
    summary = summarise(plan, result.files.file_bytes)
    if output.json:
        output.document(_document(result, plan.source_bytes, summary))
    elif not output.quiet:
        output.text(_lines(output, result, plan.source_bytes, summary))


def _lines(output: Output, result: Result, source_bytes: int, summary: Summary) -> Iterator[str]:
    for path, _ in named_files(result.path, result.files):
        yield output.heading(printable(path))
    share = render.percent(summary.artifact_bytes, source_bytes)
    before, after = render.size(source_bytes), render.size(summary.artifact_bytes)
    rate = render.size(source_bytes / max(result.seconds, 1e-9))
    yield from render.facts(
        (
            ("size", f"{before} -> {after} ({share})"),
            ("bits per weight", f"{summary.stored_bits:.3f}"),
            ("time", f"{render.duration(result.seconds)}, {rate}/s"),
            ("id", result.artifact_id),
            *((stage, f"{seconds:.2f} s") for stage, seconds in result.stages.items()),
        )
    )


def _document(result: Result, source_bytes: int, summary: Summary) -> dict[str, Any]:
    return {
        "path": str(result.path),
        "artifact_id": result.artifact_id,
        "files": [{"path": path, "bytes": size} for path, size in named_files(result.path, result.files)],
        "source_bytes": source_bytes,
        "artifact_bytes": summary.artifact_bytes,
        "elements": summary.elements,
        "bits_per_weight": {"stored": summary.stored_bits, "nominal": summary.nominal_bits},
        "seconds": result.seconds,
        **({"stages": dict(result.stages)} if result.stages else {}),
    }
