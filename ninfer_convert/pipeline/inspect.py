"""What stands at a path: an artifact or a checkpoint, told apart by content, opened by its headers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ninfer_convert.container import Artifact, open_artifact
from ninfer_convert.container.framing import ENTRY_MAGIC, PART_MAGIC

if TYPE_CHECKING:
    from ninfer_convert.sources import Checkpoint
    from ninfer_convert.sources.encoded import Classification

_FAMILIES = (ENTRY_MAGIC[:6], PART_MAGIC[:6])
"""How entries and parts of any version begin."""


HEAD_ELEMENTS = 8


@dataclass(frozen=True)
class Head:
    """An array among a checkpoint's metadata: its length and its first elements, at most HEAD_ELEMENTS."""

    type: str
    length: int
    first: tuple[Any, ...]


def inspect(path: str) -> Artifact | Checkpoint:
    """Open what stands at `path`.

    Raises ArtifactError for an artifact that breaks the container's rules, SourceError for everything else that
    cannot be read, saying what it is.
    """
    if _is_artifact(path):
        return open_artifact(path)
    from ninfer_convert.sources import open_checkpoint

    return open_checkpoint(path)


def classification(checkpoint: Checkpoint) -> Classification:
    """Which of its tensors make up encoded weights; raises SourceError for a config that cannot be read."""
    from ninfer_convert.sources.config import read_config
    from ninfer_convert.sources.encoded import classify

    return classify(checkpoint, read_config(checkpoint))


def declared_scheme(checkpoint: Checkpoint) -> str | None:
    """The scheme that a GGUF says most of its tensors follow; None where it says none that is known."""
    from ninfer_convert.sources.gguf_schemes import declared_scheme

    return declared_scheme(checkpoint.metadata) if checkpoint.kind == "gguf" else None


def metadata(checkpoint: Checkpoint) -> dict[str, Any]:
    """Its metadata by key: texts, numbers, bools, and of arrays the Head."""
    from ninfer_convert.sources.gguf_metadata import MetadataArray

    def headed(value: Any) -> Any:
        if not isinstance(value, MetadataArray):
            return value
        return Head(value.type, len(value), tuple(map(headed, value.head(HEAD_ELEMENTS))))

    return {key: headed(value) for key, value in checkpoint.metadata.items()}


def _is_artifact(path: str) -> bool:
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as stream:
            return stream.read(6) in _FAMILIES
    except (OSError, ValueError):
        return False  # open_checkpoint says why it cannot be read
