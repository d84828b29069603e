"""Bit planes against a bit at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ninfer_convert.kernels.packing import differences, pack, unpack

WIDTHS = [1, 2, 4, 8]


def bits_of(lanes: list[int], width: int, shift: int, offset: int) -> list[int]:
    fields = [((lane >> shift) + offset) % 2**width for lane in lanes]
    return [field >> bit & 1 for field in fields for bit in range(width)]


def dense(bits: list[int]) -> bytes:
    return bytes(sum(bit << i for i, bit in enumerate(bits[at : at + 8])) for at in range(0, len(bits), 8))


lanes = st.lists(st.integers(0, 255), min_size=8, max_size=64).map(lambda values: values[: len(values) // 8 * 8])


@given(lanes, st.sampled_from(WIDTHS), st.integers(0, 7), st.integers(0, 1))
def test_pack(values: list[int], width: int, shift: int, offset: int) -> None:
    packed = pack(np.array(values, np.uint8), width, min(shift, 8 - width), offset)
    assert packed.dtype == np.uint8
    assert packed.tobytes() == dense(bits_of(values, width, min(shift, 8 - width), offset))


@given(lanes, st.sampled_from([(1,), (2,), (4,), (8,), (4, 1), (4, 2), (4, 2, 1)]))
def test_unpack_undoes_pack(values: list[int], widths: tuple[int, ...]) -> None:
    array = np.array(values, np.uint8)
    planes = [pack(array, width, sum(widths[:i])) for i, width in enumerate(widths)]
    assert unpack(planes, widths).tolist() == [value % 2 ** sum(widths) for value in values]


@pytest.mark.parametrize("widths", [(1,), (2,), (4,), (4, 1), (4, 2), (8,)])
def test_signs(widths: tuple[int, ...]) -> None:
    bits = sum(widths)
    codes = np.resize(np.arange(-(2 ** (bits - 1)), 2 ** (bits - 1)), 256).astype(np.int8)
    planes = [pack(codes, width, sum(widths[:i])) for i, width in enumerate(widths)]
    sign = 2 ** (bits - 1)
    assert unpack(planes, widths, flip=sign, drop=sign).view(np.int8).tolist() == codes.tolist()


def test_offset() -> None:
    codes = np.array([-1, 0, 1, 2] * 2, np.int8)
    packed = pack(codes, 2, offset=1)
    assert packed.tolist() == [0b11100100] * 2
    assert unpack([packed], [2], drop=1).view(np.int8).tolist() == codes.tolist()


@pytest.mark.parametrize("width", WIDTHS)
def test_memory_of_any_kind(width: int) -> None:
    """Words are read at odd addresses and from memory that may not be written."""

    def odd(array: NDArray[Any]) -> NDArray[np.uint8]:
        return np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:]

    values = np.arange(64, dtype=np.uint8)
    packed = pack(values, width)
    assert pack(odd(values), width).tobytes() == packed.tobytes()
    assert unpack([odd(packed)], [width]).tobytes() == unpack([packed], [width]).tobytes()


@given(
    st.integers(1, 5), st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255)), min_size=1, max_size=40), st.data()
)
def test_differences(count: int, row: list[tuple[int, int]], data: st.DataObject) -> None:
    mask, expected = (np.array(column, np.uint8) for column in zip(*row, strict=True))
    flips = data.draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, len(row) - 1), st.integers(0, 7))))
    rows = np.tile(expected, (count, 1))
    for at, byte, bit in flips:
        rows[at, byte] ^= 1 << bit
    wrong = [i for i in range(rows.size) if (int(rows.flat[i]) ^ row[i % len(row)][1]) & row[i % len(row)][0]]
    assert differences(rows, mask, expected) == (len(wrong), wrong[0] if wrong else -1)
