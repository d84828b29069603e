"""A killed export leaves the old model or the new one, complete, or none for a moment; the next export clears up."""

from __future__ import annotations

import errno
import os
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from ninfer_convert.errors import OutputError
from ninfer_convert.pipeline.export import Exported, export
from tests.pipeline import artifacts
from tests.pipeline.exporting import tree
from tests.pipeline.killed import visible
from tests.support import standing_after_kills

SCENARIOS = {
    "new-folder": ["absent", "new"],
    "used-folder": ["absent", "new"],
    "shards-by-shards": ["old", "absent", "new"],
    "shards-by-one": ["old", "absent", "new"],
    "one-by-shards": ["old", "absent", "new"],
    "safetensors": ["old", "new"],
    "gguf": ["old", "new"],
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_after_a_kill_at_any_call_the_next_export_leaves_one_model_and_nothing_hidden(
    scenario: str, tmp_path: Path
) -> None:
    found = standing_after_kills("tests.pipeline.killed", scenario, tmp_path)
    assert [state for state, _ in groupby(found)] == SCENARIOS[scenario]
    assert len(found) > 20


def test_a_kill_while_a_dead_runs_files_are_cleared_up_does_no_harm(tmp_path: Path) -> None:
    found = standing_after_kills("tests.pipeline.killed", "twice", tmp_path)
    assert set(found) == {"old", "absent", "new"}
    assert len(found) > 50


@pytest.fixture
def made(tmp_path: Path) -> dict[str, Path]:
    """Artifacts, and `old` exported to the folder `out`, where other files are: four files of the export."""
    found = {
        name: artifacts.write(
            tmp_path / f"{name}.ninfer",
            {key: artifacts.floats("fp32", np.arange(100.0) + seed) for key in ("a", "b")},
            config={"name": name},
        )
        for seed, name in enumerate(("old", "new"))
    }
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "README.md").write_text("somebody's")
    export(found["old"], tmp_path / "out", max_shard_bytes=1)
    return found


def cut_short(artifact: Path, output: Path, renamed: int) -> None:
    """An export that can give files other names so often only, and not clear up either."""
    rename, left = os.rename, renamed

    def refusing(source: str, target: str) -> None:
        nonlocal left
        if not left:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        left -= 1
        rename(source, target)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "rename", refusing)
        with pytest.raises(OutputError, match="cannot be written"):
            export(artifact, output, max_shard_bytes=1, force=True)


@pytest.mark.parametrize(("renamed", "outcome"), [(1, "old"), (3, "old"), (4, "old"), (5, "new"), (7, "new")])
@pytest.mark.parametrize("force", [False, True])
def test_no_file_is_taken_that_came_to_stand_in_the_way(
    made: dict[str, Path], tmp_path: Path, renamed: int, outcome: str, force: bool
) -> None:
    """Neither where the old model is put back nor where the new one is put in place."""
    out, index = tmp_path / "out", "model.safetensors.index.json"
    cut_short(made["new"], out, renamed)
    assert not (out / index).exists()
    (out / index).write_text("downloaded again")
    for _ in range(2):
        with pytest.raises(OutputError, match=r"is in the place of .*/model.safetensors.index.json, which a killed ex"):
            export(made["old"], out, force=force)
        assert (out / index).read_text() == "downloaded again"
    (out / index).unlink()
    with pytest.raises(OutputError, match="exists already"):
        export(made["old"], out)
    found = tree(out)
    (tmp_path / "wanted").mkdir()
    export(made[outcome], tmp_path / "wanted", max_shard_bytes=1)
    assert found == {**tree(tmp_path / "wanted"), "README.md": b"somebody's"}


def test_the_files_of_a_living_export_are_not_touched(made: dict[str, Path], tmp_path: Path) -> None:
    """Another one to the same folder begins and ends meanwhile; the later one counts."""
    out = tmp_path / "out"
    wanted = tree(out)
    others: list[Exported] = []

    def meanwhile(_: object) -> None:
        if not others:
            others.append(export(made["new"], out, force=True))
            assert set(visible(tree(out))) == {"README.md", "config.json", "model.safetensors"}

    export(made["old"], out, max_shard_bytes=1, force=True, progress=meanwhile)
    assert others
    assert tree(out) == wanted


@pytest.mark.parametrize("name", ["", "m.safetensors", "m.gguf"])
def test_what_comes_to_stand_there_while_it_is_written_is_not_replaced_without_force(
    made: dict[str, Path], tmp_path: Path, name: str
) -> None:
    (tmp_path / "fresh").mkdir()
    found: list[dict[str, bytes | None]] = []

    def meanwhile(_: object) -> None:
        if not found:
            export(made["new"], tmp_path / "fresh" / name)
            found.append(visible(tree(tmp_path / "fresh")))

    with pytest.raises(OutputError, match="exists already"):
        export(made["old"], tmp_path / "fresh" / name, progress=meanwhile)
    assert found == [tree(tmp_path / "fresh")]
