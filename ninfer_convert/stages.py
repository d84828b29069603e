"""Where the time of a run goes: seconds by stage, of the threads that ask for it.

Below a stage others may begin; each counts what is not theirs. Where nobody measures, a stage costs a look-up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

STAGES = ("read", "decode", "encode", "pack", "write", "digest", "flush")
"""In the order in which a weight comes through them."""


class Stopwatch:
    """Seconds by stage, summed over all threads that `measure`."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._lock = threading.Lock()

    def add(self, name: str, seconds: float) -> None:
        with self._lock:
            self.seconds[name] += seconds


class _Measuring(threading.local):
    """What this thread measures into, and what the stages below the present one have taken."""

    stopwatch: Stopwatch | None = None
    below: float = 0.0


_measuring = _Measuring()


@contextmanager
def measure(stopwatch: Stopwatch | None) -> Iterator[None]:
    """Count the stages of this thread in `stopwatch`; nowhere for None."""
    before, _measuring.stopwatch = _measuring.stopwatch, stopwatch
    try:
        yield
    finally:
        _measuring.stopwatch = before


@contextmanager
def stage(name: str) -> Iterator[None]:
    """What happens within belongs to this one of STAGES."""
    stopwatch = _measuring.stopwatch
    if stopwatch is None:
        yield
        return
    outside, _measuring.below = _measuring.below, 0.0
    start = time.perf_counter()
    try:
        yield
    finally:
        taken = time.perf_counter() - start
        stopwatch.add(name, taken - _measuring.below)
        _measuring.below = outside + taken
