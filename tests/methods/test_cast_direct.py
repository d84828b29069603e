"""cast_direct: the vectors, every word of 16 bits, exact fractions, and what is refused."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ninfer_convert.errors import NumericError, Problem
from ninfer_convert.methods import METHODS
from tests.flush import flushed_subnormals
from tests.methods.arrays import ArraySource, job, source
from tests.oracle.scalars import BF16, F16, F32, F64, Binary, convert

if TYPE_CHECKING:
    from ninfer_convert.values import Words

Array = NDArray[Any]

VECTORS = json.loads((Path(__file__).parent.parent / "golden" / "cast_direct.json").read_text())
ALL_16 = np.arange(65536, dtype=np.uint16)
STORED: dict[str, Binary] = {"BF16": BF16, "F16": F16, "F32": F32, "F64": F64}
WORD = {"BF16": np.uint16, "F16": np.uint16, "F32": np.uint32, "F64": np.uint64}
TARGETS: dict[str, Binary] = {"bf16": BF16, "fp32": F32}


def cast(of: ArraySource, format: str, non_finite: str = "warn") -> Words:
    whole = job(of, format, non_finite)
    return METHODS["cast_direct"].encoder(whole)(0, whole.rows)


def refusal(of: ArraySource, format: str, non_finite: str = "warn") -> Problem:
    with pytest.raises(NumericError) as caught:
        cast(of, format, non_finite)
    (problem,) = caught.value.problems
    assert problem.tensor == of.name
    assert problem.path == "folder/model.safetensors"
    return problem


def stored(words: Array, kind: str) -> ArraySource:
    return source(words.view({"F32": np.float32, "F64": np.float64}.get(kind, words.dtype)), kind)


def test_vectors_of_floats() -> None:
    words = np.array(VECTORS["f32_words"], np.uint32)
    assert len(words) == 64
    assert cast(stored(words, "F32"), "bf16", "keep").codes.tolist() == VECTORS["bf16_words"]
    f64 = np.array([float.fromhex(number) for number in VECTORS["f64_hex"]])
    assert cast(source(f64, "F64"), "bf16", "keep").codes.tolist() == VECTORS["f64_to_bf16_words"]
    f16 = np.array(VECTORS["f16_words"], np.uint16)
    assert cast(source(f16, "F16"), "fp32").codes.tolist() == VECTORS["f16_to_f32_words"]


def test_vectors_of_integers() -> None:
    kept = VECTORS["int64_ok"]
    assert cast(source(np.array(kept, np.int64), "I64"), "int32").codes.tolist() == kept
    for number in VECTORS["int64_refused"]:
        assert refusal(source(np.array([number], np.int64), "I64"), "int32").code == "no-int32"
    for number in VECTORS["float_to_int32_refused"]:
        assert refusal(source(np.array([float(number)], np.float64), "F64"), "int32").code == "no-int32"


def test_the_same_word_type_is_a_bit_copy() -> None:
    copied = cast(source(ALL_16, "BF16"), "bf16")
    assert copied.codes.dtype == np.uint16
    assert np.array_equal(copied.codes, ALL_16)
    assert copied.non_finite == 256
    patterns = np.array([0x7F800001, 0xFFC12345, 0x80000001, 0xFF800000, 1, 0], np.uint32)
    words = cast(stored(patterns, "F32"), "fp32")
    assert words.codes.dtype == np.uint32
    assert words.codes.tolist() == patterns.tolist()
    assert words.non_finite == 3
    integers = np.array([-(2**31), 5, 2**31 - 1], np.int32)
    assert cast(source(integers, "I32"), "int32").codes.tolist() == integers.tolist()


def test_every_bf16_word_widens_bit_for_bit() -> None:
    wide = cast(source(ALL_16, "BF16"), "fp32")
    assert np.array_equal(wide.codes, ALL_16.astype(np.uint32) << 16)
    assert wide.non_finite == 256


def test_every_f16_word_widens_exactly() -> None:
    words = cast(source(ALL_16, "F16"), "fp32")
    values = ALL_16.view(np.float16)
    finite = np.isfinite(values)
    assert np.array_equal(words.codes[finite], values.astype(np.float32).view(np.uint32)[finite])
    assert words.codes[~finite].tolist() == [convert(word, F16, F32) for word in ALL_16[~finite].tolist()]
    assert words.non_finite == 2048


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("format", TARGETS)
@given(data=st.data())
def test_floats_round_once_from_the_stored_value(kind: str, format: str, data: st.DataObject) -> None:
    binary, target = STORED[kind], TARGETS[format]
    words = data.draw(st.lists(st.integers(0, 2 * binary.sign - 1), min_size=1, max_size=20))
    of = stored(np.array(words, WORD[kind]), kind)
    made = cast(of, format, "keep")
    same = kind == "BF16" or (kind == "F32" and format == "fp32")
    shift = 16 if kind == "BF16" and format == "fp32" else 0
    assert made.codes.tolist() == [word << shift if same else convert(word, binary, target) for word in words]
    assert made.non_finite == sum(word % target.sign > target.largest for word in made.codes.tolist())
    with flushed_subnormals():
        assert np.array_equal(cast(of, format, "keep").codes, made.codes)


def integer_word(number: int, target: Binary) -> int:
    return (target.sign if number < 0 else 0) | target.nearest(Fraction(abs(number)))


INTEGERS = {"I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64}
UNSIGNED = {"U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "U64": np.uint64}


@pytest.mark.parametrize("kind", [*INTEGERS, *UNSIGNED])
@pytest.mark.parametrize("format", TARGETS)
@given(data=st.data())
def test_integers_round_once_from_the_exact_number(kind: str, format: str, data: st.DataObject) -> None:
    dtype = {**INTEGERS, **UNSIGNED}[kind]
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    anywhere = st.integers(low, high)
    near_powers = st.builds(
        lambda power, step: min(max(2**power + step, low), high), st.integers(0, 64), st.integers(-3, 3)
    )
    ties = st.builds(
        lambda mantissa, shift, step: min(((2 * mantissa + 1) << shift) + step, high),
        st.integers(1 << 7, 1 << 24),
        st.integers(0, 39),
        st.integers(-1, 1),
    )
    numbers = [low, high, 0, *data.draw(st.lists(st.one_of(anywhere, near_powers, ties), max_size=20))]
    made = cast(source(np.array(numbers, dtype), kind), format)
    assert made.codes.tolist() == [integer_word(number, TARGETS[format]) for number in numbers]


@pytest.mark.parametrize("kind", ["I64", "U64"])
@pytest.mark.parametrize("format", TARGETS)
def test_integers_just_beside_a_tie_are_not_rounded_twice(kind: str, format: str) -> None:
    """One more than a tie between words, in a bit that binary64 would not hold."""
    target = TARGETS[format]
    tie = ((2 << target.fraction) + 1) << (61 - target.fraction)
    for number in (tie - 1, tie, tie + 1):
        made = cast(source(np.array([number], {**INTEGERS, **UNSIGNED}[kind]), kind), format)
        assert made.codes.tolist() == [integer_word(number, target)]


@pytest.mark.parametrize("kind", [*INTEGERS, *UNSIGNED])
def test_integers_in_range_become_int32(kind: str) -> None:
    info = np.iinfo({**INTEGERS, **UNSIGNED}[kind])
    numbers = [max(int(info.min), -(2**31)), 0, 1, min(int(info.max), 2**31 - 1)]
    made = cast(source(np.array(numbers, info.dtype), kind), "int32")
    assert made.codes.dtype == np.int32
    assert made.codes.tolist() == numbers


@pytest.mark.parametrize("format", ["bf16", "fp32", "int32"])
def test_bools_are_zero_or_one(format: str) -> None:
    made = cast(source(np.array([0, 1, 0xFF], np.uint8), "BOOL"), format)
    one = {"bf16": 0x3F80, "fp32": 0x3F800000, "int32": 1}[format]
    assert made.codes.tolist() == [0, one, one]


@pytest.mark.parametrize("kind", STORED)
def test_whole_floats_become_int32(kind: str) -> None:
    numbers = np.array([0.0, -0.0, 1.0, -2.0, 96.0, 2.0**14])
    of = source(numbers.astype({"F32": np.float32}.get(kind, np.float64)), kind)
    made = cast(of, "int32")
    assert made.codes.tolist() == [0, 0, 1, -2, 96, 16384]


def test_the_ends_of_int32() -> None:
    ends = np.array([-(2.0**31), 2.0**31 - 1])
    assert cast(source(ends, "F64"), "int32").codes.tolist() == [-(2**31), 2**31 - 1]
    for outside in (-(2.0**31) - 1, 2.0**31, 1e300, np.inf, -np.inf, 5e-324, -1e-40, 0.999):
        of = source(np.array([7.0, outside]), "F64")
        assert refusal(of, "int32").code == "no-int32"
        with flushed_subnormals():
            assert refusal(of, "int32").code == "no-int32"
    assert refusal(stored(np.array([1], np.uint32), "F32"), "int32").code == "no-int32"


def test_values_decoded_from_an_encoding_are_cast_as_float32() -> None:
    values = np.array([1.0, 0.1, -3.0e38], np.float32)
    of = source(values, "Q4_K", decoded_as="F32")
    assert cast(of, "fp32").codes.tolist() == values.view(np.uint32).tolist()
    assert cast(of, "bf16").codes.tolist() == [convert(word, F32, BF16) for word in values.view(np.uint32).tolist()]


NOT_FINITE = np.array([[1.0, np.nan, 2.0], [np.inf, -np.inf, 0.0]], np.float32)


@pytest.mark.parametrize("format", TARGETS)
@pytest.mark.parametrize("kind", STORED)
def test_stored_non_finite_values(kind: str, format: str) -> None:
    of = source(NOT_FINITE.astype({"F64": np.float64}.get(kind, np.float32)), kind)
    assert cast(of, format, "warn").non_finite == cast(of, format, "keep").non_finite == 3
    problem = refusal(of, format, "refuse")
    assert problem.code == "non-finite"
    assert problem.message == (
        "model.weight: 3 values are not finite (1 NaN, 2 infinite), the first at [0, 1]; "
        f'non_finite = "refuse" keeps them out of {format}'
    )
    finite = source(np.ones(3, np.float64 if kind == "F64" else np.float32), kind)
    assert cast(finite, format, "refuse").non_finite == 0


@pytest.mark.parametrize("non_finite", ["warn", "refuse"])
def test_a_finite_value_is_not_made_infinite(non_finite: str) -> None:
    values = np.array([[1.0, 2.0], [3.4e38, 3.4e38], [np.inf, 0.0]], np.float32)
    problem = refusal(source(values, "F32"), "bf16", non_finite)
    assert problem.code == "overflow"
    assert problem.message == (
        "model.weight: 2 finite values become infinite in bf16, the first at [1, 0]: 3.39999995e+38; "
        'allow it with non_finite = "keep"'
    )
    kept = cast(source(values, "F32"), "bf16", "keep")
    assert kept.codes.tolist() == [0x3F80, 0x4000, 0x7F80, 0x7F80, 0x7F80, 0]
    assert kept.non_finite == 3


def test_a_float64_too_large_for_fp32() -> None:
    of = source(np.array([0.0, -1e300]), "F64")
    message = refusal(of, "fp32").message
    assert message.startswith("model.weight: 1 finite value becomes infinite in fp32, the first at [1]: -1e+300")
    assert cast(of, "fp32", "keep").codes.tolist() == [0, 0xFF800000]


def test_a_refusal_gives_the_tensors_own_count_whatever_piece_is_at_hand() -> None:
    values = np.ones((3, 1000), np.float64)
    values[0, 7], values[1, 0], values[2, 999] = 0.5, 2.0**31, np.nan
    of = source(values, "F64")
    encode = METHODS["cast_direct"].encoder(job(of, "int32"))
    messages = set()
    for begin, end in ((0, 8), (999, 1001), (2999, 3000), (0, 3000)):
        with pytest.raises(NumericError) as caught:
            encode(begin, end)
        messages.add(str(caught.value))
    assert messages == {
        "folder/model.safetensors: model.weight: 3 values are no whole number of 32 bits, the first at [0, 7]: 0.5; "
        "store the tensor as fp32 or bf16"
    }
    assert encode(8, 999).codes.tolist() == [1] * 991


def test_a_scalar_and_the_rows_of_a_selection_are_named() -> None:
    scalar = source(np.array(0.5, np.float32), "F32", name="a\nb")
    assert refusal(scalar, "int32").message.startswith(
        "a\\nb: 1 value is no whole number of 32 bits, the first at []: 0.5"
    )
    rows = source(np.array([[0.5]], np.float32), "F32", selection="rows 3:4")
    assert refusal(rows, "int32").message.startswith("model.weight (rows 3:4): 1 value is no whole number")
