"""The seconds of stages: each its own, of every thread that measures, and of no other."""

from __future__ import annotations

import itertools
import threading

import pytest

from ninfer_convert.stages import STAGES, Stopwatch, measure, stage


@pytest.fixture
def stopwatch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    """One on whose clock every look takes a second."""
    monkeypatch.setattr("time.perf_counter", itertools.count().__next__)
    return Stopwatch()


def taken(stopwatch: Stopwatch) -> dict[str, float]:
    return {name: seconds for name, seconds in stopwatch.seconds.items() if seconds}


def test_a_stage_counts_what_the_stages_below_it_do_not(stopwatch: Stopwatch) -> None:
    with measure(stopwatch), stage("encode"):  # looks 0 to 7
        with stage("decode"), stage("read"):  # looks 1, 2, 3, 4
            pass
        with stage("read"):  # looks 5, 6
            pass
    assert taken(stopwatch) == {"read": 1 + 1, "decode": 3 - 1, "encode": 7 - 3 - 1}


def test_nothing_is_counted_where_nobody_measures(stopwatch: Stopwatch) -> None:
    with stage("read"):
        pass
    with measure(stopwatch), measure(None), stage("read"):
        pass
    assert taken(stopwatch) == {}
    assert tuple(stopwatch.seconds) == STAGES


def test_threads_measure_for_themselves(stopwatch: Stopwatch) -> None:
    def measured() -> None:
        with measure(stopwatch), stage("pack"):
            pass

    def unmeasured() -> None:
        with stage("pack"):
            pass

    with measure(stopwatch):
        for work in (measured, unmeasured):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert taken(stopwatch) == {"pack": 1}


def test_a_stage_that_fails_is_counted(stopwatch: Stopwatch) -> None:
    with measure(stopwatch), pytest.raises(KeyError), stage("read"):
        raise KeyError
    assert taken(stopwatch) == {"read": 1}
