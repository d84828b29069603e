"""fp8_row_maxabs: the vectors, every bfloat16 word, exact fractions, refused rows, flushed subnormals."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ninfer_convert.kernels.fp8 import encode_fp8, find_unscalable
from tests.flush import flushed_subnormals
from tests.oracle.fp8 import SCALES, Refused, encode_row
from tests.oracle.scalars import BF16, E4M3, F16, F32, F64, Binary

Array = NDArray[Any]

VECTORS = json.loads((Path(__file__).parent.parent / "golden" / "fp8_row_maxabs.json").read_text())
STORED: dict[str, tuple[type[Any], Binary]] = {
    "BF16": (np.uint16, BF16),
    "F16": (np.uint16, F16),
    "F32": (np.uint32, F32),
    "F64": (np.uint64, F64),
}


def encode(words: Array, format: str, stored: str = "F32") -> tuple[Array, Array, int]:
    """Codes, scales, and the first refused row or -1."""
    codes = np.full(words.shape, 0x7F, np.uint8)
    scales = np.full(len(words), 0xFFFF, np.uint16)
    return codes, scales, encode_fp8(words, stored == "F16", SCALES[format] is BF16, codes, scales)


@pytest.mark.parametrize("number", range(6))
def test_vectors(number: int) -> None:
    assert len(VECTORS) == 6
    vector = VECTORS[number]
    words = np.frombuffer(bytes.fromhex(vector["source_f32"]), "<u4").reshape(vector["shape"])
    codes, scales, refused = encode(words, vector["format"])
    assert refused == -1
    assert codes.tobytes().hex() == vector["codes"]
    assert scales.tolist() == vector["scale_words"]
    rows = [encode_row(vector["format"], row, F32) for row in words.tolist()]
    assert (codes.tolist(), scales.tolist()) == ([row[0] for row in rows], [row[1] for row in rows])


@pytest.mark.parametrize("format", SCALES)
def test_every_bfloat16_value_up_to_448_rounds_to_the_nearest_code(format: str) -> None:
    """Their largest makes the scale 1, so that the codes are the values' own."""
    magnitudes = np.arange(0x43E0 + 1, dtype=np.uint16)
    codes, scales, refused = encode(np.concatenate([magnitudes, magnitudes | 0x8000])[None], format, "BF16")
    assert refused == -1
    assert SCALES[format].magnitude(int(scales[0])) == 1
    wanted = [E4M3.nearest(BF16.magnitude(word)) for word in magnitudes.tolist()]
    assert codes[0].tolist() == wanted + [word | 0x80 for word in wanted]


@pytest.mark.parametrize("format", SCALES)
def test_codes_around_every_boundary(format: str) -> None:
    """Products just beside the middle of two codes: a scale that is no power of two, values next to the middle."""
    random = np.random.default_rng(2)
    tops = random.integers(0x3C00, 0x3D00, 12).astype(np.uint16)
    rows = []
    for top in tops.tolist():
        amax = BF16.magnitude(top)
        middles = [(E4M3.magnitude(low) + E4M3.magnitude(low + 1)) / 2 for low in range(E4M3.largest)]
        words = [BF16.nearest(middle * amax / 448) for middle in middles]
        rows.append([min(word + step, top) for word in words for step in (-1, 0, 1) if word + step >= 0])
    width = min(map(len, rows))
    matrix = np.array([[top, *row[: width - 1]] for top, row in zip(tops.tolist(), rows, strict=True)], np.uint16)
    codes, scales, refused = encode(matrix, format, "BF16")
    assert refused == -1
    for row, row_codes, scale in zip(matrix.tolist(), codes.tolist(), scales.tolist(), strict=True):
        assert (row_codes, scale) == encode_row(format, row, BF16)


@st.composite
def rows(draw: st.DrawFn) -> tuple[str, str, Array]:
    stored = draw(st.sampled_from(sorted(STORED)))
    dtype, binary = STORED[stored]
    middle = draw(st.integers(0, binary.largest >> binary.fraction))
    near = st.integers(max(middle - 20, 0) << binary.fraction, binary.largest).filter(
        lambda word: word >> binary.fraction <= middle
    )
    few = draw(st.lists(st.one_of(near, st.integers(0, 3)), min_size=1, max_size=8))
    pick = np.random.default_rng(draw(st.integers(0, 2**32)))
    words = pick.choice(np.array(few, dtype), (draw(st.integers(1, 2)), draw(st.sampled_from([1, 7, 33]))))
    signs = pick.integers(0, 2, words.shape).astype(dtype) * dtype(binary.sign)
    return draw(st.sampled_from(sorted(SCALES))), stored, words | signs


@given(rows())
@example(("fp8_e4m3fn_row_bf16", "F32", np.array([[0x7F7F8000], [0x3F800000]], np.uint32)))
@example(("fp8_e4m3fn_row_bf16", "F32", np.array([[0x3F800000], [0x7F800000]], np.uint32)))
@example(("fp8_e4m3fn_row_bf16", "F64", np.array([[0x47EFF00000000000]], np.uint64)))
@example(("fp8_e4m3fn_row_bf16", "F32", np.array([[0x02000000, 0x00000001, 0x807F0000, 0x00400000]], np.uint32)))
def test_any_row_of_any_stored_type(case: tuple[str, str, Array]) -> None:
    format, stored, words = case
    codes, scales, refused = encode(words, format, stored)
    for row in range(len(words)):
        try:
            wanted = encode_row(format, words[row].tolist(), STORED[stored][1])
        except Refused:
            assert refused == row
            break
        assert (codes[row].tolist(), int(scales[row])) == wanted
    else:
        assert refused == -1


@pytest.mark.parametrize("format", SCALES)
def test_a_row_of_zeros_has_codes_of_plus_zero(format: str) -> None:
    words = np.array([[0x80000000, 0x00000001, 0x80000001]], np.uint32)
    codes, scales, refused = encode(words, format)
    assert (codes.tolist(), scales.tolist(), refused) == ([[0, 0, 0]], [0], -1)


def test_a_scale_that_would_vanish_is_the_least_one() -> None:
    values = np.array([[1e-9, -1e-9], [1e-3, -3e-8]], np.float32)
    codes, scales, _ = encode(values.view(np.uint32), "fp8_e4m3fn_row_fp16")
    assert scales.tolist() == [0x0001, 37]
    assert codes.tolist() == [[0x09, 0x89], [0x7E, 0x87]]


def test_rows_without_a_scale_are_counted() -> None:
    values = np.ones((6, 40), np.float32)
    values[1], values[3], values[4, 7], values[5, 0] = 1e-38, 3e8, np.nan, np.inf
    words = values.view(np.uint32)
    small, large = np.float32(9.991e-39), np.float32(3.0016e8)
    for format, row, absmax in (("fp8_e4m3fn_row_bf16", 1, small), ("fp8_e4m3fn_row_fp16", 3, large)):
        assert encode(words, format)[2] == row
        total, first, largest = find_unscalable(words, False, SCALES[format] is BF16)
        assert (total, first) == (1, row)
        assert np.isclose(np.uint32(largest).view(np.float32), absmax, rtol=1e-3)


def test_flushing_subnormals_changes_nothing() -> None:
    """Rows down to the smallest scale whose reciprocal is finite, subnormal values and scales among them."""
    random = np.random.default_rng(4)
    exponents = np.arange(-132, -90, dtype=np.float64)
    values = (random.standard_normal((len(exponents), 130)) * 2.0 ** exponents[:, None]).astype(np.float64)
    values[:, 100:] *= 2.0**-9
    kept = 0
    for stored in ("F32", "F64"):
        matrix = values.astype(np.float32).view(np.uint32) if stored == "F32" else values.view(np.uint64)
        for format in SCALES:
            for row in matrix:
                plain = encode(row[None], format, stored)
                with flushed_subnormals():
                    flushed = encode(row[None], format, stored)
                assert plain[2] == flushed[2]
                kept += plain[2] == -1
                assert np.array_equal(plain[0], flushed[0])
                assert np.array_equal(plain[1], flushed[1])
    assert kept > 100


def test_the_oracle_knows_the_rule() -> None:
    one = F32.nearest(Fraction(1))
    assert encode_row("fp8_e4m3fn_row_fp16", [one, one | F32.sign], F32) == (
        [0x7E, 0xFE],
        F16.nearest(Fraction(1, 448)),
    )
    with pytest.raises(Refused, match="reciprocal"):
        encode_row("fp8_e4m3fn_row_bf16", [F32.nearest(Fraction(1, 10**37))], F32)
