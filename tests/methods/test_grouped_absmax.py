"""grouped_absmax as a method: stored words in, words out, and refusals that name tensor, count and place."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ninfer_convert.errors import NumericError
from ninfer_convert.formats import get_format
from ninfer_convert.methods import METHODS
from tests.methods import arrays
from tests.methods.arrays import job, source
from tests.oracle.grouped import FORMATS, RIGHT
from tests.oracle.scalars import BF16, F16

Array = NDArray[Any]

REFUSED = json.loads((Path(__file__).parent.parent / "golden" / "refused_sources.json").read_text())
DIRECT = "mend the checkpoint, or keep the tensor in fp32 or bf16, which store them as they are"


encode = partial(arrays.encode, "grouped_absmax")
refusals = partial(arrays.refusals, "grouped_absmax")
as_lists = partial(arrays.as_lists, codes="int8")


@pytest.mark.parametrize("stored", ["BF16", "F16", "F32", "F64", "Q4_K"])
@pytest.mark.parametrize("format", FORMATS)
def test_each_stored_type(stored: str, format: str) -> None:
    values = np.random.default_rng(0).standard_normal((6, 130)).astype(np.float32)
    values[2], values[3, :64] = 0, 1e-9
    if stored == "F64":
        of = source(values.astype(np.float64) * (1 + 2**-40), stored)
    else:
        of = source(values, stored, decoded_as="F32" if stored == "Q4_K" else None)
    if stored in ("BF16", "F16"):
        binary = BF16 if stored == "BF16" else F16
        signs = np.where(of.array >= binary.sign, -1.0, 1.0)
        exact = np.array([float(binary.magnitude(word)) for word in of.array.ravel().tolist()]).reshape(6, 130) * signs
    else:
        exact = values.astype(np.float64)
    words = encode(of, format)
    assert as_lists(words) == RIGHT.encode(format, exact.tolist())
    assert get_format(format).faults(words).total == 0
    assert words.non_finite == 0


@given(cuts=st.lists(st.integers(1, 11), max_size=4), seed=st.integers(0, 99))
def test_words_do_not_depend_on_where_pieces_are_cut(cuts: list[int], seed: int) -> None:
    values = np.random.default_rng(seed).standard_normal((3, 4, 70)).astype(np.float32)
    of = source(values, "F32")
    whole = as_lists(encode(of, "q5_g64_fp16"))
    edges = sorted({0, 12, *cuts})
    pieces = [as_lists(encode(of, "q5_g64_fp16", *edge)) for edge in pairwise(edges)]
    assert [row for codes, _ in pieces for row in codes] == whole[0]
    assert [row for _, scales in pieces for row in scales] == whole[1]


GROUPED_REFUSALS = [vector for vector in REFUSED if vector["format"] in FORMATS]


@pytest.mark.parametrize("number", range(4))
def test_refused_sources(number: int) -> None:
    assert len(GROUPED_REFUSALS) == 4
    vector = GROUPED_REFUSALS[number]
    values = np.frombuffer(bytes.fromhex(vector["source_f32"]), "<f4").reshape(vector["shape"])
    codes = [problem.code for problem in refusals(source(values, "F32"), vector["format"])]
    assert codes == ["scale-overflow" if vector["reason"] == "scale overflow" else "non-finite"]


@pytest.mark.parametrize("stored", ["BF16", "F16", "F32", "F64"])
def test_nan_and_infinity_are_counted_and_the_first_is_placed(stored: str) -> None:
    """So many rows that they lie in the second and third piece of the second reading."""
    values = np.full((5000, 512), 0.01, np.float64 if stored == "F64" else np.float32)
    values[4999, 511], values[2500, 3] = np.nan, np.inf
    (problem,) = refusals(source(values, stored, name="model.embed_tokens.weight"), "q4_g64_fp16")
    assert problem.code == "non-finite"
    assert problem.message == (
        "model.embed_tokens.weight: 2 values are not finite (1 NaN, 1 infinite), the first at [2500, 3]; "
        f"q4_g64_fp16 cannot hold them: {DIRECT}"
    )


def test_one_nan_in_a_bank() -> None:
    values = np.ones((2, 3, 64), np.float32)
    values[1, 2, 5] = -np.nan
    (problem,) = refusals(source(values, "F32"), "q8_g32_fp16")
    assert "1 value is not finite (1 NaN, 0 infinite), the first at [1, 2, 5]" in problem.message


@pytest.mark.parametrize(
    ("amax", "format", "place"),
    [
        (1e6, "q4_g64_fp16", "absmax 1e+06 needs the scale 142857 in q4_g64_fp16"),
        (1e6, "q5_g64_fp16", "absmax 1e+06 needs the scale 66666.7 in q5_g64_fp16"),
        (1e30, "q8_g32_fp16", "absmax 1e+30 needs the scale 7.87402e+27 in q8_g32_fp16"),
    ],
)
def test_a_scale_that_overflows_names_the_group_and_what_would_hold_it(amax: float, format: str, place: str) -> None:
    values = np.full((2, 3, 130), 0.5, np.float32)
    values[1, 0, 70], values[1, 1, 129] = -amax, amax / 1.01
    (problem,) = refusals(source(values, "F32"), format)
    group = FORMATS[format][0]
    columns = f"{70 // group * group}:{70 // group * group + group}"
    holds = "q6_g64_fp16 or q8_g32_fp16 or fp32" if amax < 1e7 else "fp32"
    assert problem.code == "scale-overflow"
    assert problem.message == (
        f"model.weight: row [1, 0], group {70 // group} (columns {columns}): {place}, "
        f"beyond binary16's largest, 65504 (2 such groups); {holds} holds this tensor"
    )


def test_overflowing_scales_far_into_a_tensor_are_placed() -> None:
    values = np.zeros((5000, 512), np.float32)
    values[2500, 100], values[4999, 511] = 1e9, 1e10
    (problem,) = refusals(source(values, "F32"), "q4_g64_fp16")
    assert "row [2500], group 1 (columns 64:128): absmax 1e+09 needs" in problem.message
    assert "(2 such groups)" in problem.message


@pytest.mark.parametrize("format", FORMATS)
def test_seventy_thousand_still_has_a_scale(format: str) -> None:
    values = np.full((1, 64), 7e4, np.float32)
    words = encode(source(values, "F32"), format)
    assert np.all(get_format(format).decode(words) > 6.9e4)


def test_a_float64_that_no_binary32_holds() -> None:
    values = np.ones((2, 64))
    values[1, 1] = -1e300
    (problem,) = refusals(source(values, "F64"), "q4_g64_fp16")
    assert problem.code == "overflow"
    assert problem.message == (
        "model.weight: 1 finite value becomes infinite in binary32, the first at [1, 1]: -1e+300; "
        "no format holds values so large"
    )


def test_all_reasons_are_given_together_whatever_piece_is_at_hand() -> None:
    values = np.ones((4, 64))
    values[0, 0], values[1, 1], values[3, 63] = 1e300, 1e30, np.nan
    of = source(values, "F64")
    encode_rows = METHODS["grouped_absmax"].encoder(job(of, "q4_g64_fp16"))
    messages = set()
    for row in (0, 1, 3):
        with pytest.raises(NumericError) as caught:
            encode_rows(row, row + 1)
        assert [problem.code for problem in caught.value.problems] == ["non-finite", "overflow", "scale-overflow"]
        messages.add(str(caught.value))
    assert len(messages) == 1
    assert encode_rows(2, 3).codes.tolist() == [[7] * 64]
