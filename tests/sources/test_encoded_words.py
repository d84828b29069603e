"""Words of encoded weights: bit for bit the checkpoint's own, and refused where a format cannot hold one."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from math import frexp
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_convert.formats import get_format
from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.encoded import classify
from ninfer_convert.sources.views import take_rows
from tests.oracle import safetensors
from tests.oracle.scalars import F32
from tests.sources.modules import numbers
from tests.sources.peers import BF16_ROWS, GOLDEN, facts, peer, scales_of, stored
from tests.sources.weights import problem, tensor, values, weight

if TYPE_CHECKING:
    from ninfer_convert.values import Source, Words


GLOBALS = ("weight_global_scale", "input_global_scale")


def divisors_of(words: Words) -> list[int]:
    assert words.divisors is not None
    divisors: list[int] = words.divisors.view(np.uint32).tolist()
    return divisors


# NVFP4


@pytest.mark.parametrize("folder", ["ct_nvfp4", "ct_nvfp4_misfit", "modelopt_nvfp4"])
def test_codes_and_block_scales_are_the_files_own(folder: str) -> None:
    data = stored(folder)
    sources = peer(folder)
    assert sources
    for name, source in sources.items():
        codes = data[name if folder.startswith("modelopt") else f"{name}_packed"]
        words = source.words("nvfp4", 0, source.shape[0])
        assert (words.codes[:, ::2] | words.codes[:, 1::2] << 4).tobytes() == codes
        assert scales_of(words).tobytes() == data[f"{name}_scale"]
        assert source.exact == ("nvfp4",)
        assert get_format("nvfp4").faults(words).total == 0


def test_the_divisor_of_compressed_tensors_is_its_word() -> None:
    data = stored("ct_nvfp4")
    divisors = {}
    for name, source in peer("ct_nvfp4").items():
        (word,) = struct.unpack("<I", data[f"{name}_global_scale"])
        assert divisors_of(source.words("nvfp4", 3, 7)) == [word] * 4
        divisors[name.split(".")[-2]] = word
        (input_word,) = struct.unpack("<f", data[f"{name.removesuffix('weight')}input_global_scale"])
        assert facts(source).input_divisor == input_word
        assert facts(source).activations == {f"{name.removesuffix('weight')}input_global_scale": (input_word,)}
        assert facts(source).note == ""
    assert divisors["q_proj"] == divisors["k_proj"] == divisors["v_proj"]
    assert divisors["gate_proj"] != divisors["up_proj"]


def test_modelopts_multiplier_becomes_the_divisor_that_compressed_tensors_makes_of_it() -> None:
    """ct_divisors.json was written by its own ModelOptNvfp4Converter."""
    expected = json.loads((GOLDEN / "modelopt_nvfp4" / "ct_divisors.json").read_text())
    sources = peer("modelopt_nvfp4")
    assert len(expected) == 2 * len(sources) == 12
    for name, source in sources.items():
        told = {part: int(expected[f"{name.removesuffix('weight')}{part}"]["fp32_word"], 16) for part in GLOBALS}
        assert set(divisors_of(source.words("nvfp4", 0, 128))) == {told["weight_global_scale"]}
        assert facts(source).input_divisor == float(F32.value(told["input_global_scale"]))
        assert "within 2^-24" in facts(source).note


def dialects(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same weight as ModelOpt and as compressed-tensors store it."""
    codes, scales = rng.integers(0, 256, (128, 64), np.uint8), rng.integers(0, 0x7F, (128, 8), np.uint8)
    multiplier, divisor = np.float32(2.0**-11), np.float32(2.0**11)
    modelopt = {
        "weight": tensor(codes),
        "weight_scale": tensor(scales, "F8_E4M3"),
        "weight_scale_2": tensor(np.array(multiplier)),
    }
    packed = {
        "weight_packed": tensor(codes),
        "weight_scale": tensor(scales, "F8_E4M3"),
        "weight_global_scale": tensor(np.array([divisor])),
    }
    return modelopt, packed


def test_both_dialects_of_one_weight_have_the_same_words(tmp_path: Path) -> None:
    """Field fault R31: one multiplies and the other divides."""
    modelopt, packed = dialects(np.random.default_rng(0))
    (tmp_path / "a").mkdir()
    one, other = weight(tmp_path, modelopt), weight(tmp_path / "a", packed)
    mine, yours = one.words("nvfp4", 0, 128), other.words("nvfp4", 0, 128)
    assert np.array_equal(mine.codes, yours.codes)
    assert np.array_equal(scales_of(mine), scales_of(yours))
    assert divisors_of(mine) == divisors_of(yours) == [0x45000000] * 128
    assert np.array_equal(values(one), values(other))


def test_each_matrix_of_a_bank_keeps_its_own_divisor(tmp_path: Path) -> None:
    """Field fault R33, and rows of a bank: a row is never given another's divisor."""
    rng = np.random.default_rng(1)
    factors = np.array([1e-3, 1.0, 1e3], np.float32)
    members = {
        "gate_up_proj": tensor(rng.integers(0, 256, (3, 4, 8), np.uint8)),
        "gate_up_proj_weight_scale": tensor(rng.integers(0, 0x7F, (3, 4, 1), np.uint8), "F8_E4M3"),
        "gate_up_proj_weight_scale_2": tensor(factors),
        "gate_up_proj_input_scale": tensor(np.array([0.5, 4.0, 0.25], np.float32)),
    }
    source = weight(tmp_path, members)
    each = [struct.unpack("<I", struct.pack("<f", 1 / float(factor)))[0] for factor in factors]
    assert divisors_of(source.words("nvfp4", 0, 12)) == [each[row // 4] for row in range(12)]
    assert divisors_of(source.words("nvfp4", 3, 9)) == [each[row // 4] for row in range(3, 9)]
    part = take_rows(source, 1, 3)
    assert divisors_of(part.words("nvfp4", 2, 6)) == [each[1 + row // 4] for row in range(2, 6)]
    assert facts(part).divisors == facts(source).divisors[1:]
    assert facts(source).input_divisor == 0.25
    assert np.array_equal(values(part), values(source)[4:])


@pytest.mark.parametrize(("word", "row", "group"), [(0x7F, 0, 0), (0xFF, 3, 1), (0x80, 2, 0), (0x85, 3, 0)])
def test_a_block_scale_that_is_negative_or_nan(tmp_path: Path, word: int, row: int, group: int) -> None:
    scales = np.full((4, 2), 0x38, np.uint8)
    scales[row, group] = word
    members = {
        "weight_packed": tensor(np.zeros((4, 16), np.uint8)),
        "weight_scale": tensor(scales, "F8_E4M3"),
        "weight_global_scale": numbers("F32", (1,), 1.0),
    }
    source = weight(tmp_path, members)
    message = f"m.weight_scale: block scale word 0x{word:02X} at [{row},{group}] is negative or NaN"
    found = problem(source.words, "nvfp4", 0, 4)
    assert (found.message, found.tensor) == (message, "m.weight_scale")
    assert problem(source.values, 0, 128).message == message
    assert problem(source.words, "nvfp4", row, row + 1).message == message


@pytest.mark.parametrize("number", [0.0, -0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("dialect", [0, 1])
def test_a_global_scale_that_is_not_finite_and_positive(tmp_path: Path, dialect: int, number: float) -> None:
    members = dict(dialects(np.random.default_rng(0))[dialect])
    name = ("weight_scale_2", "weight_global_scale")[dialect]
    members[name] = numbers("F32", members[name][1], number)
    refused_global_scale(tmp_path, members, name)


@pytest.mark.parametrize("number", [2.0**-129, 2.0**-149])
def test_a_multiplier_whose_reciprocal_is_infinite(tmp_path: Path, number: float) -> None:
    members = {**dialects(np.random.default_rng(0))[0], "weight_scale_2": numbers("F32", (), number)}
    refused_global_scale(tmp_path, members, "weight_scale_2")


def refused_global_scale(folder: Path, members: Mapping[str, Any], name: str) -> None:
    """It is told at plan, from the scale alone."""
    built = {f"m.{member}": content for member, content in members.items()}
    (folder / "model.safetensors").write_bytes(safetensors.build(built))
    checkpoint = open_checkpoint(folder)
    (found,) = classify(checkpoint, None).problems(checkpoint)
    assert found.message == f"m.{name}: global scale must be finite and positive"
    assert (found.tensor, found.path) == (f"m.{name}", str(folder / "model.safetensors"))


@pytest.mark.parametrize(
    ("folder", "unfit"),
    [
        ("ct_fp8_block", "128x128 block FP8 offers decoded values only"),
        ("hf_fp8_block", "128x128 block FP8 offers decoded values only"),
        ("ct_w4a16", "INT4_PACKED offers decoded values only"),
    ],
)
def test_what_only_decodes_says_so(folder: str, unfit: str) -> None:
    sources = peer(folder)
    assert sources
    for name, source in sources.items():
        assert (source.exact, source.identical, facts(source).unfit) == ((), None, unfit)
        assert problem(source.words, "nvfp4", 0, 1).message == f"{name}: {unfit}"


def test_a_format_of_another_kind_is_refused(tmp_path: Path) -> None:
    source = weight(tmp_path, dialects(np.random.default_rng(0))[0])
    assert problem(source.words, BF16_ROWS, 0, 1).message == f"m.weight: holds no words of {BF16_ROWS}"


# MXFP4 in nvfp4 (encoded-sources.md 9.4)


def mxfp4(folder: Path, exponents: Sequence[Sequence[int]], zero_groups: Sequence[tuple[int, int]] = ()) -> Source:
    """Rows of groups whose first byte is 0x72: codes 2 and 7; groups of `zero_groups` hold zeros of both signs."""
    scales = np.array(exponents, np.uint8)
    packed = np.zeros((*scales.shape, 16), np.uint8)
    packed[:, :, 0] = 0x72
    for row, group in zero_groups:
        packed[row, group] = 0x80
    members = {"weight_packed": tensor(packed.reshape(len(scales), -1)), "weight_scale": tensor(scales)}
    return weight(folder, members)


def transcoded(source: Source) -> Words:
    rows = int(np.prod(source.shape[:-1]))
    words = source.words("nvfp4", 0, rows)
    assert get_format("nvfp4").faults(words).total == 0
    decoded = get_format("nvfp4").decode(words).view(np.uint32)
    assert np.array_equal(decoded, values(source))
    return words


def test_the_fixtures_blocks_have_the_same_values_in_nvfp4() -> None:
    (source,) = peer("ct_mxfp4").values()
    words = transcoded(source)
    data = stored("ct_mxfp4")["model.layers.0.self_attn.q_proj.weight_packed"]
    assert (words.codes[:, ::2] | words.codes[:, 1::2] << 4).tobytes() == data
    assert np.array_equal(scales_of(words)[:, ::2], scales_of(words)[:, 1::2])
    part = source.words("nvfp4", 7, 9)
    assert np.array_equal(part.codes, words.codes[7:9])
    assert divisors_of(part) == divisors_of(words)[7:9]


@pytest.mark.parametrize("low", [0, 1, 100, 127, 200, 254 - 17])
@pytest.mark.parametrize("spread", [0, 1, 8, 16, 17])
def test_exponents_that_spread_by_at_most_17(tmp_path: Path, low: int, spread: int) -> None:
    source = mxfp4(tmp_path, [[low, low + spread // 2], [low + spread, low]])
    assert source.exact == ("nvfp4",)
    words = transcoded(source)
    (divisor,) = set(divisors_of(words))
    assert facts(source).divisors == (float(F32.value(divisor)),)
    assert frexp(facts(source).divisors[0])[0] == 0.5


@pytest.mark.parametrize("low", [0, 3, 127, 254 - 18])
def test_exponents_that_spread_further(tmp_path: Path, low: int) -> None:
    source = mxfp4(tmp_path, [[low, low + 5], [low + 18, low + 1]])
    assert (source.exact, facts(source).divisors) == ((), ())
    assert facts(source).unfit == (
        f"its scales go from 2^{low - 127} to 2^{low - 109}, further than those of nvfp4 can; use decoded values"
    )
    assert "further than" in problem(source.words, "nvfp4", 0, 1).message


def test_groups_of_zeros_alone_do_not_count(tmp_path: Path) -> None:
    source = mxfp4(tmp_path, [[0, 120], [137, 254], [121, 122]], zero_groups=[(0, 0), (1, 1)])
    assert source.exact == ("nvfp4",)
    words = transcoded(source)
    assert scales_of(words)[0].tolist() == [0, 0, *[scales_of(words)[0, 2]] * 2]
    assert scales_of(words)[1, 2:].tolist() == [0, 0]
    assert words.codes[0, :4].tolist() == [0, 8, 0, 8]
    every = mxfp4(tmp_path, [[0, 200]], zero_groups=[(0, 0), (0, 1)])
    assert every.exact == ("nvfp4",)
    transcoded(every)


def test_an_exponent_that_is_nan(tmp_path: Path) -> None:
    members = {
        "weight_packed": tensor(np.zeros((2, 32), np.uint8)),
        "weight_scale": numbers("U8", (2, 2), 1, 2, 3, 255),
    }
    (tmp_path / "model.safetensors").write_bytes(safetensors.build({f"m.{name}": m for name, m in members.items()}))
    checkpoint = open_checkpoint(tmp_path)
    classification = classify(checkpoint, None)
    (found,) = classification.problems(checkpoint)
    assert found.message == "m.weight_scale: scale word 0xFF at [1,1] is NaN"
    assert "is not finite" in problem(classification.sources["m.weight"].values, 0, 128).message


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3))
def test_whatever_is_transcoded_keeps_its_values(
    tmp_path_factory: pytest.TempPathFactory, seed: int, rows: int, groups: int
) -> None:
    rng = np.random.default_rng(seed)
    low = int(rng.integers(0, 237))
    exponents = rng.integers(low, low + 18, (rows, groups), np.uint8)
    packed = rng.integers(0, 256, (rows, groups, 16), np.uint8)
    empty = rng.random((rows, groups)) < 0.3
    packed[empty] &= 0x88
    exponents[empty] = rng.integers(0, 255, empty.sum(), np.uint8)
    folder = tmp_path_factory.mktemp("mx")
    members = {"weight_packed": tensor(packed.reshape(rows, -1)), "weight_scale": tensor(exponents)}
    source = weight(folder, members)
    assert source.exact == ("nvfp4",)
    transcoded(source)
