"""Recipes that name code, as a user runs them: what needs --allow-code, what runs it, how its failures look."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.checkpoints import make
from tests.cli.program import ok, run

RECIPE = """\
schema = 1
name = "own"

[defaults]
F16 = "fp32"

[[assign]]
select = "*"
format = "fp32"

[[assign]]
select = "layers.0.up.weight"
format = "fp32"
method = "own.py:halved"
"""
CODE = """\
import numpy as np

open(__file__ + ".ran", "a").write("x")


def halved(values, *, first_row, shape, format, parameters):
    return (values / 2).view(np.uint32)
"""
SHAPED = ("model.safetensors", "-r", "own.toml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tiny checkpoint, a recipe that names own.py, and that."""
    make(tmp_path)
    (tmp_path / "own.toml").write_text(RECIPE)
    (tmp_path / "own.py").write_text(CODE)
    return tmp_path


def ran(folder: Path) -> str:
    trace = folder / "own.py.ran"
    return trace.read_text() if trace.exists() else ""


def test_nothing_but_converting_runs_the_code(folder: Path) -> None:
    ok("recipes", "check", "own.toml", cwd=folder)
    ok("info", "model.safetensors", cwd=folder)
    ok("plan", *SHAPED, "--allow-code", cwd=folder)
    ok(*SHAPED, "--allow-code", "--dry-run", cwd=folder)
    assert ran(folder) == ""
    ok(*SHAPED, "--allow-code", cwd=folder)
    assert ran(folder) == "x"
    ok("verify", "model.ninfer", cwd=folder)
    ok("info", "model.ninfer", cwd=folder)
    ok("check", "model.ninfer", *SHAPED, "--allow-code", cwd=folder)
    assert ran(folder) == "x"
    ok("check", "model.ninfer", *SHAPED, "--allow-code", "--full", cwd=folder)
    ok("verify", "model.ninfer", "--against", *SHAPED, "--allow-code", cwd=folder)
    assert ran(folder) == "xxx"


@pytest.mark.parametrize(
    "command", [(), ("plan",), ("check", "model.ninfer"), ("verify", "model.ninfer", "--against")], ids=" ".join
)
def test_without_allow_code_it_is_refused_with_its_line(folder: Path, command: tuple[str, ...]) -> None:
    ran = run(*command, *SHAPED, cwd=folder)
    assert (ran.status, ran.stdout) == (1, "")
    assert ran.stderr == ("error: own.toml:14:10: method own.py:halved runs the recipe's own code: pass --allow-code\n")
    assert not (folder / "own.py.ran").exists()


def test_another_code_gives_another_artifact_and_verify_sees_it(folder: Path) -> None:
    ok(*SHAPED, "--allow-code", cwd=folder)
    (folder / "own.py").write_text(CODE.replace("/ 2", "/ 4"))
    ran = run("verify", "model.ninfer", "--against", *SHAPED, "--allow-code", cwd=folder)
    assert ran.status == 3
    assert "code.sha256" in ran.stdout
    assert "in rows [0, 768)" in ran.stdout


def test_a_failure_is_told_in_a_line_and_leaves_nothing(folder: Path) -> None:
    (folder / "own.py").write_text(CODE.replace("values / 2", "values / missing"))
    told = "own.py:7: layers.0.up.weight: halved for rows 0:6 raised NameError: name 'missing' is not defined"
    ran = run(*SHAPED, "--allow-code", cwd=folder)
    assert (ran.status, ran.stdout, ran.stderr) == (1, "", f"error: {told}\n")
    assert not list(folder.glob("*.ninfer*"))
    (error,) = run(*SHAPED, "--allow-code", "--json", cwd=folder).failure["errors"]
    assert (error["code"], error["file"], error["line"], error["tensor"]) == (
        "callable-failed",
        "own.py",
        7,
        "layers.0.up.weight",
    )


def test_debug_adds_the_traceback(folder: Path) -> None:
    (folder / "own.py").write_text(CODE.replace("values / 2", "values / missing"))
    shown = run(*SHAPED, "--allow-code", "--debug", cwd=folder).stderr
    assert "Traceback (most recent call last)" in shown
    assert 'own.py", line 7, in halved\n    return (values / missing)' in shown


def test_a_path_in_another_folder_is_shown_as_it_leads_there(folder: Path) -> None:
    (folder / "sub").mkdir()
    for name in ("own.toml", "own.py"):
        (folder / name).rename(folder / "sub" / name)
    (folder / "sub" / "own.py").write_text("def halved(values, **facts):\n    return values\n")
    ran = run("model.safetensors", "-r", "sub/own.toml", "--allow-code", cwd=folder)
    assert ran.stderr == (
        "error: sub/own.py:1: layers.0.up.weight: what halved for rows 0:6 returned is refused: "
        "fp32: words must be uint32 [any]; found float32 [768]\n"
    )
