"""grouped_search as a method: stored types, importance of banks, pieces, parameters, refusals."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ninfer_convert.errors import NumericError
from ninfer_convert.formats import get_format
from ninfer_convert.methods import METHODS
from tests.methods.arrays import ArraySource, job, source
from tests.oracle.grouped import FORMATS
from tests.oracle.search import search_rows

if TYPE_CHECKING:
    from ninfer_convert.values import Words

Array = NDArray[Any]

GOLDEN = Path(__file__).parent.parent / "golden"
VECTORS = json.loads((GOLDEN / "grouped_search.json").read_text())
REFUSED = [
    vector for vector in json.loads((GOLDEN / "refused_sources.json").read_text()) if vector["format"] in FORMATS
]


def encode(of: ArraySource, format: str, begin: int = 0, end: int | None = None, **facts: Any) -> Words:
    whole = job(of, format, **facts)
    return METHODS["grouped_search"].encoder(whole)(begin, whole.rows if end is None else end)


def as_lists(words: Words) -> tuple[Any, Any]:
    assert words.scales is not None
    assert words.codes.dtype == np.int8
    assert words.scales.dtype == np.uint16
    return words.codes.tolist(), words.scales.tolist()


@pytest.mark.parametrize("number", range(16))
def test_vectors(number: int) -> None:
    assert len(VECTORS) == 16
    vector = VECTORS[number]
    values = np.frombuffer(bytes.fromhex(vector["source_f32"]), "<f4").reshape(vector["shape"])
    importance = vector["importance_f64"] and np.frombuffer(bytes.fromhex(vector["importance_f64"]), "<f8").copy()
    parameters = {"negative_scales": True} if vector["negative_scales"] else {}
    words = encode(source(values, "F32"), vector["format"], importance=importance, parameters=parameters)
    assert as_lists(words) == (vector["codes"], vector["scale_words"])
    assert get_format(vector["format"]).faults(words).total == 0


@pytest.mark.parametrize("stored", ["BF16", "F16", "F64", "Q4_K"])
@pytest.mark.parametrize("format", FORMATS)
def test_each_stored_type(stored: str, format: str) -> None:
    """Values that every type holds exactly give one answer."""
    random = np.random.default_rng(0)
    values = (random.integers(-127, 128, (5, 130)) * 2.0 ** random.integers(-12, -8, (5, 1))).astype(np.float32)
    values[2] = 0
    of = source(
        values.astype(np.float64) if stored == "F64" else values,
        stored,
        decoded_as="F32" if stored == "Q4_K" else None,
    )
    assert as_lists(encode(of, format)) == search_rows(format, values.tolist(), None, False)


def test_each_expert_of_a_bank_has_its_own_importance() -> None:
    random = np.random.default_rng(1)
    bank = random.normal(0, 0.02, (3, 4, 96)).astype(np.float32)
    importance = random.gamma(0.5, 1.0, (3, 96))
    codes, scales = as_lists(encode(source(bank, "F32"), "q4_g64_fp16", importance=importance))
    for expert in range(3):
        rows = slice(4 * expert, 4 * expert + 4)
        wanted = search_rows("q4_g64_fp16", bank[expert].tolist(), importance[expert].tolist(), False)
        assert (codes[rows], scales[rows]) == wanted


@given(cuts=st.lists(st.integers(1, 11), max_size=4), seed=st.integers(0, 99))
def test_words_do_not_depend_on_where_pieces_are_cut(cuts: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    of = source(random.standard_normal((3, 4, 70)).astype(np.float32), "F32")
    importance = random.gamma(0.5, 1.0, (3, 70))
    whole = as_lists(encode(of, "q5_g64_fp16", importance=importance))
    edges = sorted({0, 12, *cuts})
    pieces = [as_lists(encode(of, "q5_g64_fp16", *edge, importance=importance)) for edge in pairwise(edges)]
    assert [row for codes, _ in pieces for row in codes] == whole[0]
    assert [row for _, scales in pieces for row in scales] == whole[1]


def test_it_takes_a_matrix_and_leave_for_negative_scales() -> None:
    assert METHODS["grouped_search"].parameters == {"imatrix": str, "negative_scales": bool}
    values = np.random.default_rng(5).normal(0, 0.02, (16, 256)).astype(np.float32)
    of = source(values, "F32")
    assert max(map(max, as_lists(encode(of, "q4_g64_fp16", parameters={"negative_scales": False}))[1])) < 0x8000
    assert max(map(max, as_lists(encode(of, "q4_g64_fp16", parameters={"negative_scales": True}))[1])) > 0x8000


@pytest.mark.parametrize("number", range(4))
def test_refused_sources(number: int) -> None:
    assert len(REFUSED) == 4
    vector = REFUSED[number]
    values = np.frombuffer(bytes.fromhex(vector["source_f32"]), "<f4").reshape(vector["shape"])
    with pytest.raises(NumericError) as caught:
        encode(source(values, "F32"), vector["format"])
    (problem,) = caught.value.problems
    assert problem.tensor == "model.weight"
    assert problem.code == ("scale-overflow" if vector["reason"] == "scale overflow" else "non-finite")


def test_a_refusal_in_a_later_expert_names_its_place_in_the_tensor() -> None:
    bank = np.ones((3, 4, 64), np.float32)
    bank[2, 1, 7] = np.nan
    with pytest.raises(NumericError, match=r"1 value is not finite \(1 NaN, 0 infinite\), the first at \[2, 1, 7\]"):
        encode(source(bank, "F32"), "q4_g64_fp16", importance=np.ones((3, 64)))
