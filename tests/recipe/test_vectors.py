"""The specification's recipes against its list of tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ninfer_convert.recipe import Resolution, load_recipe, resolve
from tests.recipe.support import Parameter, refused

FOLDER = Path(__file__).parent.parent / "golden" / "recipes"
CASES = json.loads((FOLDER / "cases.json").read_text())
TENSORS = [
    Parameter(name, tuple(shape), stored)
    for name, (stored, shape) in json.loads((FOLDER / "tensors.json").read_text())["tensors"].items()
]


def run(file: str) -> Resolution:
    return resolve(load_recipe(str(FOLDER / file)), TENSORS)


def test_every_recipe_is_a_case() -> None:
    files = {case["file"] for case in CASES["valid"] + CASES["invalid"]}
    assert files | {"08-base.toml"} == {path.name for path in FOLDER.glob("*.toml")}
    assert len(CASES["valid"]) >= 10
    assert len(CASES["invalid"]) >= 15
    assert len(TENSORS) == 11


@pytest.mark.parametrize("case", CASES["valid"], ids=lambda case: case["file"])
def test_a_valid_recipe(case: dict[str, Any]) -> None:
    resolution = run(case["file"])
    found = {
        name: [[piece.format, piece.method.name, dict(piece.parameters), piece.rows] for piece in pieces]
        for name, pieces in resolution.decisions.items()
    }
    expected = {
        name: [
            [piece[0], piece[1], piece[2] if len(piece) > 2 else {}, tuple(piece[3]) if len(piece) > 3 else None]
            for piece in pieces
        ]
        for name, pieces in case["expect"].items()
    }
    assert found == expected
    assert [skip.name for skip in resolution.skipped] == case.get("skipped", [])
    assert [list(parent.members) for parent in resolution.groups] == case.get("parents", [])


@pytest.mark.parametrize("case", CASES["invalid"], ids=lambda case: case["file"])
def test_an_invalid_recipe(case: dict[str, Any]) -> None:
    problems = refused(lambda: run(case["file"]))
    assert [problem.line for problem in problems] == [error["line"] for error in case["errors"]]
    for problem, error in zip(problems, case["errors"], strict=True):
        assert problem.path == str(FOLDER / case["file"])
        for mention in error["mentions"]:
            assert mention in problem.message
