"""What a light command loads: `--help` no numpy, `info` of an artifact neither numba, gguf nor rich (architecture)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ninfer_convert.cli.main import COMMANDS
from tests.cli.checkpoints import make
from tests.cli.program import environment, ok

LOADED = """
import contextlib, io, sys
from ninfer_convert.cli.main import run
with contextlib.redirect_stdout(io.StringIO()):
    status = run(sys.argv[1:])
assert status == 0
print(" ".join(sorted(sys.modules)))
"""
HEAVY = {"numpy", "numba", "gguf", "rich", "safetensors", "tomli"}


def loaded(*arguments: str, cwd: Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_help_loads_the_command_line_alone(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    modules = loaded(*arguments, cwd=tmp_path)
    assert not modules & HEAVY
    ours = {name for name in modules if name.startswith("ninfer_convert.")}
    assert {name for name in ours if not name.startswith("ninfer_convert.cli")} == {"ninfer_convert.errors"}
    assert len(modules) < 200


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_loads_nothing_heavy(tmp_path: Path, command: str) -> None:
    assert not loaded(command, "--help", cwd=tmp_path) & HEAVY


def test_info_of_an_artifact_loads_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    folder = make(tmp_path)
    ok("model.safetensors", "-r", "r.toml", cwd=folder)
    for options in ((), ("--tensors", "--uses"), ("--json",)):
        assert not loaded("info", "model.ninfer", *options, cwd=folder) & HEAVY


def test_plan_and_lists_load_no_compiler(tmp_path: Path) -> None:
    folder = make(tmp_path)
    for arguments in (("plan", "model.safetensors", "-r", "r.toml"), ("formats",), ("info", "model.safetensors")):
        assert not loaded(*arguments, cwd=folder) & {"numba", "gguf", "rich"}


def test_copying_words_loads_no_compiler(tmp_path: Path) -> None:
    kept = 'schema = 1\nname = "kept"\n[[skip]]\nselect = "layers.0.bias"\nreason = "binary16 is rounded"\n'
    folder = make(tmp_path)
    (folder / "kept.toml").write_text(kept)
    assert not loaded("convert", "model.safetensors", "-r", "kept.toml", "-o", "kept.ninfer", cwd=folder) & {
        "numba",
        "gguf",
    }
