"""Recipes with functions of their own, from the plan, which runs nothing, to the artifact and its provenance."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from ninfer_convert.pipeline.check import check
from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.planned import Shaping
from ninfer_convert.pipeline.run import Running, run
from tests.oracle import layouts
from tests.oracle.container import read
from tests.oracle.objects import float32
from tests.pipeline.callables import EVERY, ROUNDED, SCALE, Array, assign, small, written
from tests.pipeline.converting import checkpoint, convert, lines, made, planned, stored, weights


def ran(folder: Path, name: str = "own.py") -> str:
    """How often the file has run, an x each time."""
    trace = folder / f"{name}.ran"
    return trace.read_text() if trace.exists() else ""


STEP = np.float16(0.005)


def codes_of(words: Array) -> list[list[int]]:
    """What `rounded` makes of bfloat16 words, by rows."""
    values = float32("BF16", words.tobytes()).reshape(-1, words.shape[-1])
    codes: list[list[int]] = np.rint(values / np.float32(STEP)).clip(-8, 7).astype(int).tolist()
    return codes


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
