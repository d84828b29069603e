"""`ninfer-convert info`: what an artifact or a checkpoint holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ninfer_convert.cli.options import debug_option, json_option, text
from ninfer_convert.strict_json import collector_paused

if TYPE_CHECKING:
    from ninfer_convert.cli.output import Output


@click.command()
@click.argument("path")
@click.option("--tensors", is_flag=True, help="List every tensor too.")
@click.option("--parameter", type=text, metavar="NAME", help="Show one parameter (of a checkpoint: one tensor) alone.")
@click.option("--uses", is_flag=True, help="List the artifact's uses too: parameter, input, activation policy.")
@json_option
@debug_option
@click.pass_obj
@collector_paused()
def command(output: Output, path: str, tensors: bool, parameter: str | None, uses: bool) -> None:
    """Show what PATH holds, from its headers: an artifact, or anything that convert takes.

    With --json every tensor and use is told, asked for or not.

    \b
    ninfer-convert info model.ninfer
    ninfer-convert info model.ninfer --parameter model.embed_tokens.weight
    ninfer-convert info model.safetensors --tensors
    """
    from ninfer_convert.container import Artifact
    from ninfer_convert.pipeline.inspect import inspect

    opened = inspect(path)
    if isinstance(opened, Artifact):
        from ninfer_convert.cli import info_artifact

        with opened as artifact:
            if parameter is not None:
                info_artifact.show_parameter(output, artifact, parameter)
            else:
                info_artifact.show(output, artifact, tensors, uses)
        return
    from ninfer_convert.cli import info_checkpoint

    if uses:
        raise click.UsageError("--uses is for artifacts; a checkpoint knows none")
    if parameter is not None:
        info_checkpoint.show_tensor(output, opened, parameter)
    else:
        info_checkpoint.show(output, opened, tensors)
