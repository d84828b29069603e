"""FP8 codes under scales of rows: bit for bit the checkpoint's own, or why not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.encoded import classify
from ninfer_convert.sources.views import take_rows
from tests.oracle import encoded as oracle
from tests.oracle import safetensors
from tests.oracle.scalars import BF16, F32
from tests.sources.modules import FP8_BLOCKS, compressed_tensors
from tests.sources.peers import BF16_ROWS, FP16_ROWS, facts, peer, scales_of, stored
from tests.sources.weights import Array, problem, tensor, values, weight

if TYPE_CHECKING:
    from ninfer_convert.values import Source


@pytest.mark.parametrize(("folder", "format"), [("ct_fp8_channel", BF16_ROWS), ("ct_fp8_f16", FP16_ROWS)])
def test_codes_and_row_scales_are_the_files_own(folder: str, format: str) -> None:
    data = stored(folder)
    for name, source in peer(folder).items():
        assert source.exact == (format,)
        words = source.words(format, 0, source.shape[0])
        assert words.codes.tobytes() == data[name]
        assert scales_of(words).tobytes() == data[f"{name}_scale"]
        part = source.words(format, 5, 9)
        assert np.array_equal(scales_of(part), scales_of(words)[5:9])


def test_a_scale_of_the_whole_tensor_is_repeated() -> None:
    data = stored("ct_fp8_tensor")
    for name, source in peer("ct_fp8_tensor").items():
        words = source.words(BF16_ROWS, 0, source.shape[0])
        assert words.codes.tobytes() == data[name]
        assert scales_of(words).tobytes() == data[f"{name}_scale"] * source.shape[0]
        assert facts(source).input_divisor is None
        assert len(facts(source).activations) == 1


@pytest.mark.parametrize("folder", ["ct_fp8_channel_f32", "modelopt_fp8", "ct_fp8_f16"])
def test_scales_that_are_no_bfloat16_values_are_not_exact(folder: str) -> None:
    data = stored(folder)
    for name, source in peer(folder).items():
        assert BF16_ROWS not in source.exact
        scale = data[f"{name}_scale"]
        kind = "F16" if folder == "ct_fp8_f16" else "F32"
        words = np.frombuffer(scale, "<u2" if kind == "F16" else "<u4")
        numbers = [oracle.scale(int(word), kind) for word in words]
        rounded = [BF16.nearest(number) for number in numbers]
        unfit = next(i for i, word in enumerate(rounded) if BF16.value(word) != numbers[i])
        digits = 4 if kind == "F16" else 8
        assert facts(source).unfit.startswith(
            f"{name}_scale: scale 0x{words[unfit]:0{digits}X} is not representable in BF16"
        )
        assert "use decoded values or the rounding method (round_scales = true)" in facts(source).unfit
        # With round_scales the codes stay, and each scale is rounded once.
        kept = source.words(BF16_ROWS, 0, source.shape[0])
        assert kept.codes.tobytes() == data[name]
        each = rounded if len(rounded) > 1 else rounded * source.shape[0]
        assert scales_of(kept).tolist() == each
        changes = [abs(BF16.value(word) - number) / number for word, number in zip(rounded, numbers, strict=True)]
        assert facts(source).rounded == {BF16_ROWS: pytest.approx(float(max(changes)), rel=1e-12)}


def fp8(folder: Path, scales: Array, kind: str, codes: Sequence[Sequence[int]] = ((0x38,), (0x38,))) -> Source:
    members = {"weight": tensor(np.array(codes, np.uint8), "F8_E4M3"), "weight_scale": tensor(scales, kind)}
    return weight(folder, members)


@given(st.lists(st.integers(0, 0xFFFFFFFF), min_size=2, max_size=6))
def test_exactness_is_judged_by_every_scale(tmp_path_factory: pytest.TempPathFactory, words: list[int]) -> None:
    folder = tmp_path_factory.mktemp("scales")
    words = [word % 0x7F800000 if index % 2 else word & 0x7FFF0000 for index, word in enumerate(words)]
    words = [word % 0x7F800000 for word in words]
    source = fp8(folder, np.array(words, np.uint32).reshape(-1, 1), "F32", [[0x38]] * len(words))
    exact = all(word % 0x10000 == 0 for word in words)
    assert source.exact == ((BF16_ROWS,) if exact else ())
    rounded = [BF16.nearest(F32.value(word)) for word in words]
    fits = not exact and all(word < 0x7F80 for word in rounded)
    assert list(facts(source).rounded) == ([BF16_ROWS] if fits else [])


def test_binary16_scales_that_are_bfloat16_values_are_exact_in_both_formats(tmp_path: Path) -> None:
    source = fp8(tmp_path, np.array([[0x3C00], [0x3D00]], np.uint16), "F16")
    assert source.exact == (FP16_ROWS, BF16_ROWS)
    assert source.identical == FP16_ROWS
    assert scales_of(source.words(BF16_ROWS, 0, 2)).tolist() == [0x3F80, 0x3FA0]
    assert scales_of(source.words(FP16_ROWS, 0, 2)).tolist() == [0x3C00, 0x3D00]


@pytest.mark.parametrize(
    ("kind", "word", "where"),
    [("BF16", 0xBF80, " (element 1 of [2, 1])"), ("BF16", 0x8000, ""), ("F16", 0xBC00, ""), ("F32", 0x7F7FFFFF, "")],
)
def test_scales_that_no_rounding_makes_legal(tmp_path: Path, kind: str, word: int, where: str) -> None:
    """Negative ones, and what would become infinite: such a weight has its values."""
    one = {"BF16": 0x3F80, "F16": 0x3C00, "F32": 0x3F800000}[kind]
    size = np.uint32 if kind == "F32" else np.uint16
    source = fp8(tmp_path, np.array([[one], [word]], size), kind)
    assert BF16_ROWS not in source.exact
    assert facts(source).rounded == {}
    digits = 8 if kind == "F32" else 4
    assert f"scale 0x{word:0{digits}X} is negative, or infinite in BF16{where}" in facts(source).unfit
    assert values(source)[1].tolist() == [oracle.f32(oracle.scale(word, kind), word == 0x8000)]
    assert "is negative" in problem(source.words, BF16_ROWS, 0, 2).message


@pytest.mark.parametrize(("kind", "word"), [("BF16", 0x7F80), ("BF16", 0x7FC0), ("F16", 0x7C00), ("F32", 0xFFC00000)])
def test_a_scale_that_is_no_number_is_told_at_plan(tmp_path: Path, kind: str, word: int) -> None:
    size = np.uint32 if kind == "F32" else np.uint16
    members = {
        "m.weight": tensor(np.zeros((2, 4), np.uint8), "F8_E4M3"),
        "m.weight_scale": tensor(np.array([[0], [word]], size), kind),
    }
    (tmp_path / "model.safetensors").write_bytes(safetensors.build(members))
    checkpoint = open_checkpoint(tmp_path)
    (found,) = classify(checkpoint, None).problems(checkpoint)
    digits = 8 if kind == "F32" else 4
    assert found.message == f"m.weight_scale: scale 0x{word:0{digits}X}, element 1 of [2, 1], is not finite"


@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_a_nan_code_is_refused_everywhere(tmp_path: Path, code: int) -> None:
    codes = np.zeros((3, 40), np.uint8)
    codes[1, 37] = code
    message = f"m.weight: code 0x{code:02X} at [1,37] is NaN"
    for scale, config in (
        (tensor(np.full((3, 1), 0x3F80, np.uint16)), None),
        (tensor(np.full((1, 1), 0x3F80, np.uint16)), compressed_tensors(FP8_BLOCKS)),
        (tensor(np.full((3, 2), 127, np.uint8)), None),
    ):
        source = weight(tmp_path, {"weight": tensor(codes, "F8_E4M3"), "weight_scale": scale}, config)
        assert problem(source.values, 0, 120).message == message
        assert values(take_rows(source, 2, 3)).tolist() == [[0] * 40]
        for format in source.exact:
            assert problem(source.words, format, 1, 3).message == message


def test_a_zero_scale_over_codes_that_are_not_zero(tmp_path: Path) -> None:
    source = fp8(tmp_path, np.array([[0x3F80], [0]], np.uint16), "BF16", [[0x38, 0x80], [0x80, 0x01]])
    assert source.exact == (BF16_ROWS,)
    found = problem(source.words, BF16_ROWS, 0, 2)
    assert found.message == (
        f"m.weight: row 1: zero row scale with non-zero codes, which {BF16_ROWS} cannot hold; use decoded values"
    )
    legal = fp8(tmp_path, np.array([[0x3F80], [0]], np.uint16), "BF16", [[0x38, 0x80], [0x80, 0x00]])
    assert scales_of(legal.words(BF16_ROWS, 0, 2)).tolist() == [0x3F80, 0]


def test_a_scale_that_rounds_to_zero(tmp_path: Path) -> None:
    """Even with round_scales a row of codes that are not zero is refused; one of zeros is kept."""
    scales = np.array([[0x3F800001], [0x00000001]], np.uint32)
    source = fp8(tmp_path, scales, "F32", [[0x38], [0x80]])
    assert facts(source).rounded == {BF16_ROWS: 1.0}
    assert scales_of(source.words(BF16_ROWS, 0, 2)).tolist() == [0x3F80, 0]
    other = fp8(tmp_path, scales, "F32", [[0x38], [0x01]])
    assert "row 1: zero row scale with non-zero codes" in problem(other.words, BF16_ROWS, 0, 2).message
