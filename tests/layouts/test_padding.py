"""Every byte of a payload is a word's or canonical padding: each flipped padding bit is found, no other is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_convert.layouts import PaddingFault, Tensor, usual_layout
from tests.layouts.cases import random_words, reader, stored, tensor
from tests.oracle import layouts as oracle


def faults(of: Tensor, payload: bytes, begin: int = 0, end: int | None = None) -> tuple[PaddingFault, ...]:
    layout = usual_layout(of.format.name)
    end = layout.matrix(of.shape)[0] if end is None else end
    return layout.padding_faults(of, begin, end, reader(payload))


def flipped(payload: bytes, offset: int, bits: int) -> bytes:
    changed = bytearray(payload)
    changed[offset] ^= bits
    return bytes(changed)


PADDED = [
    *(tensor(format, 3, columns) for format in oracle.GROUPED for columns in (1, 65, 127, 130, 200)),
    tensor("q4_g64_fp16", 3, 128),
    tensor("fp8_e4m3fn_row_bf16", 3, 5),
    tensor("fp8_e4m3fn_row_bf16", 2, 128),
    tensor("fp8_e4m3fn_row_fp16", 3, 5),
    tensor("gguf_q4_0", 3, 32),
    tensor("bf16", 3, 5),
]


@pytest.mark.parametrize("of", PADDED, ids=lambda of: f"{of.format.name}-{list(of.shape)}")
@given(st.data())
@settings(max_examples=40)
def test_a_flipped_bit_is_padding_or_a_word(of: Tensor, data: st.DataObject) -> None:
    """A bit that changes no word that the oracle decodes is padding, and its byte is named."""
    payload = stored(of, random_words(of))
    offset = data.draw(st.integers(0, len(payload) - 1))
    changed = flipped(payload, offset, 1 << data.draw(st.integers(0, 7)))
    same = oracle.decode(of.format.name, of.shape, payload) == oracle.decode(of.format.name, of.shape, changed)
    assert faults(of, payload) == ()
    assert [fault.offset for fault in faults(of, changed)] == ([offset] if same else [])


@pytest.mark.parametrize(
    ("of", "offset", "bits", "message"),
    [
        (
            tensor("q2_g64_fp16", 2, 100),  # lanes 100 to 127 of row 1
            32 + 25,
            0x54,
            "padding in the base codes of rows [0, 2): 1 wrong bytes, the first 0x01 instead of 0x55",
        ),
        (
            tensor("q8_g32_fp16", 2, 65),  # a lane of the last logical group
            128 + 66,
            0x80,
            "padding in the base codes of rows [0, 2): 1 wrong bytes, the first 0x80 instead of 0x00",
        ),
        (
            tensor("q8_g32_fp16", 2, 65),  # the wholly physical group's scale
            256 + 8 + 7,
            0x3C,
            "padding in the scales of rows [0, 2): 1 wrong bytes, the first 0x3C instead of 0x00",
        ),
        (
            tensor("q5_g64_fp16", 2, 64),  # the wholly physical group's high bits
            256 + 16 + 15,
            0x01,
            "padding in the high bits of rows [0, 2): 1 wrong bytes, the first 0x01 instead of 0x00",
        ),
        (
            tensor("q4_g64_fp16", 1, 128),
            255,
            0x20,
            "padding between planes: 1 wrong bytes, the first 0x20 instead of 0x00",
        ),
        (
            tensor("q6_g64_fp16", 1, 128),
            256 + 32,
            0x40,
            "padding between planes: 1 wrong bytes, the first 0x40 instead of 0x00",
        ),
        (
            tensor("fp8_e4m3fn_row_bf16", 2, 5),
            10,
            0xFF,
            "padding between planes: 1 wrong bytes, the first 0xFF instead of 0x00",
        ),
    ],
)
def test_each_kind_of_padding(of: Tensor, offset: int, bits: int, message: str) -> None:
    payload = flipped(stored(of, random_words(of)), offset, bits)
    assert faults(of, payload) == (PaddingFault(offset, message),)


def test_half_a_byte_of_padding() -> None:
    """Row 0 ends in lane 64; its byte's high nibble is padding, the low one a code."""
    of = tensor("q4_g64_fp16", 1, 65)
    payload = flipped(stored(of, random_words(of)), 32, 0x70)
    (fault,) = faults(of, payload)
    low = payload[32] & 15
    assert fault.offset == 32
    assert fault.message.endswith(f"1 wrong bytes, the first 0x7{low:X} instead of 0x0{low:X}")


def test_faults_are_counted_and_the_first_of_each_plane_placed() -> None:
    of = tensor("q5_g64_fp16", 3, 64)
    payload = stored(of, random_words(of))
    for offset in (64 + 32, 64 + 63, 128 + 40, 256 + 2 * 16 + 8, 512 + 4 + 2):
        payload = flipped(payload, offset, 0x10)
    found = faults(of, payload)
    assert [fault.offset for fault in found] == [96, 256 + 40, 512 + 6]
    assert [int(count) for fault in found for count in re.findall(r": (\d+) wrong", fault.message)] == [3, 1, 1]


@pytest.mark.parametrize(
    ("begin", "end", "offsets"),
    [(0, 1, []), (1, 2, [104]), (0, 2, [104]), (2, 3, [192]), (1, 3, [104, 192]), (0, 3, [104, 192])],
)
def test_only_the_rows_asked_for(begin: int, end: int, offsets: list[int]) -> None:
    """Row 1 has a wrong byte at 104; the byte behind the codes, at 192, comes with the last row."""
    of = tensor("q4_g64_fp16", 3, 64)
    payload = flipped(flipped(stored(of, random_words(of)), 104, 1), 192, 1)
    assert [fault.offset for fault in faults(of, payload, begin, end)] == offsets


def test_whole_rows_are_not_read_for_padding() -> None:
    """Where K is a multiple of 128 only the bytes between planes can be wrong."""
    of = tensor("q4_g64_fp16", 9, 128)
    spans: list[tuple[int, int]] = []
    usual_layout("q4_g64_fp16").padding_faults(of, 0, 9, reader(stored(of, random_words(of)), spans))
    assert spans == [(9 * 64, 768 - 9 * 64)]


def test_nvfp4_has_no_padding() -> None:
    of = tensor("nvfp4", 256, 64, divisors=2)
    spans: list[tuple[int, int]] = []
    assert usual_layout("nvfp4").padding_faults(of, 0, 256, reader(stored(of, random_words(of)), spans)) == ()
    assert spans == []
