"""Checkpoints, opened by their headers and read lazily: safetensors in every arrangement, GGUF."""

from __future__ import annotations

import os
from pathlib import Path

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.sources import sniff
from ninfer_convert.sources.base import Checkpoint
from ninfer_convert.sources.folder import open_folder
from ninfer_convert.sources.index import open_index
from ninfer_convert.sources.shards import open_file


def open_checkpoint(path: str | os.PathLike[str], source: str = "model") -> Checkpoint:
    """Open a `.safetensors` file, a folder, an index or a GGUF file; what it is decides its content, not its name.

    `source` is the input's name in origins and provenance. Reads headers only. Raises SourceError with every problem,
    and for anything else that may stand there a sentence that says what it is and what to do.
    """
    shown = os.fspath(path)
    place = Path(shown)
    if not shown:
        raise SourceError(Problem("no-such-file", "the path of the checkpoint is empty"))
    if place.is_dir():
        return open_folder(place, shown, source)
    kind = sniff.identify(place, shown)
    if kind == "gguf":
        from ninfer_convert.sources.gguf import open_gguf

        return open_gguf(place, shown, source)
    if kind == "json":
        return open_index(place, shown, source)
    return open_file(place, shown, source)


__all__ = ["Checkpoint", "open_checkpoint"]
