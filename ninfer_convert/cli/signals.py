"""A signal that ends the program becomes an exception in the main thread, so that everything cleans up after itself."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stopped(BaseException):
    """The program was told to end; no `except Exception` may hold it up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.name = signal.Signals(number).name
        self.exit_status = 128 + number


def stop_on_signals() -> None:
    """Raise Stopped at the first signal that ends the program; the later ones must not interrupt the cleaning up.

    A signal that the parent has had ignored (nohup, a shell's background job) stays ignored.
    """
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def _stop(number: int, _: FrameType | None) -> NoReturn:
    for other in ENDING:
        signal.signal(other, _pass_by)
    raise Stopped(number)


def _pass_by(number: int, frame: FrameType | None) -> None:
    """Python tells of a signal that arrives before SIG_IGN takes effect; of this one it says nothing."""
