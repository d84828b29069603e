"""How far work has come that several threads do, told as it is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a run has come, in bytes of what it reads or writes, and the parameter at hand."""

    done: int
    total: int
    parameter: str


Report = Callable[[Progress], None]


class Meter:
    """Counts what is done of `total` bytes and tells it to `report`, from any thread, one call at a time.

    Whoever counts more than bytes does so holding `lock`, and adds the bytes while still holding it.
    """

    def __init__(self, total: int, report: Report | None) -> None:
        self.lock = threading.RLock()
        self._total, self._report = total, report
        self._done = 0

    def add(self, nbytes: int, parameter: str) -> None:
        """`nbytes` more are done, the last of them of `parameter`."""
        with self.lock:
            self._done += nbytes
            if self._report is not None:
                self._report(Progress(self._done, self._total, parameter))
