"""Functions of a recipe's own: what they are given, and how each fault of theirs is told."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ninfer_convert.errors import NumericError
from ninfer_convert.formats import get_format
from ninfer_convert.methods import METHODS
from tests.methods.arrays import job, source
from tests.methods.functions import encoder, method, refused, returning
from tests.support import gaussian

# What a function is given.

RECORDS = """\
def f(values, *, first_row, shape, format, parameters):
    calls.append((values.copy(), values.dtype, values.flags.writeable, first_row, shape, format, parameters))
    return np.zeros(values.shape, np.int8), np.zeros((len(values), -(-values.shape[1] // 64)), np.uint16)
"""


def test_a_function_is_given_whole_rows_as_float32(tmp_path: Path) -> None:
    values = gaussian((6, 70))
    own = method(tmp_path, RECORDS)
    encode = own.encoder(job(source(values, "F32"), "q4_g64_fp16", "refuse", parameters={"a": [1]}))
    words = encode(2, 5)
    assert words.scales is not None
    assert (words.codes.shape, words.scales.shape) == ((3, 70), (3, 2))
    ((given, dtype, writeable, *facts),) = sys.modules[own.load().__module__].calls
    assert np.array_equal(given, values[2:5])
    assert (dtype, writeable) == (np.float32, False)
    assert facts == [2, (6, 70), "q4_g64_fp16", {"a": [1]}]


@pytest.mark.parametrize("stored", ["BF16", "F16", "F32", "F64", "Q4_K"])
def test_values_are_converted_to_binary32_once(tmp_path: Path, stored: str) -> None:
    values = gaussian((3, 64))
    exact = values.astype(np.float64) * (1 + 2.0**-40) if stored == "F64" else values
    of = source(exact, stored, decoded_as="F32" if stored == "Q4_K" else None)
    words = encoder(tmp_path, returning("values.view(np.uint32)"), of, "fp32")(0, 192)
    wanted = METHODS["cast_direct"].encoder(job(of, "fp32"))(0, 192)
    assert np.array_equal(words.codes, wanted.codes)


def test_a_bank_is_folded_and_a_vector_is_one_row(tmp_path: Path) -> None:
    own = method(
        tmp_path, "def f(values, **facts):\n    calls.append(facts['shape'])\n    return values.view(np.uint32)\n"
    )
    for shape in ((2, 3, 4), (5,), ()):
        values = gaussian(shape)
        words = own.encoder(job(source(values, "F32"), "fp32"))(0, values.size)
        assert np.array_equal(words.codes, values.reshape(-1).view(np.uint32))
    assert sys.modules[own.load().__module__].calls == [(6, 4), (1, 5), (1, 1)]


def test_elements_of_a_direct_format_come_of_whole_rows(tmp_path: Path) -> None:
    """A piece may begin and end within a row."""
    values = gaussian((5, 7))
    text = "def f(values, **facts):\n    assert values.shape[1] == 7\n    return values.view(np.uint32)\n"
    encode = encoder(tmp_path, text, source(values, "F32"), "fp32")
    flat = values.reshape(-1).view(np.uint32)
    for begin, end in ((0, 35), (0, 1), (6, 8), (7, 14), (13, 34), (34, 35)):
        assert np.array_equal(encode(begin, end).codes, flat[begin:end])


def test_what_a_call_does_to_its_parameters_stays_with_it(tmp_path: Path) -> None:
    text = """\
def f(values, *, first_row, shape, format, parameters):
    assert parameters == {"levels": [1, 2]}
    parameters["levels"].append(3)
    parameters.clear()
    return values.view(np.uint32)
"""
    parameters = {"levels": [1, 2]}
    encode = encoder(tmp_path, text, source(gaussian((2, 4)), "F32"), "fp32", parameters=parameters)
    encode(0, 4)
    encode(4, 8)
    assert parameters == {"levels": [1, 2]}


@pytest.mark.parametrize(
    "change", ["values[0, 0] = 1", "values += 1", "values.sort()", "values.flags.writeable = True"]
)
@pytest.mark.parametrize("stored", ["BF16", "F32"])
def test_a_function_cannot_change_what_it_is_given(tmp_path: Path, change: str, stored: str) -> None:
    text = f"def f(values, **facts):\n    {change}\n    return values.view(np.uint32)\n"
    problem = refused(lambda: encoder(tmp_path, text, source(gaussian((2, 4)), stored), "fp32")(0, 8))
    assert (problem.code, problem.path, problem.line) == ("callable-failed", str(tmp_path / "own.py"), 4)
    assert problem.tensor == "model.weight"
    assert problem.message.startswith("model.weight: f for rows 0:2 raised ValueError: ")


# prepare

PREPARED = """\
def f(values, *, first_row, shape, format, parameters, state):
    calls.append(threading.get_ident())
    return np.full(values.shape, state, np.uint32)

def prepare(read, *, shape, format, parameters):
    calls.append("prepared")
    assert (shape, format, parameters) == ((5, 3), "fp32", {"p": 1})
    everything = np.concatenate([read(0, 2), read(2, 2), read(2, 5)])
    assert not read(0, 1).flags.writeable
    return np.uint32(everything.sum())

f.prepare = prepare
"""


def test_prepare_runs_once_before_and_its_result_is_passed_on(tmp_path: Path) -> None:
    own = method(tmp_path, "import threading\n" + PREPARED)
    values = np.arange(15, dtype=np.float32).reshape(5, 3)
    encode = own.encoder(job(source(values, "F32"), "fp32", parameters={"p": 1}))
    with ThreadPoolExecutor(4) as threads:
        pieces = list(threads.map(lambda row: encode(3 * row, 3 * row + 3).codes, range(5)))
    assert np.concatenate(pieces).tolist() == [105] * 15
    calls = sys.modules[own.load().__module__].calls
    assert calls[0] == "prepared"
    assert len(calls) == 6


def test_a_prepare_that_returns_nothing_has_a_state_too(tmp_path: Path) -> None:
    text = "def f(values, *, state, **facts):\n    assert state is None\n    return values.view(np.uint32)\n"
    text += "f.prepare = lambda read, **facts: None\n"
    assert encoder(tmp_path, text, source(gaussian((2, 4)), "F32"), "fp32")(0, 8).codes.size == 8


@pytest.mark.parametrize(("rows", "told"), [("-1, 2", "-1:2"), ("0, 6", "0:6"), ("3, 2", "3:2")])
def test_prepare_reads_no_rows_that_are_not_there(tmp_path: Path, rows: str, told: str) -> None:
    text = f"def f(values, **facts):\n    pass\nf.prepare = lambda read, **facts: read({rows})\n"
    problem = refused(lambda: encoder(tmp_path, text, source(gaussian((5, 4)), "F32"), "fp32"))
    assert problem.message == f"model.weight: f.prepare raised IndexError: there are no rows {told} of 5"
    assert problem.line == 5


# How failures are told.


@pytest.mark.parametrize(
    ("body", "told", "line"),
    [
        ("return 1 // 0", "ZeroDivisionError: integer division or modulo by zero", 4),
        ("return helper()", "KeyError: 'no such level'", 8),
        ("raise ValueError('two\\n  lines')", "ValueError: two lines", 4),
        ("raise ValueError", "ValueError", 4),
        ("raise ValueError('x' * 1000)", f"ValueError: {'x' * 300}...", 4),
        ("import sys; sys.exit(3)", "SystemExit: 3", 4),
        ("return np.zeros(3).reshape(2)", "ValueError: cannot reshape array of size 3 into shape (2,)", 4),
        ("assert len(calls)", "AssertionError", 4),
    ],
)
def test_an_exception_is_told_with_file_line_and_tensor(tmp_path: Path, body: str, told: str, line: int) -> None:
    text = f"def f(values, **facts):\n    {body}\n\n\ndef helper():\n    raise KeyError('no such level')\n"
    encode = encoder(tmp_path, text, source(gaussian((3, 64)), "F32"), "q4_g64_fp16")
    problem = refused(lambda: encode(1, 3))
    assert (problem.code, problem.tensor) == ("callable-failed", "model.weight")
    assert (problem.path, problem.line) == (str(tmp_path / "own.py"), line)
    assert problem.message == f"model.weight: f for rows 1:3 raised {told}"


def test_a_function_that_takes_other_arguments_is_told_where_it_begins(tmp_path: Path) -> None:
    problem = refused(
        lambda: encoder(tmp_path, "def f(values):\n    pass\n", source(gaussian((3, 4)), "F32"), "fp32")(0, 12)
    )
    assert problem.line == 3
    assert "f for rows 0:3 raised TypeError: f() got an unexpected keyword argument" in problem.message


def test_running_out_of_memory_is_nobodys_fault(tmp_path: Path) -> None:
    encode = encoder(
        tmp_path, "def f(values, **facts):\n    raise MemoryError\n", source(gaussian((3, 4)), "F32"), "fp32"
    )
    with pytest.raises(MemoryError):
        encode(0, 12)


# Sources that no function is given.


@pytest.mark.parametrize("format", ["q4_g64_fp16", "bf16"])
def test_integers_are_refused(tmp_path: Path, format: str) -> None:
    own = method(tmp_path, returning("None"))
    of = source(np.zeros((2, 64), np.int32), "I32")
    assert own.refusal(of, get_format(format), {}) == "own.py:f quantizes floating values, and I32 is integer"
    assert own.refusal(source(gaussian((2, 64)), "BF16"), get_format(format), {"anything": 1}) is None


@pytest.mark.parametrize("format", ["q4_g64_fp16", "nvfp4", "fp8_e4m3fn_row_bf16", "fp32"])
@pytest.mark.parametrize("stored", ["BF16", "F32"])
def test_nan_and_infinity_are_refused_before_the_function_sees_them(tmp_path: Path, format: str, stored: str) -> None:
    values = gaussian((4, 64))
    values[2, 3], values[3, 0] = np.nan, np.inf
    own = method(tmp_path, "def f(values, **facts):\n    calls.append(1)\n")
    whole = job(source(values, stored), format, "refuse")
    problem = refused(lambda: own.encoder(whole)(0, whole.rows), NumericError)
    assert problem.message == (
        "model.weight: 2 values are not finite (1 NaN, 1 infinite), the first at [2, 3]; own.py:f is given finite "
        "values alone: mend the checkpoint, or keep the tensor in fp32 or bf16, which store them as they are"
    )
    assert sys.modules[own.load().__module__].calls == []


@pytest.mark.parametrize("rule", ["warn", "keep"])
def test_direct_formats_may_hold_nan_and_count_it(tmp_path: Path, rule: str) -> None:
    values = gaussian((4, 4))
    values[2, 3], values[3, 0] = np.nan, np.inf
    encode = encoder(tmp_path, returning("values.view(np.uint32)"), source(values, "F32"), "fp32", non_finite=rule)
    assert encode(0, 16).non_finite == 2
    assert encode(0, 12).non_finite == 1
    assert encode(12, 16).codes.tolist() == values[3].view(np.uint32).tolist()


def test_a_function_may_not_make_nan_where_it_is_refused(tmp_path: Path) -> None:
    text = returning("np.full(values.shape, 0x7FC0, np.uint16)")
    encode = encoder(tmp_path, text, source(gaussian((2, 4)), "F32"), "bf16", non_finite="refuse")
    message = refused(lambda: encode(0, 8)).message
    assert message.endswith('refused: 8 of its values are NaN or infinite, and non_finite = "refuse"')


@pytest.mark.parametrize("rule", ["warn", "refuse"])
def test_a_value_beyond_binary32_is_refused(tmp_path: Path, rule: str) -> None:
    values = np.array([[1.0, -1e300]])
    encode = encoder(tmp_path, returning("values.view(np.uint32)"), source(values, "F64"), "fp32", non_finite=rule)
    problem = refused(lambda: encode(0, 2), NumericError)
    assert "1 finite value becomes infinite in binary32, the first at [0, 1]: -1e+300" in problem.message
    kept = encoder(tmp_path, returning("values.view(np.uint32)"), source(values, "F64"), "fp32", non_finite="keep")
    assert kept(0, 2).codes.tolist() == [0x3F800000, 0xFF800000]
