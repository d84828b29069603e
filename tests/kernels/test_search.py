"""grouped_search: the vectors, wrong searches, the oracle on every kind of group, near-ties, flushed subnormals."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ninfer_convert.kernels.grouped import encode_absmax
from ninfer_convert.kernels.search import encode_search, find_reach
from ninfer_convert.kernels.search_errors import unclamped
from ninfer_convert.kernels.search_types import Grid
from tests.flush import flushed_subnormals
from tests.oracle import search_loop
from tests.oracle.grouped import FORMATS, f16_value, f32
from tests.oracle.scalars import BF16, F16, F32, F64, Binary, convert
from tests.oracle.search import Best, GroupSearch, search_rows

Array = NDArray[Any]
Random = np.random.Generator

VECTORS = json.loads((Path(__file__).parent.parent / "golden" / "grouped_search.json").read_text())
STORED: dict[str, tuple[type[Any], Binary]] = {
    "BF16": (np.uint16, BF16),
    "F16": (np.uint16, F16),
    "F32": (np.uint32, F32),
    "F64": (np.uint64, F64),
}


def encode(
    words: Array, format: str, importance: Array | None = None, negative: bool = False, stored: str = "F32"
) -> tuple[Array, Array, int]:
    """Codes, scales, and the flat index of the first refused group or -1."""
    group, qmin, qmax = FORMATS[format]
    rows, columns = words.shape
    codes = np.full((rows, columns), 99, np.int8)
    scales = np.full((rows, -(-columns // group)), 0x7FFF, np.uint16)
    refused = encode_search(words, stored == "F16", importance, group, qmin, qmax, negative, codes, scales)
    return codes, scales, refused


def source(vector: Any) -> NDArray[np.float32]:
    words = bytes.fromhex(vector["source_f32"])
    return np.frombuffer(words, "<f4").reshape([int(size) for size in vector["shape"]])


def importance_of(vector: Any) -> Array | None:
    return vector["importance_f64"] and np.frombuffer(bytes.fromhex(vector["importance_f64"]), "<f8")


def listed(importance: Array | None) -> list[float] | None:
    return None if importance is None else importance.tolist()


@pytest.mark.parametrize("number", range(16))
def test_vectors(number: int) -> None:
    assert len(VECTORS) == 16
    vector = VECTORS[number]
    words = source(vector).view(np.uint32)
    codes, scales, refused = encode(words, vector["format"], importance_of(vector), vector["negative_scales"])
    assert refused == -1
    assert codes.tolist() == vector["codes"]
    assert scales.tolist() == vector["scale_words"]


def passes(search: type[GroupSearch]) -> bool:
    """Whether a search gives every vector."""
    return all(
        search_rows(
            vector["format"],
            source(vector).tolist(),
            listed(importance_of(vector)),
            vector["negative_scales"],
            search,
        )
        == (vector["codes"], vector["scale_words"])
        for vector in VECTORS
    )


def test_the_oracle_gives_the_vectors() -> None:
    assert passes(GroupSearch)


class Unweighted(GroupSearch):
    def error(self, word: int, codes: Sequence[int]) -> float:
        return sum((w - f16_value(word) * q) ** 2 for w, q in zip(self.values, codes, strict=True))


class LaterOfEquals(GroupSearch):
    def improve(self, best: Best, words: Iterator[int]) -> Best:
        return super().improve(best, reversed([*words]))


class NoFullRange(GroupSearch):
    def first_candidates(self, start: int, start_codes: Sequence[int]) -> Iterator[int]:
        for number, word in enumerate(super().first_candidates(start, start_codes)):
            if not 25 <= number < 50:
                yield word


class NoLastFit(GroupSearch):
    def last_candidates(self, best_codes: Sequence[int]) -> Iterator[int]:
        yield from ()


class NoNeighbours(GroupSearch):
    def first_candidates(self, start: int, start_codes: Sequence[int]) -> Iterator[int]:
        for number, word in enumerate(super().first_candidates(start, start_codes)):
            if number < 54 or 58 <= number < 61:
                yield word

    def last_candidates(self, best_codes: Sequence[int]) -> Iterator[int]:
        yield from list(super().last_candidates(best_codes))[:1]


@pytest.mark.parametrize("search", [Unweighted, LaterOfEquals, NoFullRange, NoLastFit, NoNeighbours])
def test_a_wrong_search_fails_the_vectors(search: type[GroupSearch]) -> None:
    assert not passes(search)


def outlier(random: Random, shape: tuple[int, int]) -> Array:
    values = random.normal(0, 0.01, shape)
    values[:, ::64] *= 50
    return values


def fp8_valued(random: Random, shape: tuple[int, int]) -> Array:
    mantissas = random.integers(-15, 16, shape) / 8
    return np.asarray(mantissas * 2.0 ** random.integers(-9, -1, shape))


KINDS: dict[str, Callable[[Random, tuple[int, int]], Array]] = {
    "gaussian": lambda random, shape: random.normal(0, 0.02, shape),
    "heavy-tailed": lambda random, shape: random.standard_t(2, shape) * 0.01,
    "ternary": lambda random, shape: random.integers(-1, 2, shape) * 0.013,
    "int4 grid": lambda random, shape: random.integers(-8, 8, shape) * float(np.float16(0.0137)),
    "half steps": lambda random, shape: (random.integers(-8, 8, shape) + 0.5) * float(np.float16(0.0137)),
    "small whole numbers": lambda random, shape: random.integers(-3, 4, shape) * 0.25,
    "constant": lambda random, shape: np.full(shape, random.normal()),
    "FP8-valued": fp8_valued,
    "one outlier": outlier,
    "one value": lambda random, shape: np.where(random.random(shape) < 0.02, random.normal(size=shape), 0.0),
    "any magnitude": lambda random, shape: random.normal(size=shape) * 10.0 ** random.integers(-42, 3, shape),
    "large": lambda random, shape: random.normal(0, 1e5, shape),
    "subnormal scales": lambda random, shape: random.normal(0, 3e-7, shape),
    "below the least scale": lambda random, shape: random.normal(0, 1e-8, shape),
    "subnormal values": lambda random, shape: random.normal(0, 1e-39, shape),
    "zero": lambda random, shape: np.zeros(shape),
}
WEIGHTS: dict[str, Callable[[Random, int], Array | None]] = {
    "unweighted": lambda random, columns: None,
    "weighted": lambda random, columns: random.gamma(0.3, 1.0, columns),
    "mostly zero weights": lambda random, columns: (random.random(columns) < 0.3) * random.random(columns),
    "weights of any magnitude": lambda random, columns: 10.0 ** random.integers(-60, 60, columns),
}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_group_is_searched_as_the_oracle_does(kind: str, weights: str) -> None:
    random = np.random.default_rng(len(kind) * 100 + len(weights))
    for number, format in enumerate(FORMATS):
        values = KINDS[kind](random, (3, 130)).astype(np.float32)
        importance = WEIGHTS[weights](random, 130)
        negative = number % 2 == len(kind) % 2
        codes, scales, refused = encode(values.view(np.uint32), format, importance, negative)
        assert refused == -1
        assert (codes.tolist(), scales.tolist()) == search_rows(format, values.tolist(), listed(importance), negative)


GAPS = [0.0, *(2.0**-power for power in (53, 50, 44, 43, 24, 20, 17, 16, 15)), 1e-12, 1e-9, 70 * 2.0**-24, 1e-4]


def near_tie(random: Random, format: str, gap: float) -> tuple[Array, Array]:
    """A group and its weights: its two best scales of families 1 to 5 differ in error by `gap`, relatively.

    The lanes where the second best does better are weighted up until the errors are so close.
    """
    group, qmin, qmax = FORMATS[format]
    values = random.normal(0, 0.02, group).astype(np.float32)
    importance = random.gamma(1.0, 1.0, group)
    search = GroupSearch(values.tolist(), importance.tolist(), qmin, qmax, False)
    start = search.maxabs_word()
    words = {start, *search.first_candidates(start, search.codes(start))}
    words = {word for word in words if 0 < word < 0x7C00}
    errors = {word: search.error(word, search.codes(word)) for word in words}
    best, second = sorted(errors, key=lambda word: errors[word])[:2]
    squares = [(values - np.float64(f16_value(word)) * np.array(search.codes(word))) ** 2 for word in (best, second)]
    gains = importance * (squares[0] - squares[1])
    importance[gains > 0] *= (gap * errors[best] - gains[gains < 0].sum()) / gains[gains > 0].sum()
    return values, importance


@pytest.mark.parametrize("format", FORMATS)
def test_near_ties_fall_as_binary64_sums_say(format: str) -> None:
    """Within the screen's bound and around its edge, where binary32 alone would take the wrong scale."""
    random = np.random.default_rng(7)
    _, qmin, qmax = FORMATS[format]
    cases = [near_tie(random, format, sign * gap) for gap in GAPS for sign in (-1, 1) for _ in range(4)]
    values = np.concatenate([case[0] for case in cases])[None]
    importance = np.concatenate([case[1] for case in cases])
    codes, scales, refused = encode(values.view(np.uint32), format, importance)
    assert refused == -1
    assert (codes.tolist(), scales.tolist()) == search_rows(format, values.tolist(), importance.tolist(), False)

    close = misled = 0
    for members, weights in cases:
        search = GroupSearch(members.tolist(), weights.tolist(), qmin, qmax, False)
        start = search.maxabs_word()
        words = sorted({start, *search.first_candidates(start, search.codes(start))} & set(range(1, 0x7C00)))
        exact = np.array([search.error(word, search.codes(word)) for word in words])
        rests = [members - np.float32(f16_value(word)) * np.array(search.codes(word), np.float32) for word in words]
        narrow = np.array([(weights.astype(np.float32) * rest * rest).sum() for rest in rests])
        lowest, second = np.sort(exact)[:2]
        close += second - lowest <= 2.0**-16 * lowest
        misled += exact.argmin() != narrow.argmin()
    assert close > len(cases) // 2
    assert misled > 3


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def unclamped_reciprocals(values: Array, qmin: np.float32, qmax: np.float32) -> tuple[float, float]:
    bounds: tuple[float, float] = unclamped(find_reach(values), Grid(qmin, qmax, False))
    return bounds


@pytest.mark.parametrize("format", FORMATS)
def test_no_code_is_clamped_by_reciprocals_that_need_no_clamp(format: str) -> None:
    group, qmin, qmax = FORMATS[format]
    random = np.random.default_rng(19)
    scales = np.arange(1, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    inverses = np.float32(1.0) / np.concatenate([scales, -scales])
    for values in random.normal(0, 0.02, (8, group)).astype(np.float32):
        for members in (values, np.abs(values), -np.abs(values), values * np.float32(1e5), values * (values > 0)):
            least, most = unclamped_reciprocals(members, np.float32(qmin), np.float32(qmax))
            positions = np.outer(inverses, [members.min(), members.max()]).astype(np.float32)
            fits = ((np.rint(positions) >= qmin) & (np.rint(positions) <= qmax)).all(axis=1)
            surely = ((positions >= qmin) & (positions <= qmax)).all(axis=1)
            found = (least <= inverses) & (inverses <= most)
            assert not (found & ~fits).any()
            assert not (surely & ~found).any()
            assert found.any()
            assert not found.all()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("negative", [False, True])
def test_no_group_is_worse_than_by_absmax(format: str, negative: bool) -> None:
    group, qmin, qmax = FORMATS[format]
    random = np.random.default_rng(11)
    better = 0
    for kind in KINDS.values():
        values = kind(random, (8, 128)).astype(np.float32)
        words = values.view(np.uint32)
        codes, scales, _ = encode(words, format, None, negative)
        plain_codes, plain_scales = np.empty_like(codes), np.empty_like(scales)
        assert encode_absmax(words, False, group, qmin, qmax, plain_codes, plain_scales) == -1
        errors = [
            np.square(values - s.view(np.float16).astype(np.float64).repeat(group, 1) * q).reshape(8, -1, group).sum(2)
            for q, s in ((codes, scales), (plain_codes, plain_scales))
        ]
        assert (errors[0] <= errors[1] * (1 + 1e-12)).all()
        better += int((errors[0] < errors[1]).sum())
    assert better > 100


def test_negative_scales_only_where_they_are_allowed() -> None:
    values = np.random.default_rng(5).normal(0, 0.02, (16, 256)).astype(np.float32)
    for format in FORMATS:
        _, without, _ = encode(values.view(np.uint32), format)
        _, allowed, _ = encode(values.view(np.uint32), format, negative=True)
        assert (without < 0x7C00).all()
        assert format == "q8_g32_fp16" or (allowed > 0x8000).any()


def test_weights_of_zero_leave_the_absmax_scale() -> None:
    values = np.random.default_rng(6).normal(0, 0.02, (4, 128)).astype(np.float32)
    for format, (group, qmin, qmax) in FORMATS.items():
        codes, scales, _ = encode(values.view(np.uint32), format, np.zeros(128))
        plain_codes, plain_scales = np.empty_like(codes), np.empty_like(scales)
        encode_absmax(values.view(np.uint32), False, group, qmin, qmax, plain_codes, plain_scales)
        assert np.array_equal(codes, plain_codes)
        assert np.array_equal(scales, plain_scales)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[str, str, Array, Array | None, bool]:
    stored = draw(st.sampled_from(sorted(STORED)))
    dtype, binary = STORED[stored]
    ordinary = st.integers((binary.bias - 14) << binary.fraction, (binary.bias + 4) << binary.fraction)
    few = draw(st.lists(st.one_of(ordinary, ordinary, st.integers(0, binary.largest)), min_size=1, max_size=12))
    pick = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 31, 32, 33, 63, 64, 65, 129])))
    words = pick.choice(np.array(few, dtype), shape)
    words = words | pick.integers(0, 2, shape).astype(dtype) * dtype(binary.sign)
    importance = None
    if draw(st.booleans()):
        sums = st.integers(0, F32.largest).map(lambda word: struct.unpack("<f", struct.pack("<I", word))[0])
        some = draw(st.lists(st.tuples(sums, st.integers(1, 2**24)), min_size=1, max_size=5))
        importance = pick.choice(np.array([total / count for total, count in some]), shape[1])
    return draw(st.sampled_from(sorted(FORMATS))), stored, words, importance, draw(st.booleans())


@given(matrices())
@settings(max_examples=60)
def test_any_words_of_any_stored_type(case: tuple[str, str, Array, Array | None, bool]) -> None:
    format, stored, words, importance, negative = case
    _, binary = STORED[stored]
    narrow = {word: convert(word, binary, F32) for word in set(words.ravel().tolist())}
    values = [[struct.unpack("<f", struct.pack("<I", narrow[word]))[0] for word in row] for row in words.tolist()]
    codes, scales, refused = encode(words, format, importance, negative, stored)
    group, _, qmax = FORMATS[format]
    flat = [max(map(abs, row[begin : begin + group])) / qmax for row in values for begin in range(0, len(row), group)]
    overflowing = [index for index, raw in enumerate(flat) if f32(raw) >= 65520.0]
    if overflowing:
        assert refused == overflowing[0]
    else:
        assert refused == -1
        assert (codes.tolist(), scales.tolist()) == search_rows(format, values, listed(importance), negative)


@pytest.mark.parametrize("word", [0x7FC00000, 0xFFC00001, 0x7F800000, 0xFF800000, 0x7F7FFFFF])
def test_the_first_group_that_cannot_be_kept_is_named(word: int) -> None:
    for format, (group, _, _) in FORMATS.items():
        words = np.full((3, 130), 0x3C000000, np.uint32)
        words[1, 129], words[2, 3] = word, word
        assert encode(words, format)[2] == 2 * -(-130 // group) - 1


def test_flushing_subnormals_changes_nothing() -> None:
    random = np.random.default_rng(3)
    for kind in ("subnormal values", "any magnitude", "subnormal scales", "below the least scale"):
        values = KINDS[kind](random, (6, 130)).astype(np.float32)
        importance = 10.0 ** random.integers(-60, 60, 130)
        for format in FORMATS:
            for stored in ("F32", "F64"):
                words = values.view(np.uint32) if stored == "F32" else values.astype(np.float64).view(np.uint64)
                plain = encode(words, format, importance, True, stored)
                with flushed_subnormals():
                    flushed = encode(words, format, importance, True, stored)
                assert plain[2] == flushed[2] == -1
                assert np.array_equal(plain[0], flushed[0])
                assert np.array_equal(plain[1], flushed[1])


def test_the_oracles_agree() -> None:
    random = np.random.default_rng(13)
    for kind in KINDS.values():
        values = kind(random, (2, 100)).astype(np.float32)
        importance = random.gamma(0.3, 1.0, 100)
        for format, (group, qmin, qmax) in FORMATS.items():
            codes, scales = search_loop.search(
                values, importance, group=group, qmin=qmin, qmax=qmax, negative_scales=True
            )
            wanted = search_rows(format, values.tolist(), importance.tolist(), True)
            assert (codes.tolist(), scales.tolist()) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["unweighted", "weighted"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_hundred_million_weights_without_a_difference(format: str, weights: str) -> None:
    """Some 13 million a case, of every kind."""
    group, qmin, qmax = FORMATS[format]
    random = np.random.default_rng(17)
    rows = 216
    total = 0
    for kind in KINDS.values():
        values = kind(random, (rows, 4096)).astype(np.float32)
        importance = WEIGHTS[weights](random, 4096)
        for negative, half in ((False, slice(0, rows // 2)), (True, slice(rows // 2, rows))):
            codes, scales, refused = encode(values[half].view(np.uint32), format, importance, negative)
            assert refused == -1
            wanted = search_loop.search(
                values[half], importance, group=group, qmin=qmin, qmax=qmax, negative_scales=negative
            )
            assert np.array_equal(codes, wanted[0])
            assert np.array_equal(scales, wanted[1])
            total += codes.size
    assert total > 12_500_000
