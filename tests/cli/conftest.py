"""A conversion costs a second; most tests only look at what one left behind."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.checkpoints import make
from tests.cli.program import ok
from tests.support import TINY_LLAMA


@pytest.fixture(scope="session")
def _converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make(tmp_path_factory.mktemp("converted"))
    (folder / "tokenizer.json").write_text("{}")
    ok("model.safetensors", "-r", "r.toml", "--name", "A model", cwd=folder)
    ok(TINY_LLAMA, "-r", "q8", "--max-file-bytes", "64KiB", "-o", "parts.ninfer", cwd=folder)
    return folder


@pytest.fixture
def converted(_converted: Path, tmp_path: Path) -> Path:
    """A folder of the test's own: the tiny checkpoint, r.toml, model.ninfer made of them, parts.ninfer with parts."""
    return shutil.copytree(_converted, tmp_path / "converted")
