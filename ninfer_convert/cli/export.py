"""`ninfer-convert export`: an artifact written back as safetensors or GGUF."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ninfer_convert.cli import render
from ninfer_convert.cli.options import debug_option, jobs_option, json_option, path, quiet_option, size
from ninfer_convert.cli.progress import progress
from ninfer_convert.errors import printable

if TYPE_CHECKING:
    from ninfer_convert.cli.output import Output
    from ninfer_convert.pipeline.export import Exported


@click.command()
@click.argument("artifact")
@click.option(
    "-o",
    "--output",
    "out",
    type=path,
    metavar="OUT",
    required=True,
    help="A name that ends in .gguf or .safetensors, or a folder.",
)
@click.option(
    "--dtype",
    type=click.Choice(("fp32", "bf16")),
    help="What values are decoded to for safetensors; bf16 rounds them.  [default: fp32]",
)
@click.option(
    "--max-shard-bytes", type=size, help="In a folder, cut weights above this size into shards.  [default: 5GB]"
)
@click.option(
    "--like",
    type=path,
    metavar="CHECKPOINT",
    help="Write the tensors of CHECKPOINT, named and arranged as there, out of the parameters that are parts of them.",
)
@click.option("--force", is_flag=True, help="Replace what stands at OUT.")
@jobs_option
@quiet_option
@json_option
@debug_option
@click.pass_obj
def command(
    output: Output,
    artifact: str,
    out: str,
    dtype: str | None,
    max_shard_bytes: int | None,
    like: str | None,
    force: bool,
    jobs: int,
) -> None:
    """Write ARTIFACT back: as a folder of safetensors, config.json and resources; to a name that ends in .safetensors,
    as this one file; to one that ends in .gguf, as GGUF, where all its words are ggml's blocks or direct.

    Parameters of direct formats keep their words. In safetensors the others become what their codes and scales mean.

    \b
    ninfer-convert export model.ninfer -o model/
    ninfer-convert export model.ninfer -o model.safetensors --dtype bf16
    ninfer-convert export model.ninfer -o model.gguf
    """
    from ninfer_convert.pipeline.export import export

    with progress(output, "exporting") as report:
        done = export(
            artifact,
            out,
            dtype=dtype,
            max_shard_bytes=max_shard_bytes,
            like=like,
            force=force,
            jobs=jobs,
            progress=report,
        )
    output.warn(done.warnings)
    if output.json:
        output.document(
            {
                "files": [{"path": name, "bytes": bytes} for name, bytes in done.files],
                "parameters": done.parameters,
                "decoded": done.decoded,
                "left_out": done.left_out,
                "seconds": done.seconds,
            }
        )
    elif not output.quiet:
        output.text(_lines(output, done))


def _lines(output: Output, done: Exported) -> Iterator[str]:
    for name, _ in done.files:
        yield output.heading(printable(name))
    total = sum(bytes for _, bytes in done.files)
    facts = [
        ("size", render.size(total)),
        (
            "parameters",
            f"{done.parameters:,}: {done.decoded:,} decoded, {done.parameters - done.decoded:,} word for word",
        ),
        ("time", f"{render.duration(done.seconds)}, {render.size(total / max(done.seconds, 1e-9))}/s"),
    ]
    if done.left_out:
        facts.insert(2, ("left out", ", ".join(done.left_out)))
    yield from render.facts(facts)
