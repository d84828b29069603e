"""Block decoding is to the bit what ggml computes: the fixtures' values, ggml's C code, a slow oracle."""

from __future__ import annotations

from pathlib import Path

import libgguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file

from ninfer_convert.formats.stored import GGML_TYPES
from ninfer_convert.kernels.blocks import DECODERS, decode_blocks, decode_blocks_into, tables
from tests.flush import flushed_subnormals
from tests.oracle import blocks as oracle
from tests.oracle import gguf

GOLDEN = Path(__file__).parent.parent / "golden" / "gguf"
IN_LIBGGUF = sorted(set(DECODERS) - set(oracle.DECODERS))
HOSTILE_BYTES = np.array([0x00, 0x01, 0x3C, 0x7B, 0x7C, 0x7D, 0x7F, 0x80, 0x81, 0xBC, 0xFB, 0xFC, 0xFF], dtype=np.uint8)
"""Both halves of zero, subnormal, largest, infinite and NaN binary16 words, and the ends of every other field."""


def words(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    """The bits, with one word for every NaN."""
    return np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))


def random_rows(ggml: int, rows: int, seed: int) -> NDArray[np.uint8]:
    """Blocks of any bytes, then as many of bytes that make every special scale."""
    decoder = DECODERS[ggml]
    random = np.random.default_rng(seed)
    size = (rows, decoder.block_bytes * (2048 // decoder.block_values))
    return np.concatenate([random.integers(0, 256, size, dtype=np.uint8), random.choice(HOSTILE_BYTES, size)])


def test_every_block_type_has_a_kernel_of_its_geometry() -> None:
    blocks = {ggml: kind for ggml, kind in GGML_TYPES.items() if kind.kind == "block"}
    assert {ggml: (kind.block_bytes, kind.block_values) for ggml, kind in blocks.items()} == {
        ggml: (decoder.block_bytes, decoder.block_values) for ggml, decoder in DECODERS.items()
    }


def test_every_fixture_decodes_to_its_expected_values() -> None:
    expected = load_file(GOLDEN / "expected.safetensors")
    seen = set()
    for file in ("blocks.gguf", "extras.gguf", "q2_0.gguf"):
        for name, (ggml, _, rows) in gguf.read(GOLDEN / file).items():
            if ggml in DECODERS:
                seen.add(name)
                values = decode_blocks(ggml, rows)
                assert np.array_equal(values.view(np.uint32), expected[name].view(np.uint32)), name
    assert len(seen) >= 28
    assert seen <= expected.keys()


@pytest.mark.parametrize("ggml", IN_LIBGGUF, ids=lambda ggml: GGML_TYPES[ggml].name)
def test_any_block_decodes_as_in_ggmls_own_code(ggml: int) -> None:
    rows = random_rows(ggml, 64, seed=ggml)
    assert np.array_equal(words(decode_blocks(ggml, rows)), words(libgguf.dequantize_rows(rows, ggml)))


@pytest.mark.parametrize("ggml", oracle.DECODERS, ids=lambda ggml: GGML_TYPES[ggml].name)
def test_any_block_that_ggml_lacks_decodes_as_the_oracle_says(ggml: int) -> None:
    rows = random_rows(ggml, 6, seed=ggml)
    assert np.array_equal(words(decode_blocks(ggml, rows)), words(oracle.decode(ggml, rows)))


@pytest.mark.parametrize("ggml", [39, 40], ids=["MXFP4", "NVFP4"])
def test_every_scale_byte_decodes_as_in_ggmls_own_code(ggml: int) -> None:
    decoder = DECODERS[ggml]
    block = np.arange(decoder.block_bytes, dtype=np.uint8) * 17
    rows = np.tile(block, (256, 1))
    rows[:, : decoder.block_values // 16 if ggml == 40 else 1] = np.arange(256, dtype=np.uint8)[:, None]
    assert np.array_equal(words(decode_blocks(ggml, rows)), words(libgguf.dequantize_rows(rows, ggml)))


def test_mxfp4_holds_the_first_half_of_a_block_in_low_nibbles() -> None:
    block = np.array([[127, *(m | m << 4 for m in range(16))]], dtype=np.uint8)
    magnitudes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    expected = [*magnitudes, *(-value for value in magnitudes)]
    assert decode_blocks(39, block).tolist() == [[*expected, *expected]]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-1, 1), min_size=128, max_size=128), st.sampled_from([1.0, -0.75, 2.0**-24]))
def test_ptq1_0_gives_back_the_trits_that_were_packed(trits: list[int], d: float) -> None:
    block = np.frombuffer(oracle.pack_ptq1_0(trits, d), dtype=np.uint8)
    assert decode_blocks(143, block[None, :]).tolist() == [[trit * d for trit in trits]]


@settings(max_examples=50, deadline=None)
@given(
    ggml=st.sampled_from(sorted(DECODERS)),
    rows=st.integers(0, 5),
    blocks=st.integers(0, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_blocks_decode_alone_as_in_a_matrix(ggml: int, rows: int, blocks: int, seed: int) -> None:
    decoder = DECODERS[ggml]
    size = (rows, blocks * decoder.block_bytes)
    data = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    whole = decode_blocks(ggml, data)
    assert whole.dtype == np.float32
    assert whole.shape == (rows, blocks * decoder.block_values)
    for row in range(rows):
        for block in range(blocks):
            piece = data[row : row + 1, block * decoder.block_bytes : (block + 1) * decoder.block_bytes]
            values = whole[row, block * decoder.block_values : (block + 1) * decoder.block_values]
            assert np.array_equal(words(decode_blocks(ggml, piece)[0]), words(values))


def test_blocks_may_lie_in_memory_that_is_read_only_or_scattered() -> None:
    rows = random_rows(8, 3, seed=0)
    values = words(decode_blocks(8, rows))
    assert np.array_equal(words(decode_blocks(8, np.frombuffer(rows.tobytes(), np.uint8).reshape(rows.shape))), values)
    assert np.array_equal(words(decode_blocks(8, rows[::-1])), values[::-1])


@pytest.mark.parametrize("ggml", sorted(DECODERS), ids=lambda ggml: GGML_TYPES[ggml].name)
def test_a_thread_that_flushes_subnormals_decodes_alike(ggml: int) -> None:
    rows = random_rows(ggml, 2, seed=ggml)
    expected = words(decode_blocks(ggml, rows))
    for table in (tables.mxfp4_books, tables.nvfp4_books):
        table.cache_clear()
    with flushed_subnormals():
        found = decode_blocks(ggml, rows)
    assert np.array_equal(words(found), expected)


def test_values_can_be_decoded_into_an_array_at_hand() -> None:
    rows = random_rows(12, 3, seed=0)
    out = np.full((6, 2048), np.float32(7))
    decode_blocks_into(12, rows, out)
    assert np.array_equal(words(out), words(decode_blocks(12, rows)))


def test_arrays_that_do_not_fit_are_refused() -> None:
    rows = np.zeros((2, 36), dtype=np.uint8)
    with pytest.raises(ValueError, match="no decoder"):
        decode_blocks(4, rows)
    with pytest.raises(ValueError, match="no whole number of blocks of 34 bytes"):
        decode_blocks(8, rows)
    with pytest.raises(ValueError, match=r"contiguous float32 \(2, 64\)"):
        decode_blocks_into(2, rows, np.zeros((2, 32), dtype=np.float32))
    with pytest.raises(ValueError, match="contiguous float32"):
        decode_blocks_into(2, rows, np.zeros((2, 64)))
    with pytest.raises(ValueError, match="contiguous float32"):
        decode_blocks_into(2, rows, np.zeros((64, 2), dtype=np.float32).T)
