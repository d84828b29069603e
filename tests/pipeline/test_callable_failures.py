"""Functions of recipes that are refused or that fail: what is told, and that nothing is left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ninfer_convert.errors import RecipeError
from ninfer_convert.pipeline.run import Running, run
from ninfer_convert.pipeline.threads import for_each
from tests.oracle import gguf
from tests.pipeline.callables import EVERY, SCALE, Array, assign, small, written
from tests.pipeline.converting import checkpoint, convert, lines, messages, planned, refused, stored, weights

if TYPE_CHECKING:
    from ninfer_convert.pipeline.progress import Progress


def test_members_of_different_heights_cannot_have_a_divisor_each(tmp_path: Path) -> None:
    written(tmp_path, EVERY)
    input = checkpoint(tmp_path / "m.safetensors", {"a": weights(128, 64), "b": weights(256, 64)})
    recipe = lines("name = 't'") + assign("*", "nvfp4", "own.py:words", parameters="{ divisor = 1 }")
    recipe += lines("[[group]]", "select = ['a', 'b']")
    told = messages(refused(input, recipe, tmp_path, allow_code=True))
    assert all("they have weight divisors of their own, which takes equally many rows of each" in each for each in told)
    assert told


def test_geometry_is_judged_before_any_code_runs(tmp_path: Path) -> None:
    input, _ = small(tmp_path)
    written(tmp_path, EVERY.replace("import numpy as np", "raise SystemExit"))
    error = refused(input, lines("name = 't'") + assign("matrix", "nvfp4", "own.py:words"), tmp_path, allow_code=True)
    assert error.problems[0].code == "misfit"


@pytest.mark.parametrize(
    ("text", "method", "told"),
    [
        (None, "own.py:f", "does not exist"),
        ("def f(:\n", "own.py:f", "own.py:1 is no Python code: "),
        ("def g(): pass\n", "own.py:f", "own.py defines no such name: unknown name 'f'"),
    ],
)
def test_what_reading_shows_is_an_error_of_the_plan(tmp_path: Path, text: str | None, method: str, told: str) -> None:
    input, _ = small(tmp_path)
    if text is not None:
        written(tmp_path, text)
    recipe = lines("name = 't'") + assign("{bank,matrix}", method=method) + assign("norm", "fp32", method)
    with pytest.raises(RecipeError) as caught:
        planned(input, recipe, tmp_path, allow_code=True)
    assert [(problem.code, problem.line) for problem in caught.value.problems] == [
        ("bad-callable", 6),
        ("bad-callable", 10),
    ]
    assert all(told in problem.message for problem in caught.value.problems)


def test_without_allow_code_nothing_is_even_read(tmp_path: Path) -> None:
    input, _ = small(tmp_path)
    error = refused(input, lines("name = 't'") + assign("{bank,matrix}"), tmp_path)
    assert messages(error) == ["6: method own.py:rounded runs the recipe's own code: pass --allow-code"]


def test_a_block_format_is_made_by_no_function(tmp_path: Path) -> None:
    input, _ = small(tmp_path)
    written(tmp_path)
    error = refused(input, lines("name = 't'") + assign("matrix", "gguf_q4_0"), tmp_path, allow_code=True)
    assert error.problems[0].code == "method-format"


def test_a_file_that_fails_ends_all_before_anything_is_written(tmp_path: Path) -> None:
    input, _ = small(tmp_path)
    written(tmp_path, "import no_such_module\ndef f(): pass\n")
    plan = planned(input, lines("name = 't'") + assign("matrix", method="own.py:f"), tmp_path, allow_code=True)
    seen: list[Progress] = []
    with pytest.raises(RecipeError, match=r"own\.py:1: running the file raised ModuleNotFoundError"):
        run(plan, tmp_path / "a.ninfer", Running(), seen.append)
    assert seen == []


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("failing", ["own.py:late", "own.py:unprepared"])
def test_a_function_that_fails_leaves_nothing_behind(tmp_path: Path, jobs: int, failing: str) -> None:
    """Of several failures the first of the plan is told, whichever thread comes first."""
    text = """\
import time


def late(values, *, first_row, **facts):
    if first_row >= 256:
        time.sleep(0.2 if first_row < 384 else 0)
        raise ValueError(f"no row {first_row}")
    return values.view("uint32")


def unprepared(values, **facts):
    return values.view("uint32")


def prepare(read, **facts):
    raise KeyError("unprepared")


unprepared.prepare = prepare
"""
    written(tmp_path, text)
    arrays: dict[str, Array] = {"a": weights(1000, 128), "b": weights(10, 128)}
    input = checkpoint(tmp_path / "m.safetensors", arrays)
    first = "own.py:late" if failing == "own.py:late" else "own.py:unprepared"
    recipe = lines("name = 't'") + assign("a", "fp32", first) + assign("b", "fp32", "own.py:unprepared")
    plan = planned(input, recipe, tmp_path, allow_code=True)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RecipeError) as caught:
        run(plan, tmp_path / "a.ninfer", Running(jobs=jobs, memory=jobs << 18))
    (problem,) = caught.value.problems
    assert sorted(tmp_path.iterdir()) == before
    if failing == "own.py:late":
        assert (problem.line, problem.tensor) == (7, "a")
        assert problem.message == "a: late for rows 256:384 raised ValueError: no row 256"
    else:
        assert problem.message == "a: unprepared.prepare raised KeyError: 'unprepared'"
    assert problem.path == str(tmp_path / "own.py")


def test_decoded_values_need_requantize(tmp_path: Path) -> None:
    """A function is a quantizing method, whatever it does."""
    data = np.zeros((4, 34), np.uint8)
    input = tmp_path / "m.gguf"
    input.write_bytes(gguf.File([gguf.Tensor("w", 8, (4, 32), data.tobytes())]).build())
    written(tmp_path)
    recipe = lines("name = 't'") + assign("w", **SCALE)
    assert "own.py:rounded would quantize decoded values once more" in str(
        refused(input, recipe, tmp_path, allow_code=True)
    )
    artifact = convert(input, recipe, tmp_path, allow_code=True, requantize=True)
    assert stored(artifact, "w")[0] == "q4_g64_fp16"


@pytest.mark.parametrize("jobs", [1, 4])
def test_an_iterable_that_fails_comes_behind_the_items_it_gave(jobs: int) -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise KeyError("iterable")

    def work(item: int) -> None:
        time.sleep(0.05)
        if item == 1:
            raise ValueError("item")

    with pytest.raises(ValueError, match="item"):
        for_each(items(), work, jobs)
    with pytest.raises(KeyError, match="iterable"):
        for_each(items(), lambda item: None, jobs)
