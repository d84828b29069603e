"""Parameters that an architecture locks to one format (recipes.md, Locked parameters)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recipe.support import HEAD, Parameter, formats, placed, refused, solve

LOCKED = [Parameter("n.0", (256,), "F32", direct="bf16", locked="the engine reads norms as bf16"), Parameter("m.0")]


def assign(table: str) -> str:
    return f"{HEAD}[[assign]]\n{table}\n"


def test_a_wildcard_passes_locked_parameters_by_and_they_are_named(tmp_path: Path) -> None:
    resolution = solve(tmp_path, assign("select = '*'\nformat = 'q4_g64_fp16'"), LOCKED)
    assert formats(resolution) == {"n.0": "bf16", "m.0": "q4_g64_fp16"}
    assert resolution.locked == ("n.0",)


@pytest.mark.parametrize("glob", ["n.?", "n.{0..3}", "n*", "{n.0}"])
def test_a_selection_emptied_by_locks_alone_is_no_error(tmp_path: Path, glob: str) -> None:
    resolution = solve(tmp_path, assign(f"select = '{glob}'\nformat = 'q4_g64_fp16'"), LOCKED)
    assert formats(resolution) == {"n.0": "bf16", "m.0": "bf16"}
    assert [warning.code for warning in resolution.warnings] == ["untouched"]


@pytest.mark.parametrize("says", ["format = 'bf16'", "method = 'cast_direct'", "rows = [0, 1]\nnon_finite = 'keep'"])
def test_naming_a_locked_parameter_is_an_error_that_says_why(tmp_path: Path, says: str) -> None:
    (problem,) = refused(lambda: solve(tmp_path, assign(f"select = ['m*', 'n.0']\n{says}"), LOCKED))
    assert placed([problem]) == [("locked", 6, 17)]
    assert problem.message == "n.0: is locked: the engine reads norms as bf16"


def test_a_lock_holds_the_format_alone(tmp_path: Path) -> None:
    resolution = solve(tmp_path, assign("select = 'n.0'\nnon_finite = 'keep'"), LOCKED)
    assert resolution.decisions["n.0"][0].non_finite == "keep"
    assert resolution.locked == ()
