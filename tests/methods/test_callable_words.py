"""Words that functions of a recipe's own return: the legal ones are taken, any other is refused with its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ninfer_convert.formats import FORMATS, get_format
from ninfer_convert.formats.grouped import GROUPED_FORMATS
from ninfer_convert.methods.callable import CallableMethod
from ninfer_convert.methods.code import read_code
from tests.methods.arrays import job, source
from tests.methods.functions import encoder, method, refused, returning
from tests.support import gaussian

LEGAL = {
    "bf16": "np.full(values.shape, 0x3F80, np.uint16)",
    "fp32": "values.view(np.uint32)",
    "int32": "np.full(values.shape, -5, np.int32)",
    **{
        format.name: f"(np.full(values.shape, {format.qmax}, np.int8), "
        f"np.full((rows, -(-columns // {format.group})), 0x3C00, np.uint16))"
        for format in GROUPED_FORMATS
    },
    "nvfp4": "(np.full(values.shape, 9, np.uint8), np.full((rows, columns // 16), 0x38, np.uint8), np.float32(2))",
    "fp8_e4m3fn_row_bf16": "(np.full(values.shape, 0x38, np.uint8), np.full(rows, 0x3F80, np.uint16))",
    "fp8_e4m3fn_row_fp16": "(np.full(values.shape, 0x38, np.uint8), np.full(rows, 0x3C00, np.uint16))",
}


def test_it_makes_every_format_but_ggufs() -> None:
    made = CallableMethod(read_code(Path(__file__)), "test_it_makes_every_format_but_ggufs").formats
    assert made == tuple(name for name in FORMATS if not name.startswith("gguf_"))
    assert set(made) == set(LEGAL)


@pytest.mark.parametrize("format", LEGAL)
def test_legal_words_are_taken_as_they_are(tmp_path: Path, format: str) -> None:
    own = method(tmp_path, returning(LEGAL[format]))
    of = source(gaussian((4, 128)), "F32")
    whole = job(of, format)
    words = own.encoder(whole)(0, whole.rows)
    assert get_format(format).faults(words).total == 0
    assert np.isfinite(get_format(format).decode(words)).all()


def test_words_in_another_order_of_memory_are_those_words(tmp_path: Path) -> None:
    text = returning("(np.arange(8, dtype=np.int8).reshape(4, 2).T, np.full((2, 1), 0x3C00, np.uint16))")
    words = encoder(tmp_path, text, source(gaussian((2, 4)), "F32"), "q4_g64_fp16")(0, 2)
    assert words.codes.flags.c_contiguous
    assert words.codes.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]


Q4_SCALES = "np.full((rows, 1), 0x3C00, np.uint16)"


@pytest.mark.parametrize(
    ("format", "expression", "told"),
    [
        ("q4_g64_fp16", "None", "q4_g64_fp16 takes (codes, scales), a tuple; found a NoneType"),
        ("q4_g64_fp16", "np.zeros(values.shape, np.int8)", "takes (codes, scales), a tuple; found a ndarray"),
        ("q4_g64_fp16", "(1, 2, 3)", "q4_g64_fp16 takes (codes, scales), a tuple; found a tuple of 3"),
        ("q4_g64_fp16", f"[np.zeros(values.shape, np.int8), {Q4_SCALES}]", "a tuple; found a list of 2"),
        ("q4_g64_fp16", f"([[0] * 64] * rows, {Q4_SCALES})", "codes must be a NumPy array; found a list of 3"),
        ("q4_g64_fp16", "(np.zeros(values.shape, np.int8), 1.0)", "scales must be a NumPy array; found a float"),
        ("q4_g64_fp16", f"(values, {Q4_SCALES})", "codes must be int8 [any, any]; found float32 [3, 64]"),
        ("q4_g64_fp16", f"(values.astype('i8'), {Q4_SCALES})", "codes must be int8 [any, any]; found int64 [3, 64]"),
        (
            "q4_g64_fp16",
            f"(np.zeros((2, 64), np.int8), {Q4_SCALES})",
            "codes must have the shape of the values, [3, 64]; found [2, 64]",
        ),
        (
            "q4_g64_fp16",
            f"(np.zeros((3, 128), np.int8), {Q4_SCALES})",
            "codes must have the shape of the values, [3, 64]; found [3, 128]",
        ),
        (
            "q4_g64_fp16",
            "(np.zeros(values.shape, np.int8), np.ones((3, 1), np.float16))",
            "scales must be uint16 [3, 1]; found float16 [3, 1]",
        ),
        (
            "q4_g64_fp16",
            "(np.zeros(values.shape, np.int8), np.zeros(3, np.uint16))",
            "scales must be uint16 [3, 1]; found uint16 [3]",
        ),
        ("fp8_e4m3fn_row_bf16", "(values, np.zeros(rows, np.uint16))", "codes must be uint8 [any, any]; found float32"),
        (
            "fp8_e4m3fn_row_fp16",
            "(np.zeros(values.shape, np.uint8), np.zeros((rows, 1), np.uint16))",
            "scales must be uint16 [3]; found uint16 [3, 1]",
        ),
        (
            "nvfp4",
            "(np.zeros(values.shape, np.uint8), np.zeros((rows, 4), np.uint8))",
            "nvfp4 takes (codes, scales, divisor), a tuple; found a tuple of 2",
        ),
        (
            "nvfp4",
            "(np.zeros(values.shape, np.uint8), np.zeros((rows, 4), np.uint8), 1.0)",
            "divisor must be a numpy.float32; found a float",
        ),
        (
            "nvfp4",
            "(np.zeros(values.shape, np.uint8), np.zeros((rows, 3), np.uint8), np.float32(1))",
            "scales must be uint8 [3, 4]; found uint8 [3, 3]",
        ),
        ("bf16", "values", "words must be uint16 [any]; found float32 [192]"),
        ("fp32", "values.view(np.uint32)[:1]", "words must have the shape of the values, [3, 64]; found [1, 64]"),
        ("fp32", "values.view('u4').reshape(-1)", "words must have the shape of the values, [3, 64]; found [192]"),
        ("fp32", "values.view('u4').astype('>u4')", "words must be uint32 [any]; found >u4 [192]"),
        ("int32", "values.astype(np.int64)", "words must be int32 [any]; found int64 [192]"),
        ("bf16", "(values,)", "words must be a NumPy array; found a tuple of 1"),
    ],
)
def test_words_of_another_kind_are_refused(tmp_path: Path, format: str, expression: str, told: str) -> None:
    own = method(tmp_path, returning(expression))
    whole = job(source(gaussian((3, 64)), "F32"), format)
    problem = refused(lambda: own.encoder(whole)(0, whole.rows))
    assert (problem.code, problem.tensor) == ("callable-words", "model.weight")
    assert (problem.path, problem.line) == (str(tmp_path / "own.py"), 3)
    assert problem.message.startswith("model.weight: what f for rows 0:3 returned is refused: ")
    assert told in problem.message


def changed(array: str, place: str, word: str) -> str:
    """An expression: `array` with one word of it another."""
    return f"(lambda array: (array.__setitem__(({place}), {word}), array)[1])({array})"


ZEROS = {
    "codes": "np.zeros(values.shape, np.int8)",
    "scales": "np.full((rows, 2), 0x3C00, np.uint16)",
    "bytes": "np.zeros(values.shape, np.uint8)",
    "row scales": "np.full(rows, 0x3F80, np.uint16)",
    "block scales": "np.full((rows, 8), 0x38, np.uint8)",
}


@pytest.mark.parametrize(
    ("format", "expression", "told"),
    [
        (
            "q4_g64_fp16",
            f"({changed(ZEROS['codes'], '1, 70', '8')}, {ZEROS['scales']})",
            "a word that q4_g64_fp16 does not have, at row 2, column 70: code 8, outside [-8, 7]",
        ),
        (
            "q4_g64_fp16",
            f"(np.full(values.shape, -9, np.int8), {ZEROS['scales']})",
            "256 words, the first that q4_g64_fp16 does not have, at row 1, column 0: code -9, outside [-8, 7]",
        ),
        (
            "q5_g64_fp16",
            f"({ZEROS['codes']}, {changed(ZEROS['scales'], '0, 1', '0x7C00')})",
            "at row 1, group 1: scale word 0x7C00 (infinity)",
        ),
        (
            "q6_g64_fp16",
            f"(np.ones(values.shape, np.int8), {changed(ZEROS['scales'], '0, 1', '0')})",
            "at row 1, group 1: zero scale with non-zero codes",
        ),
        (
            "q8_g32_fp16",
            "(np.full(values.shape, -128, np.int8), np.full((rows, 4), 0x3C00, np.uint16))",
            "code -128 (code word 0b10000000), outside [-127, 127]",
        ),
        (
            "t2_g128_fp16",
            f"(np.full(values.shape, 2, np.int8), {ZEROS['scales']}[:, :1])",
            "code 2, outside [-1, 1]",
        ),
        (
            "q2_g64_fp16",
            f"(np.full(values.shape, -2, np.int8), {ZEROS['scales']})",
            "code -2 (code word 0b10), outside [-1, 2]",
        ),
        (
            "fp8_e4m3fn_row_bf16",
            f"(np.full(values.shape, 0x7F, np.uint8), {ZEROS['row scales']})",
            "code 0x7F (NaN)",
        ),
        (
            "fp8_e4m3fn_row_bf16",
            f"({ZEROS['bytes']}, {changed(ZEROS['row scales'], '1', '0xBF80')})",
            "a word that fp8_e4m3fn_row_bf16 does not have, at row 2: negative row scale 0xBF80 (negative number)",
        ),
        (
            "nvfp4",
            f"(np.full(values.shape, 16, np.uint8), {ZEROS['block scales']}, np.float32(1))",
            "code 0x10, wider than four bits",
        ),
        (
            "nvfp4",
            f"({ZEROS['bytes']}, {changed(ZEROS['block scales'], '0, 3', '0x7F')}, np.float32(1))",
            "at row 1, group 3: block scale 0x7F (NaN)",
        ),
        (
            "nvfp4",
            f"({ZEROS['bytes']}, {ZEROS['block scales']}, np.float32('nan'))",
            "at row 1: divisor nan, not finite and positive",
        ),
        (
            "nvfp4",
            f"({ZEROS['bytes']}, {ZEROS['block scales']}, np.float32(0))",
            "divisor 0.0, not finite and positive",
        ),
    ],
)
def test_illegal_words_are_refused_with_their_place(tmp_path: Path, format: str, expression: str, told: str) -> None:
    own = method(tmp_path, returning(expression))
    problem = refused(lambda: own.encoder(job(source(gaussian((4, 128)), "F32"), format))(1, 3))
    assert (problem.code, problem.tensor, problem.line) == ("callable-words", "model.weight", 3)
    assert problem.message.startswith("model.weight: what f for rows 1:3 returned is refused: ")
    assert problem.message.endswith(told)


def test_a_matrix_has_one_divisor(tmp_path: Path) -> None:
    text = returning(f"({ZEROS['bytes']}, {ZEROS['block scales']}, np.float32(2 if first_row < 4 else 3))")
    encode = encoder(tmp_path, text, source(gaussian((6, 128)), "F32"), "nvfp4", non_finite="refuse")
    for begin in (0, 2):
        words = encode(begin, begin + 2)
        assert words.divisors is not None
        assert words.divisors.dtype == np.float32
        assert words.divisors.tolist() == [2.0, 2.0]
    problem = refused(lambda: encode(4, 6))
    assert problem.message == (
        "model.weight: what f for rows 4:6 returned is refused: "
        "the divisor is 3.0, and for the rows from 0 on it was 2.0"
    )
