"""fp8_row_maxabs as a method: stored words in, words out, and refusals that name the row."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_convert.formats import get_format
from tests.methods import arrays
from tests.methods.arrays import source
from tests.oracle.fp8 import SCALES, encode_row
from tests.oracle.scalars import BF16, F16, F32, F64

GOLDEN = Path(__file__).parent.parent / "golden"
VECTORS = json.loads((GOLDEN / "fp8_row_maxabs.json").read_text())
REFUSED = [vector for vector in json.loads((GOLDEN / "refused_sources.json").read_text()) if vector["format"] in SCALES]
STORED = {"BF16": BF16, "F16": F16, "F32": F32, "F64": F64, "Q4_K": F32}


encode = partial(arrays.encode, "fp8_row_maxabs")
refusals = partial(arrays.refusals, "fp8_row_maxabs")
as_lists = partial(arrays.as_lists, codes="uint8")


@pytest.mark.parametrize("number", range(6))
def test_vectors(number: int) -> None:
    assert len(VECTORS) == 6
    vector = VECTORS[number]
    values = np.frombuffer(bytes.fromhex(vector["source_f32"]), "<f4").reshape(vector["shape"])
    words = encode(source(values, "F32"), vector["format"])
    assert words.codes.tobytes().hex() == vector["codes"]
    assert as_lists(words)[1] == vector["scale_words"]
    assert get_format(vector["format"]).faults(words).total == 0


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("format", SCALES)
def test_each_stored_type(stored: str, format: str) -> None:
    values = np.random.default_rng(0).standard_normal((4, 50)).astype(np.float32)
    values[2], values[3, :20] = 0, 1e-9
    of = source(
        values.astype(np.float64) * (1 + 2.0**-40) if stored == "F64" else values,
        stored,
        decoded_as="F32" if stored == "Q4_K" else None,
    )
    words = of.array.view(f"u{of.array.itemsize}").tolist()
    wanted = [encode_row(format, row, STORED[stored]) for row in words]
    assert as_lists(encode(of, format)) == ([codes for codes, _ in wanted], [scale for _, scale in wanted])


@given(cuts=st.lists(st.integers(1, 11), max_size=4), seed=st.integers(0, 99))
def test_words_do_not_depend_on_where_pieces_are_cut(cuts: list[int], seed: int) -> None:
    of = source(np.random.default_rng(seed).standard_normal((3, 4, 70)).astype(np.float32), "F32")
    whole = as_lists(encode(of, "fp8_e4m3fn_row_bf16"))
    edges = sorted({0, 12, *cuts})
    pieces = [as_lists(encode(of, "fp8_e4m3fn_row_bf16", *edge)) for edge in pairwise(edges)]
    assert [row for codes, _ in pieces for row in codes] == whole[0]
    assert [scale for _, scales in pieces for scale in scales] == whole[1]


CODES = {
    "nan": "non-finite",
    "bf16 rounding overflows": "overflow",
    "scale overflow": "scale-overflow",
    "normalization overflows": "scale-underflow",
}


@pytest.mark.parametrize("number", range(4))
def test_refused_sources(number: int) -> None:
    assert len(REFUSED) == 4
    vector = REFUSED[number]
    values = np.frombuffer(bytes.fromhex(vector["source_f32"]), "<f4").reshape(vector["shape"])
    assert [problem.code for problem in refusals(source(values, "F32"), vector["format"])] == [CODES[vector["reason"]]]


def test_a_row_beyond_binary16_scales_is_named() -> None:
    values = np.ones((2, 3, 64), np.float32)
    values[1, 0, 5], values[1, 2, 0] = -(2.0**28), 2.0**29
    (problem,) = refusals(source(values, "F32"), "fp8_e4m3fn_row_fp16")
    assert problem.message == (
        "model.weight: row [1, 0]: absmax 2.68435e+08 needs the scale 599186 in fp8_e4m3fn_row_fp16, beyond binary16's "
        "largest, 65504 (2 such rows); fp8_e4m3fn_row_bf16 or bf16 or fp32 holds this tensor"
    )
    assert encode(source(values, "F32"), "fp8_e4m3fn_row_bf16").codes.shape == (6, 64)


def test_a_row_too_small_for_its_reciprocal_is_named() -> None:
    """In a later piece of the second reading, after a row of the kind that is kept."""
    values = np.zeros((3000, 512), np.float32)
    values[0], values[2500, 3] = 1.0, 2.0**-125
    (problem,) = refusals(source(values, "F32"), "fp8_e4m3fn_row_bf16")
    assert problem.message == (
        "model.weight: row [2500]: absmax 2.35099e-38 needs the scale 5.24774e-41 in fp8_e4m3fn_row_bf16, whose "
        "reciprocal is beyond binary32 (1 such row); bf16 or fp32 holds this tensor"
    )


def test_values_that_bfloat16_cannot_hold() -> None:
    values = np.ones((2, 4), np.float32)
    values[1, 2] = -3.4e38
    (problem,) = refusals(source(values, "F32"), "fp8_e4m3fn_row_bf16")
    assert problem.message == (
        "model.weight: 1 finite value becomes infinite in bfloat16, to which this method rounds first, the first at "
        "[1, 2]: -3.39999995e+38; keep the tensor in fp32"
    )


def test_all_reasons_are_given_together() -> None:
    values = np.ones((4, 8), np.float32)
    values[0, 0], values[1, 1], values[3, 3] = 3.4e38, np.inf, 1e9
    codes = [problem.code for problem in refusals(source(values, "F32"), "fp8_e4m3fn_row_fp16")]
    assert codes == ["non-finite", "overflow", "scale-overflow"]
