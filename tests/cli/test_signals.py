"""Signals: nothing is left, the reason is told, the status is the signal's (cli.md, exit statuses; container.md 4)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, decoded, environment
from tests.support import write_sparse_safetensors

RECIPE = 'schema = 1\n[[assign]]\nselect = "*"\nformat = "q4_g64_fp16"\n'
STATUS = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """4 GiB of zeros that take no room on the disk, and a recipe."""
    shape = (32768, 4096)
    tensors = {f"t{number}.weight": ("F64", shape, 1 << 30) for number in range(4)}
    write_sparse_safetensors(tmp_path / "model.safetensors", tensors)
    (tmp_path / "q4.toml").write_text(RECIPE)
    return tmp_path


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A shell starts background jobs with SIGINT ignored, nohup ignores SIGHUP, and children inherit that."""
    before = {name: signal.signal(signal.Signals[name], signal.SIG_DFL) for name in STATUS}
    yield
    for name, handler in before.items():
        signal.signal(signal.Signals[name], handler)


def begin(folder: Path, *options: str, **changes: str | None) -> subprocess.Popen[bytes]:
    """A conversion whose temporary file stands."""
    before = set(os.listdir(folder))
    process = subprocess.Popen(
        [*PROGRAM, "model.safetensors", "-r", "q4.toml", *options],
        cwd=folder,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while not any(name.endswith(".entry") for name in set(os.listdir(folder)) - before):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("name", STATUS)
def test_a_signal_ends_the_run_and_leaves_the_folder_as_it_was(folder: Path, name: str) -> None:
    before = sorted(os.listdir(folder))
    process = begin(folder, "--quiet")
    process.send_signal(signal.Signals[name])
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == STATUS[name]
    assert stdout == b""
    assert decoded(stderr) == f"error: stopped by {name}; no partial file is left behind\n"
    assert sorted(os.listdir(folder)) == before


def test_a_signal_that_the_parent_ignores_is_ignored(folder: Path) -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = begin(folder)
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143


def test_what_stood_at_the_destination_still_stands(folder: Path) -> None:
    old = folder / "model.ninfer"
    old.write_bytes(b"older")
    before = sorted(os.listdir(folder))
    process = begin(folder, "--force", "--json")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 143
    assert [error["code"] for error in json.loads(stderr)["errors"]] == ["stopped"]
    assert sorted(os.listdir(folder)) == before
    assert old.read_bytes() == b"older"
