"""Registry, pairings, sizes, and every reason why a tensor cannot be stored."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_convert.formats import FORMATS
from ninfer_convert.layouts import LAYOUTS, RESOURCE_ENCODING, get_layout, usual_layout
from tests.layouts.cases import content, random_words, tensor
from tests.oracle import layouts as oracle

STORES = {
    "contiguous_le_v1": ["bf16", "fp32", "int32"],
    "row_split_k128_v1": list(oracle.GROUPED),
    "block_scale_k16_m128x4_v1": ["nvfp4"],
    "row_scale_v1": ["fp8_e4m3fn_row_bf16"],
    "row_interleaved_v1": ["fp8_e4m3fn_row_fp16"],
    "gguf_blocks_v1": list(oracle.GGUF),
}


def test_six_layouts_share_the_thirty_formats() -> None:
    assert {name: list(layout.formats) for name, layout in LAYOUTS.items()} == STORES
    assert sorted(format for formats in STORES.values() for format in formats) == sorted(FORMATS)
    for name, layout in LAYOUTS.items():
        assert get_layout(name) is layout
        assert [usual_layout(format).name for format in layout.formats] == [name] * len(layout.formats)
        assert layout.row_quantum == (128 if name.startswith("block_scale") else 1)
    assert RESOURCE_ENCODING == "raw_bytes_v1"


def test_the_registry_is_read_only() -> None:
    with pytest.raises(TypeError):
        LAYOUTS["x"] = get_layout("row_scale_v1")  # type: ignore[index]


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(LookupError, match=r"'row_split_v1'; did you mean row_split_k128_v1.*Known: contiguous_le_v1"):
        get_layout("row_split_v1")
    with pytest.raises(LookupError, match="'q4_g64'; did you mean q4_g64_fp16"):
        usual_layout("q4_g64")


def test_no_other_pairing_is_stored() -> None:
    refused = 0
    for layout in LAYOUTS.values():
        for format in FORMATS:
            if format not in layout.formats:
                expected = f"{layout.name} does not store {format}; it stores {', '.join(layout.formats)}"
                assert layout.misfit(tensor(format, 256, 256)) == expected
                refused += 1
            else:
                assert layout.misfit(tensor(format, 256, 256)) is None
    assert refused == 5 * 30


MATRIX = "{} stores matrices [N, K]; the shape {} has rank {}"
MISFITS = [
    ("bf16", (1,) * 17, 1, f"contiguous_le_v1 stores ranks 0 to 16; the shape {[1] * 17} has rank 17"),
    ("fp32", (3, 0), 1, "every dimension must be positive; the shape is [3, 0]"),
    ("int32", (4,), 2, "contiguous_le_v1 keeps no weight divisors; divisors=2"),
    ("q4_g64_fp16", (128,), 1, MATRIX.format("row_split_k128_v1", "[128]", 1)),
    ("q5_g64_fp16", (2, 3, 4), 1, MATRIX.format("row_split_k128_v1", "[2, 3, 4]", 3)),
    ("q6_g64_fp16", (0, 5), 1, "every dimension must be positive; the shape is [0, 5]"),
    ("q8_g32_fp16", (256, 64), 2, "row_split_k128_v1 keeps no weight divisors; divisors=2"),
    ("nvfp4", (2, 128, 64), 1, MATRIX.format("block_scale_k16_m128x4_v1", "[2, 128, 64]", 3)),
    ("nvfp4", (0, 64), 1, "every dimension must be positive; the shape is [0, 64]"),
    ("nvfp4", (100, 64), 1, "N=100 (rows) must be a multiple of 128; 100 are left over"),
    ("nvfp4", (128, 80), 1, "K=80 (row length) must be a multiple of 64; 16 are left over"),
    (
        "nvfp4",
        (130, 65),
        1,
        "N=130 (rows) must be a multiple of 128; 2 are left over; "
        "K=65 (row length) must be a multiple of 64; 1 are left over",
    ),
    ("nvfp4", (256, 64), 3, "divisors=3 must divide N=256 (rows)"),
    ("nvfp4", (256, 64), 0, "divisors=0 must divide N=256 (rows)"),
    ("nvfp4", (256, 64), 4, "each of 4 divisors covers 64 rows, which must be whole tiles of 128"),
    ("fp8_e4m3fn_row_bf16", (5,), 1, MATRIX.format("row_scale_v1", "[5]", 1)),
    ("fp8_e4m3fn_row_bf16", (5, 0), 1, "every dimension must be positive; the shape is [5, 0]"),
    ("fp8_e4m3fn_row_fp16", (), 1, MATRIX.format("row_interleaved_v1", "[]", 0)),
    ("fp8_e4m3fn_row_fp16", (2, 2), 2, "row_interleaved_v1 keeps no weight divisors; divisors=2"),
    ("gguf_q4_k", (5,), 1, MATRIX.format("gguf_blocks_v1", "[5]", 1)),
    ("gguf_q4_k", (3, 14464), 1, "K=14464 (row length) must be a multiple of 256; 128 are left over"),
    ("gguf_q8_0", (3, 33), 1, "K=33 (row length) must be a multiple of 32; 1 are left over"),
    ("gguf_q2_0", (3, 32), 1, "K=32 (row length) must be a multiple of 64; 32 are left over"),
]


@pytest.mark.parametrize(("format", "shape", "divisors", "message"), MISFITS)
def test_misfit(format: str, shape: tuple[int, ...], divisors: int, message: str) -> None:
    assert usual_layout(format).misfit(tensor(format, *shape, divisors=divisors)) == message


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3, 5), (1,) * 16])
def test_direct_words_have_any_rank(shape: tuple[int, ...]) -> None:
    assert usual_layout("bf16").misfit(tensor("bf16", *shape)) is None


@pytest.mark.parametrize("divisors", [1, 2, 4])
def test_shares_of_whole_tiles(divisors: int) -> None:
    assert usual_layout("nvfp4").misfit(tensor("nvfp4", 512, 64, divisors=divisors)) is None


@pytest.mark.parametrize(
    ("shape", "format", "size"),
    [
        ((7168, 5120), "q4_g64_fp16", 19_496_960),
        ((7168, 5120), "q5_g64_fp16", 24_084_480),
        ((14336, 5120), "fp8_e4m3fn_row_bf16", 73_428_992),
        ((14336, 5120), "nvfp4", 41_287_684),
        ((2, 130), "q5_g64_fp16", 528),
        ((2, 160), "fp8_e4m3fn_row_fp16", 324),
        ((), "fp32", 4),
        ((2, 3, 5), "bf16", 60),
        ((3, 512), "gguf_iq1_m", 3 * 2 * 56),
        ((2**31, 2**20), "q8_g32_fp16", 2**51 + 2**47),
    ],
)
def test_worked_sizes(shape: tuple[int, ...], format: str, size: int) -> None:
    assert usual_layout(format).size(tensor(format, *shape)) == size


def test_each_divisor_is_one_word_more() -> None:
    layout = usual_layout("nvfp4")
    one = layout.size(tensor("nvfp4", 512, 128))
    assert [layout.size(tensor("nvfp4", 512, 128, divisors=n)) - one for n in (1, 2, 4)] == [0, 4, 12]


@given(st.sampled_from([*oracle.GROUPED, "fp8_e4m3fn_row_bf16"]), st.integers(1, 9), st.integers(1, 300))
def test_sizes_are_the_oracles(format: str, rows: int, columns: int) -> None:
    of = tensor(format, rows, columns)
    assert usual_layout(format).size(of) == len(oracle.encode(format, of.shape, content(random_words(of))))


def test_rows_along_which_work_is_cut() -> None:
    assert usual_layout("bf16").matrix((2, 3, 5)) == (30, 1)
    assert usual_layout("fp32").matrix(()) == (1, 1)
    assert usual_layout("q4_g64_fp16").matrix((2, 3)) == (2, 3)


def test_geometry_loads_no_numpy() -> None:
    script = """
import sys
from ninfer_convert.formats import get_format
from ninfer_convert.layouts import Tensor, usual_layout
layout = usual_layout("nvfp4")
tensor = Tensor(get_format("nvfp4"), (256, 64), 2)
assert layout.misfit(tensor) is None
assert layout.size(tensor) == 256 * 32 + 256 * 4 + 8
assert "numpy" not in sys.modules
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
