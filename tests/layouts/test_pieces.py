"""Encoding and decoding by rows: any cut gives the same bytes, any range its own words, and only those are read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_convert.errors import WordsError
from ninfer_convert.layouts import Tensor, usual_layout
from ninfer_convert.values import Words
from tests.layouts.cases import assert_same, content, random_words, reader, rows_of, stored, tensor
from tests.oracle import layouts as oracle

COLUMNS = [1, 2, 7, 31, 32, 33, 63, 64, 65, 127, 128, 129, 130, 191, 192, 256, 257]
ANY_K = [*oracle.GROUPED, "fp8_e4m3fn_row_bf16", "fp8_e4m3fn_row_fp16"]

direct = st.builds(
    lambda format, shape: tensor(format, *shape),
    st.sampled_from(list(oracle.DIRECT)),
    st.lists(st.integers(1, 4), max_size=4),
)
any_k = st.builds(tensor, st.sampled_from(ANY_K), st.integers(1, 9), st.sampled_from(COLUMNS))
gguf = st.builds(
    lambda format, rows, blocks: tensor(format, rows, blocks * oracle.GGUF[format][0]),
    st.sampled_from(list(oracle.GGUF)),
    st.integers(1, 5),
    st.integers(1, 3),
)
nvfp4 = st.builds(
    lambda shares, tiles, columns: tensor("nvfp4", 128 * shares * tiles, 64 * columns, divisors=shares),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 2),
)
quick = direct | any_k | gguf
tensors = quick | nvfp4
seeds = st.integers(0, 2**32 - 1)


@st.composite
def cut(draw: st.DrawFn) -> tuple[Tensor, list[int]]:
    of = draw(tensors)
    layout = usual_layout(of.format.name)
    places = range(0, layout.matrix(of.shape)[0], layout.row_quantum)[1:]
    return of, sorted(draw(st.sets(st.sampled_from(places)))) if places else []


@given(quick, seeds)
@settings(max_examples=150)
def test_payload_is_the_oracles_and_decodes_to_the_words(of: Tensor, seed: int) -> None:
    words = random_words(of, seed)
    payload = stored(of, words)
    assert payload == oracle.encode(of.format.name, of.shape, content(words))
    assert oracle.decode(of.format.name, of.shape, payload) == content(words)
    layout = usual_layout(of.format.name)
    assert_same(layout.decode(of, 0, layout.matrix(of.shape)[0], reader(payload)), words)


@given(nvfp4, seeds)
@settings(max_examples=8)
def test_nvfp4_payload_is_the_oracles_and_decodes_to_the_words(of: Tensor, seed: int) -> None:
    words = random_words(of, seed)
    payload = stored(of, words)
    assert payload == oracle.encode("nvfp4", of.shape, content(words, of.divisors))
    assert oracle.decode("nvfp4", of.shape, payload, of.divisors) == content(words, of.divisors)
    assert_same(usual_layout("nvfp4").decode(of, 0, of.shape[0], reader(payload)), words)


@pytest.mark.parametrize("format", ANY_K)
@pytest.mark.parametrize("columns", [1, 63, 64, 65, 127, 128, 129, 130])
@pytest.mark.parametrize("rows", [1, 3])
def test_small_shapes(format: str, columns: int, rows: int) -> None:
    of = tensor(format, rows, columns)
    words = random_words(of, seed=columns)
    payload = stored(of, words)
    assert payload == oracle.encode(format, of.shape, content(words))
    assert_same(usual_layout(format).decode(of, 0, rows, reader(payload)), words)


@given(cut(), seeds)
def test_any_cut_gives_the_same_bytes_each_once(case: tuple[Tensor, list[int]], seed: int) -> None:
    of, cuts = case
    words = random_words(of, seed)
    assert stored(of, words, cuts) == stored(of, words)


@given(tensors, seeds, st.data())
def test_any_rows_decode_alone(of: Tensor, seed: int, data: st.DataObject) -> None:
    layout = usual_layout(of.format.name)
    rows, _ = layout.matrix(of.shape)
    begin = data.draw(st.integers(0, rows - 1))
    end = data.draw(st.integers(begin + 1, rows))
    words = random_words(of, seed)
    assert_same(layout.decode(of, begin, end, reader(stored(of, words))), rows_of(words, slice(begin, end)))


@pytest.mark.parametrize(
    ("of", "begin", "end", "expected"),
    [
        (tensor("bf16", 5, 4), 3, 9, [(6, 12)]),
        (tensor("q5_g64_fp16", 9, 130), 2, 4, [(256, 256), (1280 + 64, 64), (1280 + 512 + 16, 16)]),
        (tensor("fp8_e4m3fn_row_bf16", 5, 10), 1, 3, [(10, 20), (258, 4)]),
        (tensor("fp8_e4m3fn_row_fp16", 5, 10), 1, 3, [(12, 24)]),
        (tensor("gguf_q8_0", 4, 64), 2, 3, [(136, 68)]),
        (tensor("nvfp4", 512, 64, divisors=2), 130, 250, [(130 * 32, 120 * 32), (16384 + 512, 512), (18432, 4)]),
        (tensor("nvfp4", 512, 64, divisors=2), 255, 257, [(255 * 32, 64), (16384 + 512, 1024), (18432, 8)]),
    ],
)
def test_only_the_rows_bytes_are_read(of: Tensor, begin: int, end: int, expected: list[tuple[int, int]]) -> None:
    spans: list[tuple[int, int]] = []
    usual_layout(of.format.name).decode(of, begin, end, reader(stored(of, random_words(of)), spans))
    assert spans == expected


def test_arrays_of_any_memory_order_give_the_same_bytes() -> None:
    of = tensor("q6_g64_fp16", 5, 128)
    words = random_words(of)
    assert words.scales is not None
    shifted = np.frombuffer(b"\0" + words.codes.tobytes(), np.int8)[1:].reshape(5, 128)
    for codes in (np.asfortranarray(words.codes), shifted, np.repeat(words.codes, 2, axis=1)[:, ::2]):
        assert stored(of, Words(codes, np.asfortranarray(words.scales))) == stored(of, words)


def test_direct_bits_are_kept() -> None:
    special = [0x0000, 0x8000, 0x0001, 0x7F80, 0xFF80, 0x7F81, 0xFFC1, 0x7FFF]
    of = tensor("bf16", 8)
    assert stored(of, Words(np.array(special, np.uint16))) == b"".join(w.to_bytes(2, "little") for w in special)
    nan = np.array([0x7FA00001, 0x80000000, 0xFFFFFFFF], np.uint32)
    assert stored(tensor("fp32", 3), Words(nan)) == bytes.fromhex("0100a07f00000080ffffffff")


Q4 = random_words(tensor("q4_g64_fp16", 2, 130))
FP8 = random_words(tensor("fp8_e4m3fn_row_bf16", 2, 4))
NVFP4 = random_words(tensor("nvfp4", 128, 64))


@pytest.mark.parametrize(
    ("of", "words", "message"),
    [
        (
            tensor("bf16", 2),
            Words(np.zeros(2, np.float32)),
            r"codes of bf16 must be uint16 \[2\], not float32 \[2\]: layouts never convert",
        ),
        (tensor("int32", 2), Words(np.zeros(2, np.int64)), r"must be int32 \[2\], not int64 \[2\]"),
        (tensor("fp32", 2), Words(np.zeros(2, np.float32)), r"must be uint32 \[2\], not float32 \[2\]"),
        (tensor("fp32", 2), Words(np.zeros(2, ">u4")), r"must be uint32 \[2\], not >u4 \[2\]"),
        (tensor("bf16", 1, 2), Words(np.zeros((1, 2), np.uint16)), r"must be uint16 \[1\], not uint16 \[1, 2\]"),
        (tensor("bf16"), Words(np.array(0, np.uint16)), r"must be uint16 \[0\], not uint16 \[\]"),
        (tensor("bf16", 2), Words(np.zeros(2, np.uint16), np.zeros(2, np.uint16)), "scales of bf16 must be absent"),
        (tensor("q4_g64_fp16", 2, 130), Words(Q4.codes), r"scales of q4_g64_fp16 must be uint16 \[2, 3\], not absent"),
        (tensor("q4_g64_fp16", 2, 130), Words(Q4.codes.view(np.uint8), Q4.scales), r"int8 \[2, 130\], not uint8"),
        (tensor("q4_g64_fp16", 2, 131), Q4, r"must be int8 \[2, 131\], not int8 \[2, 130\]"),
        (tensor("q4_g64_fp16", 2, 130), Words(Q4.codes, np.zeros((2, 4), np.uint16)), r"not uint16 \[2, 4\]"),
        (tensor("q4_g64_fp16", 1, 130), Q4, r"rows \[0, 2\) are no piece of 1 rows"),
        (tensor("q4_g64_fp16", 1, 130), rows_of(Q4, slice(0, 0)), r"rows \[0, 0\) are no piece of 1 rows"),
        (tensor("fp8_e4m3fn_row_bf16", 2, 4), Words(FP8.codes, np.zeros(2, np.float16)), r"uint16 \[2\], not float16"),
        (
            tensor("fp8_e4m3fn_row_fp16", 2, 4),
            Words(FP8.codes, np.zeros(3, np.uint16)),
            r"uint16 \[2\], not uint16 \[3\]",
        ),
        (tensor("gguf_q8_0", 2, 32), Words(np.zeros((2, 32), np.uint8)), r"uint8 \[2, 34\], not uint8 \[2, 32\]"),
        (tensor("nvfp4", 128, 64), Words(NVFP4.codes, NVFP4.scales), r"divisors of nvfp4 must be float32 \[128\]"),
        (tensor("nvfp4", 256, 64), rows_of(NVFP4, slice(0, 100)), r"rows \[0, 100\).*cut at multiples of 128"),
    ],
)
def test_words_of_another_kind_are_refused(of: Tensor, words: Words, message: str) -> None:
    with pytest.raises(WordsError, match=message):
        usual_layout(of.format.name).encode(of, 0, words)


@pytest.mark.parametrize(("begin", "end"), [(64, 128), (64, 192), (0, 64)])
def test_a_piece_begins_and_ends_at_the_quantum(begin: int, end: int) -> None:
    piece = rows_of(NVFP4, slice(0, end - begin))
    with pytest.raises(WordsError, match=rf"rows \[{begin}, {end}\).*multiples of 128"):
        usual_layout("nvfp4").encode(tensor("nvfp4", 256, 64), begin, piece)


def test_bytes_between_planes_come_with_the_last_row() -> None:
    of = tensor("fp8_e4m3fn_row_bf16", 2, 4)
    first, last = (usual_layout(of.format.name).encode(of, row, rows_of(FP8, slice(row, row + 1))) for row in (0, 1))
    assert [(segment.offset, segment.data.size) for segment in first] == [(0, 4), (256, 2)]
    assert [(segment.offset, segment.data.size) for segment in last] == [(4, 4), (258, 2), (8, 248)]


def test_rows_of_one_share_have_one_divisor_word() -> None:
    of = tensor("nvfp4", 512, 64, divisors=2)
    words = random_words(of)
    assert words.divisors is not None
    words.divisors[300] = 2.5
    layout = usual_layout("nvfp4")
    layout.encode(of, 0, rows_of(words, slice(0, 256)))
    with pytest.raises(WordsError, match=r"rows \[256, 512\) share one .* words 0x40000000 and 0x40200000"):
        layout.encode(of, 256, rows_of(words, slice(256, 512)))
    with pytest.raises(WordsError, match=r"rows \[256, 512\)"):
        layout.encode(of, 256, rows_of(words, slice(256, 384)))


@pytest.mark.parametrize(("first", "other", "same"), [(0x00000000, 0x80000000, False), (0x7FC00001, 0x7FC00001, True)])
def test_divisors_are_compared_as_words(first: int, other: int, same: bool) -> None:
    of = tensor("nvfp4", 128, 64)
    bits = np.array([first] * 64 + [other] * 64, np.uint32)
    words = Words(NVFP4.codes, NVFP4.scales, bits.view(np.float32))
    if same:
        assert stored(of, words)[-4:] == first.to_bytes(4, "little")
    else:
        with pytest.raises(WordsError, match="0x00000000 and 0x80000000"):
            stored(of, words)
