"""Decoded values are binary32's nearest to the exact ones, whatever the words and the thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ninfer_convert.formats import get_format
from ninfer_convert.kernels.blocks import decode_blocks
from ninfer_convert.values import Words
from tests.flush import flushed_subnormals
from tests.oracle import formats as oracle
from tests.oracle.scalars import F16, F32

Array = NDArray[Any]

COLUMNS = st.sampled_from([1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 130])
SEEDS = st.integers(0, 2**32)


def decoded(format: str, words: Words) -> list[list[int]]:
    """Binary32 words, the same whether the thread flushes subnormals or not."""
    values = get_format(format).decode(words)
    assert values.dtype == np.float32
    with flushed_subnormals():
        flushed = get_format(format).decode(words)
    assert np.array_equal(values.view(np.uint32), flushed.view(np.uint32))
    found: list[list[int]] = values.view(np.uint32).tolist()
    return found


def signed_scales(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Finite binary16 words of either sign, many of them zero or subnormal."""
    words = rng.integers(0, F16.largest + 1, shape, np.uint16)
    words = np.where(rng.integers(0, 4, shape) == 0, words % np.uint16(4), words)
    signs: Array = rng.integers(0, 2, shape, np.uint16) << np.uint16(15)
    return words | signs


@pytest.mark.parametrize("format", oracle.GROUPED)
@settings(max_examples=30)
@given(columns=COLUMNS, seed=SEEDS)
def test_grouped(format: str, columns: int, seed: int) -> None:
    group, qmin, qmax = oracle.GROUPED[format]
    rng = np.random.default_rng(seed)
    codes = rng.integers(qmin, qmax, (2, columns), np.int8, endpoint=True)
    scales = signed_scales(rng, (2, -(-columns // group)))
    wanted = oracle.decode_grouped(format, codes.tolist(), scales.tolist())
    assert decoded(format, Words(codes, scales)) == wanted


@pytest.mark.parametrize("format", oracle.ROW_SCALED)
@settings(max_examples=30)
@given(columns=COLUMNS, seed=SEEDS)
def test_row_scaled(format: str, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 0x7E, (4, columns), np.uint8, endpoint=True) | rng.choice(
        np.array([0, 0x80], np.uint8), (4, columns)
    )
    largest = oracle.ROW_SCALED[format].largest
    scales = np.array([rng.integers(0, largest + 1), rng.integers(0, 0x300), 1, largest], np.uint16)
    wanted = oracle.decode_row_scaled(format, codes.tolist(), scales.tolist())
    assert decoded(format, Words(codes, scales)) == wanted


@settings(max_examples=50)
@given(groups=st.integers(1, 4), seed=SEEDS, divisors=st.lists(st.integers(1, F32.largest), min_size=3, max_size=3))
def test_nvfp4(groups: int, seed: int, divisors: list[int]) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 16, (6, groups * 16), np.uint8)
    scales = rng.integers(0, 0x7E, (6, groups), np.uint8, endpoint=True)
    each = np.repeat(np.array(divisors, np.uint32), 2)
    wanted = oracle.decode_nvfp4(codes.tolist(), scales.tolist(), each.tolist())
    assert decoded("nvfp4", Words(codes, scales, each.view(np.float32))) == wanted


def test_nvfp4_divides_once_by_each_rows_own_divisor() -> None:
    codes = np.full((3, 16), 7, np.uint8)
    scales = np.full((3, 1), 0x38, np.uint8)
    values = get_format("nvfp4").decode(Words(codes, scales, np.array([3.0, 7.0, 3.0], np.float32)))
    assert values[:, 0].tolist() == [2.0, float(np.float32(6) / np.float32(7)), 2.0]


def test_direct() -> None:
    words = np.arange(65536, dtype=np.uint16)
    with flushed_subnormals():
        values = get_format("bf16").decode(Words(words))
    assert values.dtype == np.float32
    assert np.array_equal(values.view(np.uint32), words.astype(np.uint32) << 16)
    patterns = np.array([0, 1, 0x7F800001, 0xFFFFFFFF], np.uint32)
    assert get_format("fp32").decode(Words(patterns)).view(np.uint32).tolist() == patterns.tolist()
    integers = np.array([-(2**31), -1, 2**31 - 1], np.int32)
    kept = get_format("int32").decode(Words(integers))
    assert kept.dtype == np.int32
    assert kept.tolist() == integers.tolist()


def test_gguf_blocks_decode_by_their_type() -> None:
    blocks = np.random.default_rng(0).integers(0, 256, (3, 36), np.uint8)
    blocks[:, 1::18] = 0x3C
    values = get_format("gguf_q4_0").decode(Words(blocks))
    assert values.shape == (3, 64)
    assert np.array_equal(values, decode_blocks(2, blocks))
