"""Work on a sequence of items on several threads, with an outcome that does not depend on their timing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from typing import TypeVar

T = TypeVar("T")

INTERRUPTED_SECONDS = 1.0
"""On Windows nothing interrupts a wait, so that it must end by itself."""


def for_each(items: Iterable[T], work: Callable[[T], None], jobs: int) -> None:
    """Call `work` on every item, on at most `jobs` threads; the caller's only waits, unless it gets no other.

    An exception from outside (KeyboardInterrupt) falls into the calling thread, wherever that is: it must not be inside
    a compiler, which would leave a lock closed that the others wait for. It stops them after the item they are at.

    Items are handed out in order, one at a time, and none after the first failure; each that was begun is ended.
    So the failure raised, that of the earliest item, is the same for any number of threads.
    """
    source = enumerate(items)
    lock = threading.Lock()
    failures: list[tuple[float, BaseException]] = []
    stopped = False

    def worker() -> None:
        while True:
            with lock:
                if stopped or failures:
                    return
                try:
                    number, item = next(source)
                except StopIteration:
                    return
                except BaseException as error:  # raised by the iterable itself: it has no further items
                    failures.append((inf, error))
                    return
            try:
                work(item)
            except BaseException as error:
                with lock:
                    failures.append((number, error))
                return

    threads = [threading.Thread(target=worker, daemon=True) for _ in range(jobs)]
    try:
        # RuntimeError: the system gives no more threads; fewer of them do the same work.
        with suppress(RuntimeError):
            for thread in threads:
                thread.start()
        if threads[0].ident is None:
            worker()
        for thread in threads:
            while thread.is_alive():
                thread.join(INTERRUPTED_SECONDS)
    finally:
        stopped = True
        for thread in threads:
            if thread.is_alive():  # one that never started cannot be joined
                thread.join()
    if failures:
        raise min(failures, key=lambda failure: failure[0])[1]
