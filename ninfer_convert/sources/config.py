"""JSON files beside a checkpoint: config.json and what quantizers leave there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ninfer_convert import strict_json
from ninfer_convert.errors import Problem, SourceError

if TYPE_CHECKING:
    from ninfer_convert.sources.base import Checkpoint


def read_config(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """config.json's object, None where there is none (recipes.md, The generic architecture)."""
    return read_object(checkpoint, "config.json")


def read_object(checkpoint: Checkpoint, name: str) -> dict[str, Any] | None:
    """The JSON object in the file `name` beside the checkpoint, None where there is no such file.

    Raises SourceError naming the file, and the member where one is repeated, NaN or infinite.
    """
    content = checkpoint.beside(name)
    if content is None:
        return None
    try:
        value = strict_json.parse(content)
    except strict_json.JsonFault as error:
        raise SourceError(Problem("bad-json", str(error), path=checkpoint.shown_beside(name))) from None
    if not isinstance(value, dict):
        raise SourceError(Problem("bad-json", "is no JSON object", path=checkpoint.shown_beside(name)))
    return value
