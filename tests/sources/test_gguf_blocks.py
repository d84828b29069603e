"""Values and words of GGUF block tensors, held to the fixtures and to the blocks' bytes (encoded-sources.md 7, 10)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file

from ninfer_convert.errors import SourceError
from ninfer_convert.formats import get_format
from ninfer_convert.formats.stored import GGML_TYPES
from ninfer_convert.sources.gguf import open_gguf
from ninfer_convert.sources.gguf_blocks import BlockTensor
from tests.oracle import gguf
from tests.oracle.blocks import pack_ptq1_0
from tests.oracle.gguf import File, Tensor

if TYPE_CHECKING:
    from ninfer_convert.values import Words

GOLDEN = Path(__file__).parent.parent / "golden" / "gguf"
EXPECTED = load_file(GOLDEN / "expected.safetensors")
FIXTURES = {
    name: tensor
    for file in ("blocks.gguf", "extras.gguf", "q2_0.gguf")
    for name, tensor in open_gguf(GOLDEN / file, file).tensors.items()
    if isinstance(tensor, BlockTensor)
}
BYTES = {
    name: rows
    for file in ("blocks.gguf", "extras.gguf", "q2_0.gguf")
    for name, (_, _, rows) in gguf.read(GOLDEN / file).items()
}
REACHED = {
    "Q8_0": ("gguf_q8_0", "q8_g32_fp16"),
    "Q2_0": ("gguf_q2_0", "q2_g64_fp16", "t2_g128_fp16"),
    "PQ2_0": ("t2_g128_fp16",),
    "PTQ1_0": ("t2_g128_fp16",),
    "TQ1_0": ("t2_g128_fp16",),
    "TQ2_0": ("t2_g128_fp16",),
    "Q1_0": ("t2_g128_fp16",),
    "NVFP4": ("nvfp4",),
}


def block_tensor(tmp_path: Path, ggml: int, blocks: NDArray[np.uint8]) -> BlockTensor:
    """A tensor called t of blocks [rows, blocks of a row, block bytes]."""
    shape = (blocks.shape[0], blocks.shape[1] * GGML_TYPES[ggml].block_values)
    path = tmp_path / "model.gguf"
    path.write_bytes(File([Tensor("t", ggml, shape, blocks.tobytes())]).build())
    found = open_gguf(path, "model.gguf").tensors["t"]
    assert isinstance(found, BlockTensor)
    return found


def refused(tensor: BlockTensor, format: str, begin: int = 0) -> str:
    with pytest.raises(SourceError) as caught:
        tensor.words(format, begin, tensor.shape[0])
    (problem,) = caught.value.problems
    assert problem.tensor == tensor.name
    return problem.message


def arrays(words: Words) -> tuple[NDArray[np.int8], NDArray[np.uint16]]:
    assert words.scales is not None
    return words.codes, words.scales


def scale_words(blocks: NDArray[np.uint8], at: int) -> NDArray[np.uint16]:
    return np.array(blocks[:, :, at] + blocks[:, :, at + 1] * np.uint16(256), dtype=np.uint16)


def test_the_fixtures_are_all_there() -> None:
    assert len(FIXTURES) == 28
    assert {tensor.stored for tensor in FIXTURES.values()} == {
        kind.name for kind in GGML_TYPES.values() if kind.kind == "block" and kind.name not in ("PQ2_0", "PTQ1_0")
    }


@pytest.mark.parametrize("name", FIXTURES)
def test_values_are_the_expected_ones(name: str) -> None:
    tensor = FIXTURES[name]
    values = tensor.values(0, EXPECTED[name].size)
    assert (values.stored, str(values.array.dtype)) == ("F32", "float32")
    assert np.array_equal(values.array.view(np.uint32), EXPECTED[name].reshape(-1).view(np.uint32))


@given(name=st.sampled_from(sorted(FIXTURES)), data=st.data())
def test_any_run_of_values_can_be_read(name: str, data: st.DataObject) -> None:
    expected = EXPECTED[name].reshape(-1)
    begin = data.draw(st.integers(0, expected.size))
    end = data.draw(st.integers(begin, expected.size))
    values = FIXTURES[name].values(begin, end).array
    assert np.array_equal(values.view(np.uint32), expected[begin:end].view(np.uint32))


@pytest.mark.parametrize(("begin", "end"), [(-1, 5), (5, 4), (0, 3073), (3073, 3073)])
def test_values_outside_are_an_index_error(begin: int, end: int) -> None:
    with pytest.raises(IndexError):
        FIXTURES["blk.0.q4_k.weight"].values(begin, end)


@pytest.mark.parametrize("name", FIXTURES)
def test_which_formats_are_reached(name: str) -> None:
    tensor = FIXTURES[name]
    own = f"gguf_{tensor.stored.lower()}"
    expected = REACHED.get(tensor.stored, (own,) if tensor.stored not in ("Q4_1", "Q5_1", "MXFP4") else ())
    assert tensor.exact == expected
    with pytest.raises(SourceError, match=f"its {tensor.stored} blocks hold no words of q4_g64_fp16"):
        tensor.words("q4_g64_fp16", 0, 1)


@pytest.mark.parametrize(
    "name", [name for name, tensor in FIXTURES.items() if tensor.exact[:1] == (f"gguf_{tensor.stored.lower()}",)]
)
def test_blocks_are_copied_byte_for_byte(name: str) -> None:
    tensor = FIXTURES[name]
    words = tensor.words(tensor.exact[0], 1, 5)
    assert (words.scales, words.divisors) == (None, None)
    assert np.array_equal(words.codes, BYTES[name][1:5])


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("blk.0.q8_0.weight", "q8_g32_fp16"),
        ("blk.0.q2_0.weight", "q2_g64_fp16"),
        ("blk.0.q2_0_allcodes.weight", "q2_g64_fp16"),
        ("blk.0.q2_0_k192.weight", "q2_g64_fp16"),
        ("blk.0.tq1_0.weight", "t2_g128_fp16"),
        ("blk.0.tq2_0.weight", "t2_g128_fp16"),
        ("blk.0.nvfp4.weight", "nvfp4"),
    ],
)
def test_imported_words_mean_the_same_values(name: str, format: str) -> None:
    tensor = FIXTURES[name]
    words = tensor.words(format, 0, 6)
    assert get_format(format).faults(words).total == 0
    decoded = get_format(format).decode(words)
    if format == "nvfp4":
        assert np.array_equal(decoded, EXPECTED[name])
    else:
        assert np.array_equal(decoded.view(np.uint32), EXPECTED[name].view(np.uint32))


def test_q8_0_words_are_moved_between_planes() -> None:
    codes, scales = arrays(FIXTURES["blk.0.q8_0.weight"].words("q8_g32_fp16", 2, 6))
    blocks = BYTES["blk.0.q8_0.weight"][2:].reshape(4, 16, 34)
    assert np.array_equal(codes.reshape(4, 16, 32), blocks[:, :, 2:].view(np.int8))
    assert np.array_equal(scales, scale_words(blocks, 0))


@pytest.mark.parametrize("name", ["blk.0.q2_0.weight", "blk.0.q2_0_allcodes.weight", "blk.0.q2_0_k192.weight"])
def test_q2_0_words_are_moved_between_planes(name: str) -> None:
    codes, scales = arrays(FIXTURES[name].words("q2_g64_fp16", 0, 6))
    blocks = BYTES[name].reshape(6, -1, 18)
    fours = (codes + 1).astype(np.uint8).reshape(6, -1, 16, 4)
    assert np.array_equal(
        fours[..., 0] | fours[..., 1] << 2 | fours[..., 2] << 4 | fours[..., 3] << 6, blocks[:, :, 2:]
    )
    assert np.array_equal(scales, scale_words(blocks, 0))


@pytest.mark.parametrize(("name", "at"), [("blk.0.tq1_0.weight", 52), ("blk.0.tq2_0.weight", 64)])
def test_a_ternary_block_of_256_gives_its_scale_to_two_groups(name: str, at: int) -> None:
    codes, scales = arrays(FIXTURES[name].words("t2_g128_fp16", 0, 6))
    blocks = BYTES[name].reshape(6, 2, -1)
    assert set(np.unique(codes)) <= {-1, 0, 1}
    assert np.array_equal(scales, np.repeat(scale_words(blocks, at), 2, axis=1))


def test_nvfp4_nibbles_are_paired_anew() -> None:
    words = FIXTURES["blk.0.nvfp4.weight"].words("nvfp4", 0, 6)
    codes, scales = arrays(words)
    blocks = BYTES["blk.0.nvfp4.weight"].reshape(6, 8, 36)
    assert words.divisors is not None
    assert words.divisors.tolist() == [1.0] * 6
    assert np.array_equal(scales.reshape(6, 8, 4), blocks[:, :, :4])
    groups = codes.reshape(6, 8, 4, 16)
    packed = blocks[:, :, 4:].reshape(6, 8, 4, 8)
    for m in range(8):
        assert np.array_equal(groups[..., m], packed[..., m] & 15)
        assert np.array_equal(groups[..., 8 + m], packed[..., m] >> 4)


def test_q1_0_has_no_zero_code(tmp_path: Path) -> None:
    blocks = np.random.default_rng(1).integers(0, 256, (3, 2, 18), dtype=np.uint8)
    blocks[:, :, :2] = (0x00, 0xBC)
    tensor = block_tensor(tmp_path, 41, blocks)
    codes, scales = arrays(tensor.words("t2_g128_fp16", 0, 3))
    bits = np.unpackbits(blocks[:, :, 2:], axis=2, bitorder="little").reshape(3, 256)
    assert np.array_equal(codes, 2 * bits.astype(np.int8) - 1)
    assert np.array_equal(scales, np.full((3, 2), 0xBC00))


def test_ptq1_0_and_pq2_0_are_imported(tmp_path: Path) -> None:
    trits = np.random.default_rng(2).integers(-1, 2, (2, 3, 128))
    packed = np.array([[list(pack_ptq1_0(block, 0.5)) for block in row] for row in trits.tolist()], dtype=np.uint8)
    codes, scales = arrays(block_tensor(tmp_path, 143, packed).words("t2_g128_fp16", 0, 2))
    assert np.array_equal(codes.reshape(2, 3, 128), trits)
    assert np.array_equal(scales, np.full((2, 3), 0x3800))

    fours = (trits + 1).astype(np.uint8).reshape(2, 3, 32, 4)
    coded = fours[..., 0] | fours[..., 1] << 2 | fours[..., 2] << 4 | fours[..., 3] << 6
    scale = np.broadcast_to(np.array([0x00, 0xB8], dtype=np.uint8), (2, 3, 2))
    codes, scales = arrays(
        block_tensor(tmp_path, 142, np.concatenate([scale, coded], axis=2)).words("t2_g128_fp16", 0, 2)
    )
    assert np.array_equal(codes.reshape(2, 3, 128), trits)
    assert np.array_equal(scales, np.full((2, 3), 0xB800))


def q2_0_blocks(*blocks: tuple[int, int]) -> NDArray[np.uint8]:
    """One row of Q2_0 blocks of (scale word, code byte)."""
    return np.array([[[word & 255, word >> 8, *[byte] * 16] for word, byte in blocks]], dtype=np.uint8)


ZEROS, ONES = 0x55, 0xAA


@pytest.mark.parametrize(
    ("blocks", "scales"),
    [
        ([(0x3C00, ONES), (0x3C00, ONES)], [0x3C00]),
        ([(0x3C00, ONES), (0xBC00, ZEROS)], [0x3C00]),
        ([(0x0000, ZEROS), (0x3C00, ONES)], [0x3C00]),
        ([(0x3C00, ONES), (0x3C00, ONES), (0x4000, ONES)], [0x3C00, 0x4000]),
        ([(0x3C00, ONES)], [0x3C00]),
        ([(0x0000, ZEROS), (0x0000, ZEROS)], [0x0000]),
    ],
)
def test_two_q2_0_blocks_may_share_a_ternary_group(
    tmp_path: Path, blocks: list[tuple[int, int]], scales: list[int]
) -> None:
    tensor = block_tensor(tmp_path, 42, q2_0_blocks(*blocks))
    words = tensor.words("t2_g128_fp16", 0, 1)
    assert arrays(words)[1].tolist() == [scales]
    decoded = get_format("t2_g128_fp16").decode(words)
    assert decoded.reshape(-1).tolist() == tensor.values(0, 64 * len(blocks)).array.tolist()


@pytest.mark.parametrize(
    ("blocks", "says"),
    [
        (
            [(0x3C00, ONES), (0x3C00, ZEROS), (0x3C00, ONES), (0x4000, ONES)],
            "block 2: the scale words 0x3C00 and 0x4000 of it and the next block, in one group",
        ),
        ([(0x3C00, 0xFF), (0x3C00, ONES)], "block 0: code 2"),
        ([(0x3C00, ONES), (0x3C00, 0xFA)], "block 1: code 2"),
        ([(0x8000, ONES)], "block 0: scale word 0x8000 (negative zero)"),
        ([(0x7C00, ONES)], "block 0: scale word 0x7C00 (infinity)"),
        ([(0x0000, ONES)], "block 0: zero scale with non-zero codes"),
    ],
)
def test_q2_0_that_is_not_ternary_is_refused(tmp_path: Path, blocks: list[tuple[int, int]], says: str) -> None:
    message = refused(block_tensor(tmp_path, 42, q2_0_blocks(*blocks)), "t2_g128_fp16")
    assert message.startswith(f"t: row 0, {says}")
    assert message.endswith(
        "which t2_g128_fp16 cannot hold; keep the tensor as gguf_q2_0 or as q2_g64_fp16 or by its values "
        "(requantize = true)"
    )


@pytest.mark.parametrize("word", [0x7C00, 0xFC00, 0x7E00, 0xFFFF])
def test_q2_0_with_a_scale_that_is_no_number_is_refused(tmp_path: Path, word: int) -> None:
    blocks = q2_0_blocks((0x3C00, ONES), (word, ONES))
    message = refused(block_tensor(tmp_path, 42, blocks), "q2_g64_fp16")
    assert message.startswith(f"t: row 0, block 1: scale word 0x{word:04X}")


ZERO_BLOCKS = {
    8: b"\x00\x3c" + bytes(32),
    34: b"\x80" * 52 + b"\x00\x3c",
    35: b"\x55" * 64 + b"\x00\x3c",
    40: bytes(36),
    142: b"\x00\x3c" + b"\x55" * 32,
}
"""Blocks whose codes are all zero; the scale is one."""


@pytest.mark.parametrize(
    ("ggml", "where", "byte", "says"),
    [
        (8, 2 + 7, 0x80, "code -128"),
        (8, 1, 0x80, "scale word 0x8000 (negative zero)"),
        (8, 1, 0x7C, "scale word 0x7C00 (infinity)"),
        (35, 5, 0xC0, "code 2"),
        (35, 65, 0x80, "scale word 0x8000 (negative zero)"),
        (34, 53, 0x7C, "scale word 0x7C00 (infinity)"),
        (142, 2 + 9, 0x57, "code 2"),
        (40, 3, 0x7F, "block scale 0x7F (NaN)"),
        (40, 0, 0xB8, "block scale 0xB8 (negative)"),
        (40, 2, 0x80, "block scale 0x80 (negative zero)"),
    ],
)
def test_a_word_that_does_not_fit_is_refused_with_its_place(
    tmp_path: Path, ggml: int, where: int, byte: int, says: str
) -> None:
    kind = GGML_TYPES[ggml]
    blocks = np.tile(np.frombuffer(ZERO_BLOCKS[ggml], dtype=np.uint8), (5, 4, 1))
    blocks[4, 2, where] = byte
    tensor = block_tensor(tmp_path, ggml, blocks)
    format = tensor.exact[-1]
    assert tensor.words(format, 0, 4).codes.shape == (4, 4 * kind.block_values)
    assert f"t: row 4, block 2: {says}" in refused(tensor, format, begin=3)


def test_q8_0_under_a_zero_scale_is_refused_naming_the_way_out() -> None:
    message = refused(FIXTURES["blk.0.q8_0_underflow.weight"], "q8_g32_fp16")
    assert message == (
        "blk.0.q8_0_underflow.weight: row 4, block 8: zero scale with non-zero codes, which q8_g32_fp16 cannot hold; "
        "keep the tensor as gguf_q8_0 or by its values (requantize = true)"
    )


def test_banks_are_read_as_their_rows(tmp_path: Path) -> None:
    data = np.random.default_rng(3).integers(0, 256, (2, 3, 2, 34), dtype=np.uint8)
    data[..., 1] = 0x3C
    path = tmp_path / "model.gguf"
    path.write_bytes(File([Tensor("bank", 8, (2, 3, 64), data.tobytes())]).build())
    tensor = open_gguf(path, "model.gguf").tensors["bank"]
    assert tensor.shape == (2, 3, 64)
    assert np.array_equal(tensor.words("gguf_q8_0", 2, 5).codes, data.reshape(6, 68)[2:5])
