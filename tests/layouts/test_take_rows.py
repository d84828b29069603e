"""Any list of rows as an object of its own: the bytes are those of encoding the selected words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_convert.errors import WordsError
from ninfer_convert.layouts import Tensor, usual_layout
from ninfer_convert.values import Words
from tests.layouts.cases import random_words, reader, rows_of, stored, tensor
from tests.oracle import layouts as oracle

MATRICES = [*oracle.GROUPED, "fp8_e4m3fn_row_bf16", "fp8_e4m3fn_row_fp16"]


def take(of: Tensor, words: Words, rows: Sequence[int]) -> tuple[bytes, Tensor]:
    return usual_layout(of.format.name).take_rows(of, rows, reader(stored(of, words)))


@given(
    st.sampled_from(MATRICES),
    st.sampled_from([1, 63, 64, 65, 128, 130, 257]),
    st.integers(1, 8),
    st.lists(st.integers(0, 7), min_size=1, max_size=12),
)
@settings(max_examples=150)
def test_any_list_of_rows(format: str, columns: int, rows: int, picks: list[int]) -> None:
    of = tensor(format, rows, columns)
    words = random_words(of)
    chosen = [pick % rows for pick in picks]
    payload, taken = take(of, words, chosen)
    assert taken == tensor(format, len(chosen), columns)
    assert payload == stored(taken, rows_of(words, chosen))


@pytest.mark.parametrize("format", oracle.GGUF)
def test_rows_of_blocks(format: str) -> None:
    of = tensor(format, 4, 512)
    words = random_words(of)
    payload, taken = take(of, words, [3, 0, 0, 1, 2])
    assert payload == stored(taken, rows_of(words, [3, 0, 0, 1, 2]))


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 3)])
@pytest.mark.parametrize("format", oracle.DIRECT)
def test_rows_of_direct_words_are_slices_of_the_first_axis(format: str, shape: tuple[int, ...]) -> None:
    of = tensor(format, *shape)
    words = random_words(of)
    payload, taken = take(of, words, [4, 1, 2, 2])
    assert taken == tensor(format, 4, *shape[1:])
    assert payload == words.codes.reshape(shape)[[4, 1, 2, 2]].tobytes()


def test_any_sequence_of_rows() -> None:
    of = tensor("q5_g64_fp16", 6, 65)
    words = random_words(of)
    payload = stored(tensor("q5_g64_fp16", 3, 65), rows_of(words, slice(2, 5)))
    for rows in ([2, 3, 4], (2, 3, 4), range(2, 5)):
        assert take(of, words, rows)[0] == payload


def test_consecutive_rows_are_read_at_once() -> None:
    of = tensor("q4_g64_fp16", 9, 128)
    spans: list[tuple[int, int]] = []
    usual_layout("q4_g64_fp16").take_rows(of, [4, 5, 6, 2, 2], reader(stored(of, random_words(of)), spans))
    assert spans == [(256, 192), (128, 64), (128, 64), (768 + 16, 12), (768 + 8, 4), (768 + 8, 4)]


def test_illegal_words_are_moved_as_they_are() -> None:
    """No word is decoded: what verify would refuse, take_rows keeps."""
    for format, code in (("q8_g32_fp16", -128), ("t2_g128_fp16", -2)):
        of = tensor(format, 2, 128)
        words = random_words(of)
        assert words.scales is not None
        words.codes[1] = code
        words.scales[1] = 0xFC01
        payload, taken = take(of, words, [1])
        found = usual_layout(format).decode(taken, 0, 1, reader(payload))
        assert found.scales is not None
        assert (found.codes == code).all()
        assert (found.scales == 0xFC01).all()


@given(st.lists(st.integers(0, 255), min_size=128, max_size=128), st.sampled_from([64, 128]))
@settings(max_examples=10)
def test_nvfp4_rows_of_one_divisor(rows: list[int], columns: int) -> None:
    of = tensor("nvfp4", 256, columns)
    words = random_words(of)
    payload, taken = take(of, words, rows)
    assert taken == tensor("nvfp4", 128, columns)
    assert payload == stored(taken, rows_of(words, rows))


@pytest.mark.parametrize(
    ("blocks", "divisors"),
    [
        ([0, 1, 2, 3], 4),
        ([3, 2], 2),
        ([1], 1),
        ([1, 1, 1], 1),
        ([0, 0, 3, 3], 2),
        ([0, 0, 3, 3, 3, 3], 3),
        ([0, 3, 3], 3),
    ],
)
def test_nvfp4_rows_keep_their_divisors_in_the_fewest_shares(blocks: list[int], divisors: int) -> None:
    """Each block is one share of 128 rows with a divisor of its own, taken in reverse row order."""
    of = tensor("nvfp4", 512, 64, divisors=4)
    words = random_words(of)
    rows = [128 * block + 127 - row for block in blocks for row in range(128)]
    payload, taken = take(of, words, rows)
    assert taken == tensor("nvfp4", len(rows), 64, divisors=divisors)
    assert payload == stored(taken, rows_of(words, rows))


def test_nvfp4_divisors_of_equal_words_are_one() -> None:
    of = tensor("nvfp4", 256, 64, divisors=2)
    words = random_words(of)
    assert words.divisors is not None
    words.divisors[:] = 2.5
    rows = [*range(64, 128), *range(128, 192)]
    payload, taken = take(of, words, rows)
    assert taken == tensor("nvfp4", 128, 64)
    assert payload == stored(taken, rows_of(words, rows))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (range(100), r"the 100 rows taken make no object of block_scale.*N=100 \(rows\) must be a multiple of 128"),
        (range(64, 192), "each of 2 divisors covers 64 rows, which must be whole tiles of 128"),
        ([*range(128), 128, *range(127)], "each of 256 divisors covers 1 rows, which must be whole tiles of 128"),
        ([], r"there is no object of 0 rows"),
    ],
)
def test_nvfp4_rows_that_cannot_be_stored(rows: Sequence[int], message: str) -> None:
    of = tensor("nvfp4", 256, 64, divisors=2)
    with pytest.raises(WordsError, match=message):
        take(of, random_words(of), rows)


def test_no_rows() -> None:
    of = tensor("q4_g64_fp16", 2, 64)
    with pytest.raises(WordsError, match=r"no object of 0 rows of the shape \[2, 64\]"):
        take(of, random_words(of), [])
    with pytest.raises(WordsError, match=r"no object of 1 rows of the shape \[\]"):
        take(tensor("bf16"), Words(np.zeros(1, np.uint16)), [0])


@pytest.mark.parametrize("rows", [[0, 2], [-1]])
@pytest.mark.parametrize("of", [tensor("q4_g64_fp16", 2, 64), tensor("bf16", 2, 3)])
def test_rows_that_are_not_there(of: Tensor, rows: list[int]) -> None:
    with pytest.raises(IndexError, match=r"rows .* of 2"):
        take(of, random_words(of), rows)
