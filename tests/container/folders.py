"""What a folder holds, and a writer with something to write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.container import making

if TYPE_CHECKING:
    from ninfer_convert.container import ArtifactWriter

CAP = 12288


def listing(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder: name -> content, None for what is no file."""
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """The folder holds the same afterwards."""
    before = listing(folder)
    yield
    assert listing(folder) == before


def fill(writer: ArtifactWriter) -> None:
    """Zero bytes for every object of `making.directory()`."""
    for object in making.directory().objects:
        writer.write(object.offset, bytes(object.bytes))
