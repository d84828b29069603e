"""Progress where nobody has a terminal: plain lines, not too many and not too few; silence where it is asked for."""

from __future__ import annotations

import sys
import time

import pytest

from ninfer_convert.cli import progress
from ninfer_convert.cli.output import Output
from ninfer_convert.pipeline.progress import Progress


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.05)


def wait_for(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What is written to stderr until `text` is in it."""
    written = ""
    deadline = time.monotonic() + 30
    while text not in written:
        assert time.monotonic() < deadline, written
        time.sleep(0.01)
        written += capsys.readouterr().err
    return written


def test_lines_come_also_while_nothing_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress(Output(), "converting") as report:
        assert report is not None
        wait_for("converting: starting\nconverting: starting\n", capsys)
        report(Progress(0, 2_000_000_000, "first"))
        report(Progress(500_000_000, 2_000_000_000, "a\x1b[bold]"))
        written = wait_for("a\\x1b[bold]\n", capsys)
    line = written.splitlines()[-1]
    assert line.startswith("converting: 25.0 %, 500 MB of 2.00 GB, ")
    assert "/s, " in line
    assert " left, a\\x1b[bold]" in line


def test_no_rate_is_told_from_what_the_first_report_took(capsys: pytest.CaptureFixture[str]) -> None:
    """The kernels were compiled meanwhile."""
    with progress.progress(Output(), "converting") as report:
        assert report is not None
        report(Progress(1_000, 2_000_000_000, "a"))
        written = wait_for(", a\n", capsys)
    assert written.splitlines()[-1] == "converting: 0.0 %, 1.00 kB of 2.00 GB, a"


def test_lines_are_few_however_often_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    begin = time.monotonic()
    with progress.progress(Output(), "converting") as report:
        assert report is not None
        while time.monotonic() < begin + 0.3:
            report(Progress(1, 2, "t"))
    assert capsys.readouterr().err.count("\n") <= (time.monotonic() - begin) / 0.05


def test_the_device_has_its_own_phase(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress(Output(), "converting") as report:
        assert report is not None
        report(Progress(2, 2, "t"))
        wait_for("flushing: 100.0 %", capsys)


@pytest.mark.parametrize("output", [Output(quiet=True), Output(json=True)])
def test_silence(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress(output, "converting") as report:
        assert report is None
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_a_short_run_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress(Output(), "converting") as report:
        assert report is not None
        report(Progress(1, 1, "t"))
    assert capsys.readouterr().err == ""
    assert sys.stderr is not None
