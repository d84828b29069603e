"""Every validity rule of formats 3 to 5: the words it forbids are all counted, the first named with their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ninfer_convert.errors import WordsError
from ninfer_convert.formats import FORMATS, WordFault, WordFaults, get_format
from ninfer_convert.values import Words
from tests.oracle import formats as oracle

if TYPE_CHECKING:
    from ninfer_convert.formats.base import Part

Array = NDArray[Any]
SEEDS = st.integers(0, 2**32)


def valid(format: str, rows: int = 4, columns: int = 256) -> Words:
    """Words without a fault: no code zero, all scales one."""
    if format in ("bf16", "fp32", "int32"):
        return Words(np.ones(columns, {"bf16": np.uint16, "fp32": np.uint32, "int32": np.int32}[format]))
    if format in oracle.GROUPED:
        groups = -(-columns // oracle.GROUPED[format][0])
        return Words(np.ones((rows, columns), np.int8), np.full((rows, groups), 0x3C00, np.uint16))
    if format == "nvfp4":
        scales = np.full((rows, columns // 16), 0x38, np.uint8)
        return Words(np.ones((rows, columns), np.uint8), scales, np.ones(rows, np.float32))
    if format in oracle.ROW_SCALED:
        return Words(np.ones((rows, columns), np.uint8), np.full(rows, 0x3C00, np.uint16))
    block_bytes = {"gguf_q8_0": 34, "gguf_q4_k": 144}.get(format, 0)
    return Words(np.full((rows, 2 * block_bytes), 0xFF, np.uint8))


ONE_FAULT = [
    # format, part, index, word, row, column, message
    ("q8_g32_fp16", "codes", (2, 70), -128, 2, 70, "code -128 (code word 0b10000000), outside [-127, 127]"),
    ("t2_g128_fp16", "codes", (3, 255), -2, 3, 255, "code -2 (code word 0b10), outside [-1, 1]"),
    ("q4_g64_fp16", "codes", (0, 0), 8, 0, 0, "code 8, outside [-8, 7]"),
    ("q5_g64_fp16", "codes", (0, 1), -17, 0, 1, "code -17, outside [-16, 15]"),
    ("q6_g64_fp16", "codes", (1, 9), 32, 1, 9, "code 32, outside [-32, 31]"),
    ("q2_g64_fp16", "codes", (1, 9), 3, 1, 9, "code 3, outside [-1, 2]"),
    ("q4_g64_fp16", "scales", (1, 3), 0x8000, 1, 3, "scale word 0x8000 (negative zero)"),
    ("q5_g64_fp16", "scales", (1, 2), 0x7E00, 1, 2, "scale word 0x7E00 (NaN)"),
    ("q6_g64_fp16", "scales", (0, 0), 0x7C00, 0, 0, "scale word 0x7C00 (infinity)"),
    ("q8_g32_fp16", "scales", (3, 7), 0xFC00, 3, 7, "scale word 0xFC00 (negative infinity)"),
    ("t2_g128_fp16", "scales", (2, 1), 0xFC01, 2, 1, "scale word 0xFC01 (NaN)"),
    ("q2_g64_fp16", "scales", (2, 1), 0x7C00, 2, 1, "scale word 0x7C00 (infinity)"),
    ("q4_g64_fp16", "scales", (2, 1), 0x0000, 2, 1, "zero scale with non-zero codes"),
    ("t2_g128_fp16", "scales", (2, 1), 0x0000, 2, 1, "zero scale with non-zero codes"),
    ("nvfp4", "codes", (1, 200), 0x1F, 1, 200, "code 0x1F, wider than four bits"),
    ("nvfp4", "scales", (1, 5), 0x80, 1, 5, "block scale 0x80 (negative zero)"),
    ("nvfp4", "scales", (1, 5), 0x81, 1, 5, "block scale 0x81 (negative)"),
    ("nvfp4", "scales", (1, 5), 0x7F, 1, 5, "block scale 0x7F (NaN)"),
    ("nvfp4", "scales", (1, 5), 0xFF, 1, 5, "block scale 0xFF (NaN)"),
    ("nvfp4", "divisors", 3, 0.0, 3, None, "divisor 0.0, not finite and positive"),
    ("nvfp4", "divisors", 0, -1.5, 0, None, "divisor -1.5, not finite and positive"),
    ("nvfp4", "divisors", 0, -0.0, 0, None, "divisor -0.0, not finite and positive"),
    ("nvfp4", "divisors", 0, np.inf, 0, None, "divisor inf, not finite and positive"),
    ("nvfp4", "divisors", 0, np.nan, 0, None, "divisor nan, not finite and positive"),
    ("fp8_e4m3fn_row_bf16", "codes", (1, 3), 0xFF, 1, 3, "code 0xFF (NaN)"),
    ("fp8_e4m3fn_row_fp16", "codes", (1, 3), 0x7F, 1, 3, "code 0x7F (NaN)"),
    ("fp8_e4m3fn_row_bf16", "scales", 2, 0xBF80, 2, None, "negative row scale 0xBF80 (negative number)"),
    ("fp8_e4m3fn_row_bf16", "scales", 2, 0x8000, 2, None, "negative row scale 0x8000 (negative zero)"),
    ("fp8_e4m3fn_row_bf16", "scales", 2, 0x7F80, 2, None, "row scale 0x7F80 (infinity)"),
    ("fp8_e4m3fn_row_bf16", "scales", 2, 0x7F81, 2, None, "row scale 0x7F81 (NaN)"),
    ("fp8_e4m3fn_row_fp16", "scales", 2, 0x7C00, 2, None, "row scale 0x7C00 (infinity)"),
    ("fp8_e4m3fn_row_bf16", "scales", 2, 0x0000, 2, None, "zero row scale with non-zero codes"),
    ("fp8_e4m3fn_row_fp16", "scales", 2, 0x0000, 2, None, "zero row scale with non-zero codes"),
]


PARTS: dict[str, Part] = {"codes": "code", "scales": "scale", "divisors": "divisor"}


@pytest.mark.parametrize(("format", "part", "index", "word", "row", "column", "message"), ONE_FAULT)
def test_one_forbidden_word_is_named(
    format: str, part: str, index: Any, word: Any, row: int, column: int | None, message: str
) -> None:
    words = valid(format)
    getattr(words, part)[index] = word
    assert get_format(format).faults(words) == WordFaults(1, (WordFault(row, column, message, PARTS[part]),))


ALLOWED = [
    ("q2_g64_fp16", "scales", (0, 0), 0x8000),
    ("q2_g64_fp16", "scales", (0, 0), 0x0000),
    ("q4_g64_fp16", "scales", (0, 0), 0x8001),
    ("q8_g32_fp16", "scales", (0, 0), 0xFBFF),
    ("fp8_e4m3fn_row_bf16", "scales", 0, 0x7C00),
    ("fp8_e4m3fn_row_fp16", "scales", 0, 0x0001),
    ("fp8_e4m3fn_row_bf16", "codes", (0, 0), 0x80),
    ("nvfp4", "scales", (0, 0), 0x00),
    ("nvfp4", "codes", (0, 0), 0x8),
    ("nvfp4", "divisors", 0, np.float32(1e-45)),
]


@pytest.mark.parametrize(("format", "part", "index", "word"), ALLOWED)
def test_words_at_the_edge_of_a_rule_are_valid(format: str, part: str, index: Any, word: Any) -> None:
    words = valid(format)
    getattr(words, part)[index] = word
    assert get_format(format).faults(words) == WordFaults(0)


def test_a_zero_scale_over_signed_zero_codes_is_valid() -> None:
    words = valid("fp8_e4m3fn_row_bf16")
    assert words.scales is not None
    words.codes[1], words.scales[1] = 0x80, 0
    assert get_format("fp8_e4m3fn_row_bf16").faults(words).total == 0
    grouped = valid("q4_g64_fp16")
    assert grouped.scales is not None
    grouped.codes[1], grouped.scales[1] = 0, 0
    assert get_format("q4_g64_fp16").faults(grouped).total == 0


@pytest.mark.parametrize("format", ["bf16", "fp32", "int32", "gguf_q8_0", "gguf_q4_k"])
def test_every_direct_word_and_every_block_is_valid(format: str) -> None:
    assert get_format(format).faults(valid(format)) == WordFaults(0)


def places(faults: WordFaults) -> list[tuple[int, int | None]]:
    return [(fault.row, fault.column) for fault in faults.first]


def check(faults: WordFaults, few: WordFaults, wanted: Sequence[oracle.Place]) -> None:
    assert faults.total == few.total == len(wanted)
    assert places(faults) == list(wanted)
    assert few.first == faults.first[:3]


@pytest.mark.parametrize("format", oracle.GROUPED)
@given(columns=st.sampled_from([1, 31, 33, 64, 65, 130]), seed=SEEDS)
def test_all_faults_of_grouped_words(format: str, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    group, qmin, qmax = oracle.GROUPED[format]
    codes = rng.integers(qmin, qmax, (6, columns), np.int8, endpoint=True)
    codes[rng.integers(0, 40, codes.shape) == 0] = -128
    codes[1] = 0
    shape = (6, -(-columns // group))
    scales = rng.choice(np.array([0, 1, 0x3C00, 0x7BFF, 0x7C00, 0x7E01, 0x8000, 0x8001, 0xFC00], np.uint16), shape)
    scales[3] = 0x2000
    words = Words(codes, scales)
    wanted = list(oracle.grouped_faults(format, codes.tolist(), scales.tolist()))
    check(get_format(format).faults(words, 10_000), get_format(format).faults(words, 3), wanted)


@pytest.mark.parametrize("format", oracle.ROW_SCALED)
@given(columns=st.sampled_from([1, 33, 130]), seed=SEEDS)
def test_all_faults_of_row_scaled_words(format: str, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.choice(np.array([0, 1, 0x7E, 0x80, 0xFE], np.uint8), (12, columns))
    codes[rng.integers(0, 40, codes.shape) == 0] = 0x7F
    codes[2] &= np.uint8(0x80)
    scales = rng.choice(np.array([0, 1, 0x3C00, 0x7BFF, 0x7C00, 0x7F80, 0x7FC0, 0x8000, 0xBF80], np.uint16), 12)
    words = Words(codes, scales)
    wanted = list(oracle.row_scaled_faults(format, codes.tolist(), scales.tolist()))
    check(get_format(format).faults(words, 10_000), get_format(format).faults(words, 3), wanted)


@given(groups=st.integers(1, 5), seed=SEEDS)
def test_all_faults_of_nvfp4_words(groups: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 17, (9, groups * 16), np.uint8)
    codes[2] %= 16
    scales = rng.choice(np.array([0, 1, 0x7E, 0x7F, 0x80, 0x81, 0xFF], np.uint8), (9, groups))
    scales[3] = 0x38
    divisors = np.repeat(rng.choice(np.array([1, 0x3F800000, 0, 0x7F800000, 0x80000001], np.uint32), 3), 3)
    words = Words(codes, scales, divisors.view(np.float32))
    wanted = list(oracle.nvfp4_faults(codes.tolist(), scales.tolist(), divisors.tolist()))
    check(get_format("nvfp4").faults(words, 10_000), get_format("nvfp4").faults(words, 3), wanted)


WRONG_WORDS = [
    ("bf16", Words(np.zeros(4, np.int16)), "bf16: words must be uint16 [any]; found int16 [4]"),
    ("int32", Words(np.zeros((2, 2), np.int32)), "int32: words must be int32 [any]; found int32 [2, 2]"),
    ("q4_g64_fp16", Words(np.zeros((2, 65), np.int8)), "q4_g64_fp16: scales must be uint16 [2, 2]; found missing"),
    (
        "q8_g32_fp16",
        Words(np.zeros((2, 65), np.int8), np.zeros((2, 2), np.uint16)),
        "q8_g32_fp16: scales must be uint16 [2, 3]; found uint16 [2, 2]",
    ),
    (
        "q4_g64_fp16",
        Words(np.zeros((2, 64), np.uint8), np.zeros((2, 1), np.uint16)),
        "q4_g64_fp16: codes must be int8 [any, any]; found uint8 [2, 64]",
    ),
    (
        "fp8_e4m3fn_row_bf16",
        Words(np.zeros((2, 3), np.uint8), np.zeros((2, 1), np.uint16)),
        "fp8_e4m3fn_row_bf16: scales must be uint16 [2]; found uint16 [2, 1]",
    ),
    (
        "nvfp4",
        Words(np.zeros((2, 17), np.uint8)),
        "nvfp4: rows must be a whole number of groups of 16; found 17 columns",
    ),
    (
        "nvfp4",
        Words(np.zeros((2, 16), np.uint8), np.zeros((2, 1), np.uint8)),
        "nvfp4: divisors must be float32 [2]; found missing",
    ),
    (
        "gguf_q8_0",
        Words(np.zeros((2, 35), np.uint8)),
        "gguf_q8_0: rows must be whole blocks of 34 bytes; found 35",
    ),
]


@pytest.mark.parametrize(("format", "words", "message"), WRONG_WORDS)
def test_words_of_another_kind_are_refused_whole(format: str, words: Words, message: str) -> None:
    for use in (get_format(format).faults, get_format(format).decode):
        with pytest.raises(WordsError) as caught:
            use(words)
        assert str(caught.value) == message
        assert [problem.code for problem in caught.value.problems] == ["wrong-words"]


def test_rows_that_do_not_lie_side_by_side_are_read_all_the_same() -> None:
    words = valid("q4_g64_fp16", rows=6, columns=512)
    assert words.scales is not None
    words.codes[2, 70] = 9
    half = Words(words.codes[::2, :256], words.scales[::2, :4])
    faults = get_format("q4_g64_fp16").faults(half)
    assert places(faults) == [(1, 70)]
    assert get_format("q4_g64_fp16").decode(half)[1, 70] == 9.0


def test_no_format_is_left_out() -> None:
    tested = {case[0] for case in ONE_FAULT} | {"bf16", "fp32", "int32"}
    assert tested == {name for name, format in FORMATS.items() if format.category != "gguf"}
