"""How a run shows that it lives: a bar on a terminal, in a pipe or CI a plain line every few seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ninfer_convert.cli import render
from ninfer_convert.cli.output import Output, colours, is_terminal, to_stderr
from ninfer_convert.errors import printable

if TYPE_CHECKING:
    from ninfer_convert.pipeline.progress import Progress, Report

LINE_SECONDS = 5.0


@contextmanager
def progress(output: Output, doing: str) -> Iterator[Report | None]:
    """Show what the yielded function is told, until the block ends; `doing` is a verb ("converting").

    None with `--quiet`, and with `--json` where nobody watches: stderr then holds JSON alone.
    """
    if output.quiet or (output.json and not is_terminal(sys.stderr)):
        yield None
    elif is_terminal(sys.stderr):
        with _bar(doing) as report:
            yield report
    else:
        with _lines(doing) as report:
            yield report


@contextmanager
def _bar(doing: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    # A name is never read as markup: in "[attn]" it would vanish.
    item_column = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f} %", markup=False),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[item]}", markup=False, table_column=item_column),
    )
    console = Console(file=sys.stderr, color_system="auto" if colours(sys.stderr) else None)
    with Bar(
        *columns,
        console=console,
        transient=True,
        expand=True,
        refresh_per_second=4,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as bar:
        task = bar.add_task(doing, total=None, item="")

        def report(now: Progress) -> None:
            phase, item = _phase(doing, now)
            bar.update(task, description=phase, completed=now.done, total=now.total, item=item)

        yield report


@contextmanager
def _lines(doing: str) -> Iterator[Report]:
    """A thread of its own writes, so that a line comes in time also inside a long piece of work."""
    ended = threading.Event()
    reports: list[tuple[float, Progress]] = []
    """When the first came and what it said, and the latest: what is before the first is the kernels' compilation."""

    def tell() -> None:
        while not ended.wait(LINE_SECONDS):
            to_stderr(_line(doing, reports) if reports else f"{doing}: starting\n")

    def report(now: Progress) -> None:
        reports[1:] = [(time.monotonic(), now)]

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield report
    finally:
        ended.set()
        thread.join()


def _line(doing: str, reports: Sequence[tuple[float, Progress]]) -> str:
    (begun, first), (_, now) = reports[0], reports[-1]
    seconds, done = time.monotonic() - begun, now.done - first.done
    phase, item = _phase(doing, now)
    parts = [f"{phase}: {render.percent(now.done, now.total)}", f"{render.size(now.done)} of {render.size(now.total)}"]
    if done:
        parts.append(f"{render.size(done / seconds)}/s")
        parts.append(f"{render.duration(seconds * (now.total - now.done) / done)} left")
    return ", ".join(parts) + (f", {item}\n" if item else "\n")


def _phase(doing: str, now: Progress) -> tuple[str, str]:
    """What is being done and the parameter at hand; when all is converted the device may still need its time."""
    return ("flushing", "") if now.done == now.total else (doing, printable(now.parameter))
