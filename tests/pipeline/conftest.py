"""Artifacts that several modules of tests read and none changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline import artifacts
from tests.pipeline.artifacts import EVERY_FORMAT, Stored


@pytest.fixture(scope="session")
def every_format(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Stored]]:
    """An artifact of an object in every format, in parts that cut planes."""
    objects = {format: artifacts.stored(format) for format in EVERY_FORMAT}
    path = artifacts.write(tmp_path_factory.mktemp("every") / "a.ninfer", objects, limit=20_000)
    assert len(list(path.parent.iterdir())) > 5
    return path, objects
