"""Conversions for programs: what the command line's `plan` and `convert` do, as two functions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.planned import Shaping
from ninfer_convert.pipeline.run import Running, run

if TYPE_CHECKING:
    from ninfer_convert.pipeline.planned import Plan
    from ninfer_convert.pipeline.progress import Report
    from ninfer_convert.pipeline.run import Result

_AS_IT_IS = Shaping()
_USUAL = Running()


def plan(input: str | os.PathLike[str], recipe: str | os.PathLike[str], shaping: Shaping = _AS_IT_IS) -> Plan:
    """What converting `input` by `recipe`, a file or a built-in's name, would write; no weight is read.

    Raises SourceError for the checkpoint, RecipeError for the recipe and for whatever of the two does not fit.
    """
    return make_plan(os.fspath(input), os.fspath(recipe), shaping)


def convert(
    input: str | os.PathLike[str],
    recipe: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    shaping: Shaping = _AS_IT_IS,
    running: Running = _USUAL,
    progress: Report | None = None,
) -> Result:
    """Convert `input` by `recipe` into the artifact `output`: complete, or not there at all.

    `progress` is called after every piece, from any thread, one call at a time. Raises what `plan` raises, NumericError
    for values that cannot be kept as the recipe asks, OutputError for the destination, UsageError for caps in `running`
    that are too low, SourceError for an input that is written to meanwhile.
    """
    return run(plan(input, recipe, shaping), Path(output), running, progress)
