"""Recipes with functions of their own, from the plan, which runs nothing, to the artifact and its provenance."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ninfer_convert.errors import RecipeError
from ninfer_convert.pipeline.check import check
from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.planned import Shaping
from ninfer_convert.pipeline.run import Progress, Running, run
from ninfer_convert.pipeline.threads import for_each
from tests.oracle import gguf, layouts
from tests.oracle.container import read
from tests.oracle.objects import float32
from tests.pipeline.converting import (
    checkpoint,
    convert,
    lines,
    made,
    messages,
    planned,
    refused,
    stored,
    weights,
)

Array = NDArray[Any]

ASSIGN = "[[assign]]"

ROUNDED = """\
import numpy as np

open(__file__ + ".ran", "a").write("x")


def rounded(values, *, first_row, shape, format, parameters):
    "Codes of one scale that the recipe gives."
    scale = np.float16(parameters["scale"])
    codes = np.rint(values / np.float32(scale)).clip(-8, 7).astype(np.int8)
    groups = -(-values.shape[1] // 64)
    return codes, np.full((len(values), groups), scale.view(np.uint16))
"""


def written(folder: Path, text: str = ROUNDED, name: str = "own.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def ran(folder: Path, name: str = "own.py") -> str:
    """How often the file has run, an x each time."""
    trace = folder / f"{name}.ran"
    return trace.read_text() if trace.exists() else ""


def assign(select: str, format: str = "q4_g64_fp16", method: str = "own.py:rounded", **more: str) -> str:
    says = {"select": f"'{select}'", "format": f"'{format}'", "method": f"'{method}'", **more}
    return lines(ASSIGN, *(f"{key} = {value}" for key, value in says.items()))


SCALE = {"parameters": "{ scale = 0.005 }"}
STEP = np.float16(0.005)


def codes_of(words: Array) -> list[list[int]]:
    """What `rounded` makes of bfloat16 words, by rows."""
    values = float32("BF16", words.tobytes()).reshape(-1, words.shape[-1])
    codes: list[list[int]] = np.rint(values / np.float32(STEP)).clip(-8, 7).astype(int).tolist()
    return codes


def small(folder: Path) -> tuple[Path, dict[str, Array]]:
    """A bank, a matrix, and a vector that no assign below touches."""
    arrays: dict[str, Array] = {
        "bank": weights(3, 4, 96),
        "matrix": weights(5, 130, seed=1),
        "norm": weights(64, seed=2),
    }
    return checkpoint(folder / "m.safetensors", arrays), arrays


def test_a_functions_words_are_stored_and_recorded(tmp_path: Path) -> None:
    input, arrays = small(tmp_path)
    written(tmp_path)
    artifact = convert(input, lines("name = 't'") + assign("{bank,matrix}", **SCALE), tmp_path, allow_code=True)
    for name, shape in (("bank", [12, 96]), ("matrix", [5, 130])):
        format, found, payload = stored(artifact, name)
        content = layouts.decode(format, (shape[0], shape[1]), payload)
        assert found == shape
        assert content.codes == codes_of(arrays[name])
        assert {scale for row in content.scales for scale in row} == {int(STEP.view(np.uint16))}
    told = made(artifact, "matrix")
    del told["sha256"]
    assert told == {
        "parameters": ["matrix"],
        "tensors": ["matrix"],
        "stored": ["BF16"],
        "method": "own.py:rounded",
        "code": {"name": "own.py", "sha256": hashlib.sha256(ROUNDED.encode()).hexdigest(), "function": "rounded"},
        "method_parameters": {"scale": 0.005},
    }
    assert str(tmp_path) not in artifact.text.decode()
    assert ran(tmp_path) == "x"


def test_planning_and_checking_run_nothing(tmp_path: Path) -> None:
    input, _ = small(tmp_path)
    written(tmp_path)
    plan = planned(input, lines("name = 't'") + assign("matrix", **SCALE), tmp_path, allow_code=True)
    assert ran(tmp_path) == ""
    run(plan, tmp_path / "a.ninfer", Running())
    assert ran(tmp_path) == "x"
    assert check(tmp_path / "a.ninfer", plan).ok
    again = planned(input, lines("name = 't'") + assign("matrix", **SCALE), tmp_path, allow_code=True)
    assert check(tmp_path / "a.ninfer", again).ok
    assert ran(tmp_path) == "x"
    assert check(tmp_path / "a.ninfer", again, full=True).ok
    assert ran(tmp_path) == "xx"


def test_another_function_or_another_text_is_another_artifact(tmp_path: Path) -> None:
    input, _ = small(tmp_path)
    recipe = lines("name = 't'") + assign("matrix", **SCALE)
    written(tmp_path)
    convert(input, recipe, tmp_path, allow_code=True)
    written(tmp_path, ROUNDED + "# changed\n")
    found = check(tmp_path / "a.ninfer", planned(input, recipe, tmp_path, allow_code=True))
    assert any("code.sha256" in difference.message for difference in found.differences)


def test_threads_and_pieces_change_no_byte(tmp_path: Path) -> None:
    """The function's scale is of the whole matrix, which `prepare` reads."""
    text = """\
import numpy as np


def absmax(values, *, first_row, shape, format, parameters, state):
    codes = np.rint(values * np.float32(7) / np.float32(state)).astype(np.int8)
    scale = np.float16(state / np.float32(7)).view(np.uint16)
    return codes, np.full((len(values), -(-values.shape[1] // 64)), scale)


def prepare(read, *, shape, format, parameters):
    return max(float(np.abs(read(row, row + 1)).max()) for row in range(shape[0]))


absmax.prepare = prepare


def squared(values, *, first_row, shape, format, parameters):
    return (values * values).view(np.uint32)
"""
    written(tmp_path, text)
    arrays: dict[str, Array] = {"a": weights(1500, 128), "b": weights(300, 130, seed=1), "c": weights(40_001, seed=2)}
    input = checkpoint(tmp_path / "m.safetensors", arrays)
    recipe = lines("name = 't'") + assign("{a,b}", method="own.py:absmax") + assign("c", "fp32", "own.py:squared")
    recipe += assign("b", "fp32", "own.py:squared", rows="[100, 200]")
    plan = planned(input, recipe, tmp_path, allow_code=True)
    ids = {
        run(plan, tmp_path / f"{jobs}-{memory}.ninfer", Running(jobs=jobs, memory=memory)).artifact_id
        for jobs in (1, 2, 5)
        for memory in (None, jobs << 18)
    }
    assert len(ids) == 1
    vector = read(tmp_path / f"5-{5 << 18}.ninfer").object_bytes("weight/000004")
    values = float32("BF16", arrays["c"].tobytes())
    assert vector == (values * values).tobytes()


EVERY = """\
import numpy as np


def words(values, *, first_row, shape, format, parameters):
    rows, columns = values.shape
    if format == "nvfp4":
        codes = (np.arange(values.size) % 16).astype(np.uint8).reshape(values.shape)
        return codes, np.full((rows, columns // 16), 0x38, np.uint8), np.float32(parameters["divisor"])
    if format.startswith("fp8"):
        return np.full(values.shape, 0xB8, np.uint8), np.arange(first_row + 1, first_row + rows + 1, dtype=np.uint16)
    group = int(format[4:].split("_")[0]) if format[:3] in ("q8_",) else {"t": 128}.get(format[0], 64)
    codes = np.where(values > 0, 1, -1).astype(np.int8)
    return codes, np.full((rows, -(-columns // group)), 0x3C00, np.uint16)
"""


@pytest.mark.parametrize("format", ["t2_g128_fp16", "q2_g64_fp16", "fp8_e4m3fn_row_bf16", "fp8_e4m3fn_row_fp16"])
def test_formats_that_no_built_in_method_makes_of_these(tmp_path: Path, format: str) -> None:
    input, arrays = small(tmp_path)
    written(tmp_path, EVERY)
    artifact = convert(input, lines("name = 't'") + assign("bank", format, "own.py:words"), tmp_path, allow_code=True)
    _, _, payload = stored(artifact, "bank")
    content = layouts.decode(format, (12, 96), payload)
    if format.startswith("fp8"):
        assert content.codes == [[0xB8] * 96] * 12
        assert content.scales == list(range(1, 13))
    else:
        signs = float32("BF16", arrays["bank"].tobytes()).reshape(12, 96) > 0
        assert content.codes == np.where(signs, 1, -1).tolist()


def test_nvfp4_keeps_the_divisor_of_each_member_of_a_parent(tmp_path: Path) -> None:
    text = EVERY.replace('parameters["divisor"]', "(4 if values[0, 0] == 1 else 2)")
    written(tmp_path, text)
    one, other = (np.full((128, 64), word, np.uint16) for word in (0x3F80, 0x4000))
    input = checkpoint(tmp_path / "m.safetensors", {"a": one, "b": other, "c": one})
    recipe = lines("name = 't'") + assign("*", "nvfp4", "own.py:words")
    recipe += lines("[[group]]", "select = ['a', 'b']")
    artifact = convert(input, recipe, tmp_path, allow_code=True)
    joined, alone = artifact.directory["objects"]
    assert (joined["shape"], joined["divisors"], "divisors" in alone) == ([256, 64], 2, False)
    content = layouts.decode("nvfp4", (256, 64), artifact.object_bytes(joined["id"]), 2)
    assert content.divisors == [0x40800000, 0x40000000]


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


# Where the file is.


def test_the_file_is_beside_the_recipe_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files of one name in different folders are two functions, side by side in one matrix."""
    arrays: dict[str, Array] = {"a": weights(8, 64), "b": weights(8, 64, seed=1)}
    input = checkpoint(tmp_path / "m.safetensors", arrays)
    for number, folder in enumerate(("base", "own", "here")):
        text = f"def f(values, **facts):\n    return values.view('uint32') * 0 + {number}\n"
        written(tmp_path / folder, text, "lib/own.py")
    half = lines("schema = 1") + assign("a", "fp32", "lib/own.py:f", rows="[0, 4]")
    (tmp_path / "base" / "base.toml").write_text(half)
    half = lines("schema = 1", "extends = '../base/base.toml'") + assign("a", "fp32", "lib/own.py:f", rows="[4, 8]")
    (tmp_path / "own" / "r.toml").write_text(half)
    monkeypatch.chdir(tmp_path / "here")
    shaping = Shaping(overrides=("b:format=fp32", "b:method=lib/own.py:f"), allow_code=True)
    run(make_plan(str(input), "../own/r.toml", shaping), tmp_path / "a.ninfer", Running())
    artifact = read(tmp_path / "a.ninfer")
    words = [np.frombuffer(artifact.object_bytes(f"weight/{number:06d}"), "<u4") for number in range(3)]
    assert [set(each.tolist()) for each in words] == [{0}, {1}, {2}]
    origins = artifact.directory["provenance"]["objects"]
    assert {origins[f"weight/{number:06d}"]["method"] for number in range(3)} == {"own.py:f"}
    assert len({origins[f"weight/{number:06d}"]["code"]["sha256"] for number in range(3)}) == 3


def test_equal_functions_of_neighbouring_rows_are_one_object(tmp_path: Path) -> None:
    input, _ = small(tmp_path)
    written(tmp_path)
    recipe = lines("name = 't'") + assign("bank", **SCALE, rows="[0, 1]") + assign("bank", **SCALE, rows="[1, 3]")
    artifact = convert(input, recipe, tmp_path, allow_code=True)
    assert stored(artifact, "bank")[1] == [12, 96]


def test_a_region_is_a_matrix_of_its_own(tmp_path: Path) -> None:
    input, arrays = small(tmp_path)
    text = "def f(values, *, first_row, shape, **facts):\n    assert (first_row, shape) == (0, (4, 96))\n"
    written(tmp_path, text + "    return values.view('uint32')\n")
    artifact = convert(
        input, lines("name = 't'") + assign("bank", "fp32", "own.py:f", rows="[1, 2]"), tmp_path, allow_code=True
    )
    expert = float32("BF16", arrays["bank"][1].tobytes())
    assert artifact.object_bytes("weight/000001") == expert.tobytes()


def test_files_among_the_parameters_are_recorded_by_name_and_digest(tmp_path: Path) -> None:
    input, _ = small(tmp_path)
    written(
        tmp_path, "def f(values, *, parameters, **facts):\n    return open(parameters['a']) and values.view('u4')\n"
    )
    table = tmp_path / "tables" / "table.bin"
    table.parent.mkdir()
    table.write_bytes(b"table")
    said = f"{{ a = '{table}', b = 'tables/table.bin', c = 'none.bin', d = 'tables', imatrix = 'x' }}"
    recipe = lines("name = 't'") + assign("matrix", "fp32", "own.py:f", parameters=said)
    artifact = convert(input, recipe, tmp_path, allow_code=True)
    file = {"name": "table.bin", "sha256": hashlib.sha256(b"table").hexdigest()}
    recorded = {"a": file, "b": file, "c": "none.bin", "d": "tables", "imatrix": "x"}
    assert made(artifact, "matrix")["method_parameters"] == recorded
    assert str(tmp_path) not in artifact.text.decode()


# What is refused, and when.


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
