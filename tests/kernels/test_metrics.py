"""Sums over pairs: their value against exact sums, their order against a loop, the counts of what is not finite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ninfer_convert.kernels.metrics import CHUNK, LANES, sum_pairs

Array = NDArray[Any]

SPECIAL = [0.0, -0.0, 1.0, -1.5, 1e-45, 3e38, math.inf, -math.inf, math.nan]
LENGTHS = [1, LANES - 1, LANES, LANES + 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3 * LANES + 7]


def summed(left: Array, right: Array) -> tuple[Array, Array]:
    chunks = -(-len(left) // CHUNK)
    counts, sums = np.full((chunks, 2), -1, np.int64), np.full((chunks, 5), np.nan)
    sum_pairs(left, right, counts, sums)
    return counts, sums


def in_lanes(terms: list[float]) -> float:
    lanes = [0.0] * LANES
    for index, term in enumerate(terms):
        lanes[index % LANES] += term
    total = 0.0
    for lane in lanes:
        total += lane
    return total


def pairs(length: int, dtype: str, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    reference = (rng.standard_normal(length) * 10.0 ** rng.integers(-6, 6, length)).astype(dtype)
    return (reference + rng.standard_normal(length)).astype(dtype), reference


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", LENGTHS)
def test_sums_are_those_of_the_lanes_in_order(length: int, dtype: str) -> None:
    left, right = pairs(length, dtype)
    counts, sums = summed(left, right)
    for chunk, (count, row) in enumerate(zip(counts, sums, strict=True)):
        chosen = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
        a, b = left[chosen].astype(np.float64), right[chosen].astype(np.float64)
        error = a - b
        assert count.tolist() == [len(a), 0]
        products = [error * error, a * a, b * b, a * b]
        assert row[:4].tolist() == [in_lanes(product.tolist()) for product in products]
        assert row[4] == np.abs(error).max()
        for found, product in zip(row, products, strict=False):
            assert found == pytest.approx(math.fsum(product), rel=1e-12, abs=1e-12 * math.fsum(np.abs(product)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_piece_of_whole_chunks_gives_the_sums_of_the_whole(dtype: str) -> None:
    left, right = pairs(5 * CHUNK + 17, dtype)
    counts, sums = summed(left, right)
    for cut in range(1, 6):
        first, last = (
            summed(side[0], side[1])
            for side in zip(np.split(left, [cut * CHUNK]), np.split(right, [cut * CHUNK]), strict=True)
        )
        assert np.concatenate([first[0], last[0]]).tobytes() == counts.tobytes()
        assert np.concatenate([first[1], last[1]]).tobytes() == sums.tobytes()


@given(
    st.lists(st.tuples(st.sampled_from(SPECIAL), st.sampled_from(SPECIAL)), min_size=1, max_size=40),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([0, LANES - 3, CHUNK - 20]),
)
def test_what_is_not_finite_is_counted_and_left_out(values: list[tuple[float, float]], dtype: str, before: int) -> None:
    left, right = (np.array([0.0] * before + list(side), dtype) for side in zip(*values, strict=True))
    counts, sums = summed(left, right)
    finite = [(float(a), float(b)) for a, b in zip(left, right, strict=True) if math.isfinite(a) and math.isfinite(b)]
    agreeing = sum((math.isnan(a) and math.isnan(b)) or (math.isinf(a) and a == b) for a, b in values)
    assert counts.sum(axis=0).tolist() == [len(finite), agreeing]
    assert np.isfinite(sums).all()
    assert sums[:, 0].sum() == pytest.approx(math.fsum((a - b) ** 2 for a, b in finite))
    assert sums[:, 3].sum() == pytest.approx(math.fsum(a * b for a, b in finite))
    assert sums[:, 4].max() == max((abs(a - b) for a, b in finite), default=0.0)
