"""Scalar conversions: every rounding boundary and its neighbours, and any word, against exact fractions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ninfer_convert.kernels import scalars
from ninfer_convert.kernels.compile import kernel
from tests.flush import flushed_subnormals
from tests.oracle.scalars import BF16, E2M1, E4M3, F16, F32, F64, Binary, convert

Array = NDArray[Any]


@kernel
def f32_to_f16(words: Any, out: Any) -> None:
    for i in range(len(words)):
        out[i] = scalars.f32_to_f16(words[i])


@kernel
def f32_to_bf16(words: Any, out: Any) -> None:
    for i in range(len(words)):
        out[i] = scalars.f32_to_bf16(words[i])


@kernel
def f64_to_f32(words: Any, out: Any) -> None:
    for i in range(len(words)):
        out[i] = scalars.f64_to_f32(words[i])


@kernel
def f64_to_bf16(words: Any, out: Any) -> None:
    for i in range(len(words)):
        out[i] = scalars.f64_to_bf16(words[i])


@kernel
def bf16_to_f32(words: Any, out: Any) -> None:
    for i in range(len(words)):
        out[i] = scalars.bf16_to_f32(words[i])


@kernel
def f16_to_f32(words: Any, out: Any) -> None:
    for i in range(len(words)):
        out[i] = scalars.f16_to_f32(words[i])


@kernel
def e4m3_to_f32(words: Any, out: Any) -> None:
    for i in range(len(words)):
        out[i] = scalars.e4m3_to_f32(words[i])


@kernel
def e2m1_to_f32(words: Any, out: Any) -> None:
    for i in range(len(words)):
        out[i] = scalars.e2m1_to_f32(words[i])


@kernel
def f32_to_f64(words: Any, out: Any) -> None:
    for i in range(len(words)):
        out[i] = scalars.f32_to_f64(words[i])


DTYPES = {BF16: np.uint16, F16: np.uint16, F32: np.uint32, F64: np.uint64, E4M3: np.uint8, E2M1: np.uint8}
Step = tuple[Callable[[Array, Array], None], Binary, Binary]
NARROWING: dict[str, Step] = {
    "f32 to f16": (f32_to_f16, F32, F16),
    "f32 to bf16": (f32_to_bf16, F32, BF16),
    "f64 to f32": (f64_to_f32, F64, F32),
    "f64 to bf16": (f64_to_bf16, F64, BF16),
}
WIDENING: dict[str, Step] = {
    "f16": (f16_to_f32, F16, F32),
    "bf16": (bf16_to_f32, BF16, F32),
    "e4m3": (e4m3_to_f32, E4M3, F32),
    "e2m1": (e2m1_to_f32, E2M1, F32),
}


def run(step: Step, words: Array) -> Array:
    function, _, target = step
    out = np.empty(len(words), DTYPES[target])
    function(words, out)
    return out


def special_words(source: Binary) -> list[int]:
    """Zero, the ends of subnormal, normal and infinity, NaN of either kind, with both signs."""
    first_normal = 1 << source.fraction
    magnitudes = [0, 1, first_normal - 1, first_normal, source.largest, source.infinity, source.infinity + 1]
    magnitudes += [source.sign - 1, source.infinity + first_normal // 2, source.infinity + first_normal // 2 + 5]
    return [sign | magnitude for magnitude in magnitudes for sign in (0, source.sign)]


def boundary(low: int, source: Binary, target: Binary) -> int:
    """The word of `source` that lies exactly between the words `low` and `low + 1` of `target`."""
    middle = (target.magnitude(low) + target.magnitude(low + 1)) / 2
    number = float(middle)
    assert Fraction(number) == middle
    code, word = ("<d", "<Q") if source is F64 else ("<f", "<I")
    found: int = struct.unpack(word, struct.pack(code, number))[0]
    return found


def check_boundaries(step: Step, lows: Iterable[int]) -> None:
    """Rounding is monotone: right at both sides of every boundary, it is right everywhere."""
    _, source, target = step
    words, wanted = [], []
    for low in lows:
        word = boundary(low, source, target)
        words += [word - 1, word, word + 1]
        wanted += [low, low + low % 2, low + 1]
    found = run(step, np.array(words, DTYPES[source]))
    assert np.array_equal(found, np.array(wanted, DTYPES[target]))
    negative = run(step, np.array(words, DTYPES[source]) | DTYPES[source](source.sign))
    assert np.array_equal(negative, found | DTYPES[target](target.sign))


@pytest.mark.parametrize("name", [name for name in NARROWING if name != "f64 to f32"])
def test_every_boundary_and_its_neighbours_round_to_nearest_even(name: str) -> None:
    _, _, target = NARROWING[name]
    check_boundaries(NARROWING[name], range(target.infinity))


def test_f64_rounds_to_f32_at_boundaries_of_every_exponent() -> None:
    ends = (exponent << 23 | fraction for exponent in range(255) for fraction in (0, 1, 2, 0x7FFFFE, 0x7FFFFF))
    anywhere = np.random.default_rng(0).integers(0, F32.infinity, 3000).tolist()
    check_boundaries(NARROWING["f64 to f32"], [*ends, *anywhere])


@pytest.mark.parametrize("name", NARROWING)
@given(data=st.data())
def test_any_word_narrows_as_exact_fractions_say(name: str, data: st.DataObject) -> None:
    step = NARROWING[name]
    _, source, target = step
    words = data.draw(st.lists(st.integers(0, 2 * source.sign - 1), min_size=1, max_size=20)) + special_words(source)
    found = run(step, np.array(words, DTYPES[source]))
    assert found.tolist() == [convert(word, source, target) for word in words]


@pytest.mark.parametrize("name", WIDENING)
def test_every_word_widens_exactly(name: str) -> None:
    step = WIDENING[name]
    _, source, target = step
    words = range(2 * source.sign)
    found = run(step, np.array(words, DTYPES[source])).tolist()
    assert len(found) == 2 * source.sign
    for word, wide in zip(words, found, strict=True):
        if word % source.sign <= source.largest:
            assert target.value(wide) == source.value(word)
            assert bool(wide & target.sign) == bool(word & source.sign)
        elif source is BF16:
            assert wide == word << 16
        else:
            assert wide == convert(word, source, target)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_f32_widens_to_f64_exactly(words: list[int]) -> None:
    words += special_words(F32)
    found = run((f32_to_f64, F32, F64), np.array(words, np.uint32))
    assert found.tolist() == [convert(word, F32, F64) for word in words]


def test_flushing_subnormals_changes_no_word() -> None:
    rng = np.random.default_rng(1)
    for step in [*NARROWING.values(), *WIDENING.values(), (f32_to_f64, F32, F64)]:
        _, source, _ = step
        words = rng.integers(0, 2 * source.sign, 4096, DTYPES[source], endpoint=False)
        words[:2048] &= DTYPES[source](source.sign | ((1 << source.fraction) - 1))
        plain = run(step, words)
        with flushed_subnormals():
            flushed = run(step, words)
        assert np.array_equal(plain, flushed)


def test_the_oracle_knows_its_formats() -> None:
    assert F16.value(0x0001) == Fraction(1, 2**24)
    assert F16.nearest(Fraction(65520)) == F16.infinity
    assert BF16.value(0x0001) == Fraction(1, 2**133)
    assert E4M3.value(0x7E) == 448
    assert [E2M1.value(word) for word in range(8)] == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert F32.nearest(Fraction(1, 3)) == int(np.float32(1 / 3).view(np.uint32))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["f32 to f16", "f32 to bf16"])
def test_all_words_narrow_as_their_rank_among_the_boundaries_says(name: str) -> None:
    """A second formulation: a magnitude's word is the number of boundaries below it. All positive words."""
    step = NARROWING[name]
    _, _, target = step
    words = range(target.infinity)
    middles = np.array([float(target.magnitude(low) + target.magnitude(low + 1)) / 2 for low in words])
    boundaries = middles.astype(np.float32).view(np.uint32)
    boundaries[0::2] += np.uint32(1)
    highest = convert(F32.infinity, F32, target)
    begin = 0
    while begin < F32.infinity:
        end = min(begin + (1 << 24), F32.infinity)
        found = run(step, np.arange(begin, end, dtype=np.uint32))
        wanted = np.searchsorted(boundaries, np.arange(begin, end, dtype=np.uint32), side="right")
        assert np.array_equal(found, wanted)
        begin = end
    assert run(step, np.array([F32.infinity], np.uint32))[0] == highest
