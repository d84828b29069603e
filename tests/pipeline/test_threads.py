"""Work on threads: what comes out when the system gives fewer than were asked for, or a signal interrupts."""

from __future__ import annotations

import threading

import pytest

from ninfer_convert.pipeline.threads import for_each


@pytest.mark.parametrize("given", [0, 2])
def test_fewer_threads_than_jobs_do_all_the_work(monkeypatch: pytest.MonkeyPatch, given: int) -> None:
    _fail_behind(monkeypatch, given, RuntimeError("can't start new thread"))
    done: list[int] = []
    for_each(range(100), done.append, jobs=5)
    assert sorted(done) == list(range(100))


def test_what_interrupts_the_start_of_threads_comes_through(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    _fail_behind(monkeypatch, 2, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        for_each(range(100), lambda item: None, jobs=5)
    assert threading.active_count() == before


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_thread_that_signals_fall_into_does_no_work(jobs: int) -> None:
    workers = set()
    for_each(range(100), lambda item: workers.add(threading.current_thread()), jobs)
    assert threading.current_thread() not in workers
    assert 1 <= len(workers) <= jobs


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_whatever_work_raises_comes_through(jobs: int, error: type[BaseException]) -> None:
    """An interruption raised by the work itself, as a caller's `progress` may, is no success either."""

    def work(item: int) -> None:
        if item >= 50:
            raise error(item)

    with pytest.raises(error) as caught:
        for_each(range(100), work, jobs)
    assert caught.value.args == (50,)


def _fail_behind(monkeypatch: pytest.MonkeyPatch, given: int, error: BaseException) -> None:
    """Let only the first `given` threads start."""
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def limited(thread: threading.Thread) -> None:
        if len(started) == given:
            raise error
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
