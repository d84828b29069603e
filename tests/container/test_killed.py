"""A killed run leaves the old entry or the new one, complete, and the next run clears up (container.md 4)."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pytest

from tests.support import standing_after_kills

SCENARIOS = {
    "fresh": ["absent", "new"],
    "fresh-split": ["absent", "new"],
    "one-by-parts": ["old", "new"],
    "parts-by-one": ["old", "new"],
    "parts-by-parts": ["old", "new"],
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_kill_at_any_call_leaves_a_complete_artifact_or_none(scenario: str, tmp_path: Path) -> None:
    found = standing_after_kills("tests.container.killed", scenario, tmp_path / "folder")
    assert [state for state, _ in groupby(found)] == SCENARIOS[scenario]
    assert len(found) > 20


def test_a_kill_while_a_dead_runs_files_are_cleared_up_does_no_harm(tmp_path: Path) -> None:
    found = standing_after_kills("tests.container.killed", "twice", tmp_path / "folder")
    assert set(found) == {"old", "new"}
    assert len(found) > 50
