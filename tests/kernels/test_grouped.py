"""grouped_absmax: the vectors, encoders that are wrong in one step, the slow oracle, flushed subnormals."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ninfer_convert.kernels.grouped import SPAN, encode_absmax, find_overflows
from tests.flush import flushed_subnormals
from tests.oracle import grouped as oracle
from tests.oracle.grouped import FORMATS, RIGHT, Encoder, Matrix, f16_value, f16_word, f32
from tests.oracle.scalars import BF16, F16, F32, F64, Binary, convert

Array = NDArray[Any]

VECTORS = json.loads((Path(__file__).parent.parent / "golden" / "grouped_absmax.json").read_text())
STORED: dict[str, tuple[type[Any], Binary]] = {
    "BF16": (np.uint16, BF16),
    "F16": (np.uint16, F16),
    "F32": (np.uint32, F32),
    "F64": (np.uint64, F64),
}


def encode(words: Array, format: str, stored: str = "F32") -> tuple[Array, Array, int]:
    """Codes, scales, and the flat index of the first refused group or -1."""
    group, qmin, qmax = FORMATS[format]
    rows, columns = words.shape
    codes = np.full((rows, columns), 99, np.int8)
    scales = np.full((rows, -(-columns // group)), 0x7FFF, np.uint16)
    refused = encode_absmax(words, stored == "F16", group, qmin, qmax, codes, scales)
    return codes, scales, refused


def source(vector: Any) -> Array:
    values: Array = np.frombuffer(bytes.fromhex(vector["source_f32"]), "<f4").reshape(vector["shape"])
    return values


def passes(encoder: Encoder, format: str) -> bool:
    """Whether an encoder gives every vector of a format."""
    vectors = [vector for vector in VECTORS if vector["format"] == format]
    assert len(vectors) >= 6
    for vector in vectors:
        if encoder.encode(format, source(vector).tolist()) != (vector["codes"], vector["scale_words"]):
            return False
    return True


@pytest.mark.parametrize("number", range(24))
def test_vectors(number: int) -> None:
    assert len(VECTORS) == 24
    vector = VECTORS[number]
    codes, scales, refused = encode(source(vector).view(np.uint32), vector["format"])
    assert refused == -1
    assert codes.tolist() == vector["codes"]
    assert scales.tolist() == vector["scale_words"]


@pytest.mark.parametrize("format", FORMATS)
def test_the_oracle_gives_the_vectors(format: str) -> None:
    assert passes(RIGHT, format)


def halves_away(y: float) -> int:
    return int(math.copysign(math.floor(abs(y) + 0.5), y))


def through_bf16(raw: float) -> int:
    word = convert(struct.unpack("<I", struct.pack("<f", raw))[0], F32, BF16)
    return f16_word(struct.unpack("<f", struct.pack("<I", word << 16))[0])


def across_rows(matrix: Matrix, row: int, begin: int, end: int) -> Sequence[float]:
    """A last group that goes on into the next row."""
    flat = [x for values in matrix for x in values]
    start = row * len(matrix[0])
    return flat[start + begin : start + end]


def with_padding(matrix: Matrix, row: int, begin: int, end: int) -> Sequence[float]:
    """A last group padded with the row's last value but one, as a buffer that was not cleared holds it."""
    values = matrix[row][begin:end]
    return [*values, *matrix[row][: end - begin - len(values)]]


WRONG = {
    "division instead of the reciprocal": replace(RIGHT, normalize=lambda x, scale: f32(x / scale)),
    "halves away from zero": replace(RIGHT, rounded=halves_away),
    "no underflow rescue": replace(RIGHT, rescue=lambda word: word),
    "scale through bf16": replace(RIGHT, scale=through_bf16),
    "groups across rows": replace(RIGHT, lanes=across_rows),
    "padding in amax": replace(RIGHT, lanes=with_padding),
    "products not rounded to binary32": replace(RIGHT, normalize=lambda x, scale: x * (1.0 / scale)),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_encoder_fails_the_vectors(name: str, format: str) -> None:
    assert not passes(WRONG[name], format)


@pytest.mark.parametrize("format", ["q4_g64_fp16", "q5_g64_fp16", "q6_g64_fp16"])
def test_the_wrong_denominator_fails_the_vectors(format: str) -> None:
    """Of q8 both ends are 127."""
    assert not passes(replace(RIGHT, denominator=lambda qmin, qmax: -qmin), format)


def magnitudes(stored: str) -> st.SearchStrategy[int]:
    """Magnitude words of ordinary weights, of scales that are binary16 subnormals, of zero, of any exponent."""
    _, binary = STORED[stored]
    fraction = binary.fraction
    ordinary = st.integers((binary.bias - 12) << fraction, (binary.bias + 4) << fraction)
    least_scales = st.integers(max(binary.bias - 26, 0) << fraction, max(binary.bias - 16, 1) << fraction)
    return st.one_of(st.just(0), st.integers(0, 40), ordinary, least_scales, st.integers(0, binary.largest))


@st.composite
def matrices(draw: st.DrawFn) -> tuple[str, str, Array]:
    stored = draw(st.sampled_from(sorted(STORED)))
    dtype, binary = STORED[stored]
    rows = draw(st.sampled_from([1, 1, 2, 3]))
    columns = draw(st.sampled_from([1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 130]))
    few = draw(st.lists(magnitudes(stored), min_size=1, max_size=12))
    pick = np.random.default_rng(draw(st.integers(0, 2**32)))
    words = pick.choice(np.array(few, dtype), (rows, columns))
    signs = pick.integers(0, 2, (rows, columns)).astype(dtype) * dtype(binary.sign)
    return draw(st.sampled_from(sorted(FORMATS))), stored, words | signs


def values_of(words: Array, stored: str) -> list[list[float]]:
    """What the words mean, rounded once to binary32."""
    _, binary = STORED[stored]

    def value(word: int) -> float:
        narrow = convert(word, binary, F32)
        number: float = struct.unpack("<f", struct.pack("<I", narrow))[0]
        return number

    known = {word: value(word) for word in set(words.ravel().tolist())}
    return [[known[word] for word in row] for row in words.tolist()]


@given(matrices())
@example(("q4_g64_fp16", "F64", np.array([[0x47EFFFFFF0000000]], np.uint64)))
@example(("q8_g32_fp16", "F32", np.array([[0x7F7FFFFF, 0x7F800000]], np.uint32)))
def test_every_stored_type_gives_the_oracles_words(case: tuple[str, str, Array]) -> None:
    format, stored, words = case
    codes, scales, refused = encode(words, format, stored)
    try:
        wanted = RIGHT.encode(format, values_of(words, stored))
    except oracle.Refused as place:
        row, group = place.args[0]
        assert refused == row * scales.shape[1] + group
    else:
        assert refused == -1
        assert (codes.tolist(), scales.tolist()) == wanted


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("columns", [SPAN - 1, SPAN, SPAN + 1, 2 * SPAN + 33])
def test_rows_longer_than_a_span(format: str, columns: int) -> None:
    values = np.random.default_rng(columns).standard_normal((2, columns)).astype(np.float32)
    values[:, 640:704] = 0
    codes, scales, refused = encode(values.view(np.uint32), format)
    assert refused == -1
    assert (codes.tolist(), scales.tolist()) == RIGHT.encode(format, values.tolist())


@pytest.mark.parametrize("format", FORMATS)
def test_groups_too_small_for_a_scale_keep_the_least_one(format: str) -> None:
    """Groups of 1.2e-38 and 1e-40, whose reciprocal scale would overflow."""
    values = np.zeros((3, 128), np.float32)
    values[0, ::2], values[1, 1::2] = 1.2e-38, -1e-40
    codes, scales, refused = encode(values.view(np.uint32), format)
    assert refused == -1
    assert not codes.any()
    assert np.unique(scales[:2]).tolist() == [0x0001]
    assert not scales[2].any()


@pytest.mark.parametrize("format", FORMATS)
def test_codes_are_clamped_at_both_ends(format: str) -> None:
    """Where the scale is rounded down to 2^-24, the largest values lie up to half beyond the interval."""
    _, qmin, qmax = FORMATS[format]
    values = np.array([[1.49, -1.49, 1.0, -1.0]], np.float32) * np.float32(qmax * 2.0**-24)
    codes, scales, _ = encode(values.view(np.uint32), format)
    assert scales.tolist() == [[0x0001]]
    assert codes.tolist() == [[qmax, qmin, qmax, -qmax]]


@pytest.mark.parametrize("stored", STORED)
def test_flushing_subnormals_changes_nothing(stored: str) -> None:
    dtype, binary = STORED[stored]
    rng = np.random.default_rng(3)
    words = rng.integers(0, (binary.bias + 2) << binary.fraction, (40, 130), dtype)
    words[:30] &= dtype((1 << binary.fraction) - 1)
    words[10:20] >>= dtype(3)
    if stored == "F64":
        words[:30] += np.uint64((1023 - 149) << 52)
    for format in FORMATS:
        plain = encode(words, format, stored)
        with flushed_subnormals():
            flushed = encode(words, format, stored)
        assert plain[2] == flushed[2] == -1
        assert np.array_equal(plain[0], flushed[0])
        assert np.array_equal(plain[1], flushed[1])


@pytest.mark.parametrize(("amax", "formats"), [(7e4, 4), (1e6, 2), (1e30, 0)])
def test_overflowing_scales_are_found(amax: float, formats: int) -> None:
    values = np.full((5, 130), 0.5, np.float32)
    values[3, 70] = -amax
    values[4, 129] = amax
    words = values.view(np.uint32)
    fit = 0
    for format, (group, _, qmax) in FORMATS.items():
        _, scales, refused = encode(words, format)
        total, first, largest = find_overflows(words, False, group, qmax)
        assert first == refused
        assert np.uint32(largest).view(np.float32) == np.float32(amax)
        if refused == -1:
            assert total == 0
            fit += 1
        else:
            assert total == 2
            assert divmod(refused, scales.shape[1]) == (3, 70 // group)
    assert fit == formats


def test_overflows_pass_values_by_that_are_not_finite() -> None:
    words = np.array([[0x7F800000, 0x7FC00000, 0xFF800001, 0x40000000]], np.uint32)
    assert find_overflows(words, False, 64, 7) == (0, -1, 0x40000000)


def test_the_oracle_reads_binary16() -> None:
    assert f16_value(0x0001) == 2.0**-24
    assert f16_word(65520.0) == 0x7C00
