"""The how-to pages are true: what their examples show is what is printed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, environment
from tests.support import REPOSITORY

PAGES = ("comparing.md", "proving.md")
"""Those whose examples run on the example checkpoint; they may call it `examples/tiny-llama`."""


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_of_a_page(name: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    page = (REPOSITORY / "docs" / name).read_text("utf-8")
    blocks = re.findall(r"```(console|python)\n(.*?)```", page, re.DOTALL)
    assert blocks
    for kind, text in blocks:
        run = {"console": run_console, "python": run_python}[kind]
        run(text, tmp_path)


def run_console(text: str, folder: Path) -> None:
    """Commands behind a "$ ", each with all that it prints."""
    printed = ""
    for command in re.findall(r"^\$ ninfer-convert (.*)$", text, re.MULTILINE):
        printed += f"$ ninfer-convert {command}\n" + output([*PROGRAM, *shlex.split(command)], folder)
    assert printed == text


def run_python(text: str, folder: Path) -> None:
    """A comment behind a print says what it prints."""
    comments = re.findall(r"print\(.*\)  # (.*)", text)
    assert output([sys.executable, "-c", text], folder).splitlines() == comments


def output(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout
