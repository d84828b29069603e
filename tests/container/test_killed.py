"""A killed run leaves the old entry or the new one, complete, and the next run clears up (container.md 4)."""

from __future__ import annotations

import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent

SCENARIOS = {
    "fresh": ["absent", "new"],
    "fresh-split": ["absent", "new"],
    "one-by-parts": ["old", "new"],
    "parts-by-one": ["old", "new"],
    "parts-by-parts": ["old", "new"],
}


def standing(scenario: str, folder: Path) -> list[str]:
    """What stood at the destination after each kill."""
    program = [sys.executable, "-m", "tests.container.killed", scenario, str(folder)]
    ran = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_kill_at_any_call_leaves_a_complete_artifact_or_none(scenario: str, tmp_path: Path) -> None:
    found = standing(scenario, tmp_path / "folder")
    assert [state for state, _ in groupby(found)] == SCENARIOS[scenario]
    assert len(found) > 20


def test_a_kill_while_a_dead_runs_files_are_cleared_up_does_no_harm(tmp_path: Path) -> None:
    found = standing("twice", tmp_path / "folder")
    assert set(found) == {"old", "new"}
    assert len(found) > 50
