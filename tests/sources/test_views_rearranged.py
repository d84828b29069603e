"""Views that gather, reshape and transpose, alone and on top of one another, against NumPy doing the same at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ninfer_convert.errors import SourceError
from ninfer_convert.sources import views
from ninfer_convert.values import Encoding, Origin, Runs, Shape, Source, Values, Words


@dataclass
class Numbered:
    """A source whose element n is n, and whose words of row r are r in every column."""

    shape: Shape
    stored: str = "F32"
    exact: Sequence[str] = ()
    identical: str | None = "fp32"
    encoding: Encoding | None = None
    name: str = "w"
    reads: list[int] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * 4

    @property
    def origins(self) -> Sequence[Origin]:
        return [Origin("model", "m.safetensors", self.name, self.stored)]

    def values(self, begin: int, end: int) -> Values:
        if not 0 <= begin <= end <= prod(self.shape):
            raise IndexError(f"{begin}:{end}")
        self.reads.append(end - begin)
        return Values(np.arange(begin, end, dtype=np.float32), "F32")

    def words(self, format: str, begin: int, end: int) -> Words:
        assert format in self.exact
        assert 0 <= begin <= end <= prod(self.shape[:-1])
        rows = np.arange(begin, end, dtype=np.uint8)[:, None]
        return Words(np.repeat(rows, self.shape[-1], axis=1), rows.astype(np.uint16), rows[:, 0].astype(np.float32))


def encoded(*shape: int, divisors: tuple[float, ...] = ()) -> Numbered:
    encoding = Encoding("details", unfit="of its own", divisors=divisors, activations={"w.input_scale": (2.0,)})
    return Numbered(shape, "NVFP4", ("nvfp4",), "nvfp4", encoding)


Viewed = tuple[Source, NDArray[np.float32]]


@st.composite
def viewed(draw: st.DrawFn) -> Viewed:
    """A source under up to four views, and what NumPy makes of the same."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    view: Source = Numbered(shape)
    array: NDArray[np.float32] = np.arange(prod(shape), dtype=np.float32).reshape(shape)
    for _ in range(draw(st.integers(0, 4))):
        node = draw(st.sampled_from(["rows", "columns", "reshape", "transpose"]))
        if node == "rows":
            rows = array.shape[0]
            begins = draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=3))
            runs = tuple((begin, draw(st.integers(begin + 1, rows))) for begin in begins)
            view = views.gather_rows(view, runs)
            array = np.concatenate([array[begin:end] for begin, end in runs])
        elif node == "columns":
            edges = sorted({0, array.shape[-1], *draw(st.lists(st.integers(0, array.shape[-1]), max_size=3))})
            runs = tuple(draw(st.permutations(list(pairwise(edges)))))
            view = views.gather_columns(view, runs)
            array = np.concatenate([array[..., begin:end] for begin, end in runs], axis=-1)
        elif node == "reshape":
            rows = draw(st.sampled_from([n for n in range(1, array.size + 1) if array.size % n == 0]))
            matrix = (rows, array.size // rows)
            shape = draw(st.sampled_from([(array.size,), matrix, (1, *matrix)]))
            view, array = views.reshape(view, shape), array.reshape(shape)
        elif array.ndim >= 2:
            view, array = views.transpose(view), np.swapaxes(array, -1, -2)
    return view, array


@given(viewed(), st.data())
def test_any_elements_of_any_views(both: Viewed, data: st.DataObject) -> None:
    view, array = both
    assert view.shape == array.shape
    assert (view.name, view.stored, view.exact, view.identical) == ("w", "F32", (), "fp32")
    begin = data.draw(st.integers(0, array.size))
    end = data.draw(st.integers(begin, array.size))
    values = view.values(begin, end)
    assert values.stored == "F32"
    assert values.array.tolist() == array.reshape(-1)[begin:end].tolist()
    with pytest.raises(IndexError):
        view.values(array.size, array.size + 1)


@pytest.mark.parametrize("columns", [7, 4096, 5000])
def test_transposed_columns_read_little_more_than_is_asked_for(columns: int) -> None:
    source = Numbered((600, columns))
    view = views.transpose(source)
    values = view.values(2 * 600 + 5, 4 * 600 + 5).array
    expected = np.arange(600 * columns, dtype=np.float32).reshape(600, columns).T.reshape(-1)
    assert values.tolist() == expected[2 * 600 + 5 : 4 * 600 + 5].tolist()
    assert max(source.reads) <= 1 << 20
    assert sum(source.reads) == (600 * columns if columns < 4096 else 600 * 3)


def test_a_large_matrix_is_transposed_in_spans() -> None:
    source = Numbered((3000, 1000))
    assert views.transpose(source).values(0, 3).array.tolist() == [0, 1000, 2000]
    assert max(source.reads) <= 1 << 20
    assert sum(source.reads) == 3_000_000


def test_rows_cost_what_is_taken_of_the_source() -> None:
    view = views.gather_rows(Numbered((8, 4)), ((6, 8), (0, 1)))
    assert (view.shape, view.nbytes) == ((3, 4), 48)
    assert views.reshape(view, (12,)).nbytes == views.transpose(view).nbytes == 48


def test_provenance_tells_what_was_made_of_the_tensor_step_by_step() -> None:
    bank = views.reshape(Numbered((2, 6, 4)), (12, 4))
    view = views.transpose(views.gather_rows(views.take_rows(bank, 2, 12), ((4, 6), (0, 1))))
    assert [origin.selection for origin in view.origins] == ["as [12, 4], rows 6:8+2:3, transposed"]
    assert [origin.tensor for origin in view.origins] == ["w"]


def test_words_of_gathered_rows() -> None:
    view = views.gather_rows(encoded(4, 3, 8), ((2, 4), (0, 1)))
    assert (view.exact, view.identical) == (("nvfp4",), "nvfp4")
    words = view.words("nvfp4", 1, 8)
    assert words.codes[:, 0].tolist() == [7, 8, 9, 10, 11, 0, 1]
    assert words.scales is not None
    assert words.divisors is not None
    assert words.scales[:, 0].tolist() == words.divisors.tolist() == [7, 8, 9, 10, 11, 0, 1]
    assert view.words("nvfp4", 6, 9).codes[:, 0].tolist() == [0, 1, 2]
    assert len(view.words("nvfp4", 2, 2).codes) == 0


def test_words_survive_a_reshape_that_leaves_the_rows() -> None:
    folded = views.reshape(encoded(4, 6, 8, divisors=(1.0, 2.0, 3.0, 4.0)), (24, 8))
    expert = views.take_rows(folded, 15, 18)
    assert (expert.exact, expert.identical, expert.shape) == (("nvfp4",), "nvfp4", (3, 8))
    assert expert.words("nvfp4", 0, 3).codes[:, 0].tolist() == [15, 16, 17]
    assert expert.encoding is not None
    assert expert.encoding.divisors == (3.0,)


@pytest.mark.parametrize("view", [views.reshape(encoded(4, 8), (8, 4)), views.transpose(encoded(4, 8))])
def test_what_is_rearranged_has_values_but_no_words(view: Source) -> None:
    assert (view.exact, view.identical) == ((), None)
    assert view.encoding is not None
    assert (view.encoding.details, view.encoding.divisors) == ("details", ())
    assert view.encoding.activations == {"w.input_scale": (2.0,)}
    assert "rearranged" in view.encoding.unfit
    assert len(view.values(0, 32).array) == 32
    with pytest.raises(SourceError, match="w: is read rearranged or computed, so it holds no words of nvfp4"):
        view.words("nvfp4", 0, 4)


def test_plain_sources_have_no_encoding_under_any_view() -> None:
    source = Numbered((4, 8))
    for view in (views.take_rows(source, 0, 2), views.reshape(source, (8, 4)), views.transpose(source)):
        assert view.encoding is None


def test_a_ggufs_blocks_keep_their_columns_and_say_how_they_stand() -> None:
    source = Numbered((4, 8), "Q8_0", ("gguf_q8_0", "q8_g32_fp16"), "gguf_q8_0")
    view = views.gather_columns(source, ((4, 8), (0, 4)))
    assert (view.exact, view.identical, view.nbytes) == (("gguf_q8_0",), "gguf_q8_0", 128)
    assert view.encoding is not None
    assert (view.encoding.columns, view.encoding.details) == (((4, 8), (0, 4)), "columns in an order of their own")
    assert "only a gguf_* format" in view.encoding.unfit
    assert view.words("gguf_q8_0", 1, 3).codes[:, 0].tolist() == [1, 2]
    assert [origin.selection for origin in view.origins] == ["columns 4:8+0:4"]
    with pytest.raises(SourceError, match="holds no words of q8_g32_fp16"):
        view.words("q8_g32_fp16", 0, 1)
    rows = views.take_rows(view, 1, 3)
    assert rows.encoding == view.encoding
    assert rows.values(0, 8).array.tolist() == [12, 13, 14, 15, 8, 9, 10, 11]


@pytest.mark.parametrize("runs", [(), ((0, 8),) * 2, ((0, 4),), ((0, 4), (5, 8)), ((0, 9),), ((0, 4), (3, 8))])
def test_columns_that_are_no_permutation(runs: Runs) -> None:
    with pytest.raises(IndexError, match="no permutation"):
        views.gather_columns(Numbered((4, 8)), runs)


NUMBERS = np.array([1.0, 1.5, 0.0, -2.0, 1e-6, 3.14159274, np.inf], np.float32)


@dataclass
class Stored(Numbered):
    """A source of given words."""

    array: NDArray[Any] = field(default_factory=lambda: NUMBERS)

    def values(self, begin: int, end: int) -> Values:
        return Values(self.array[begin:end], self.stored)


def of_type(stored: str, numbers: NDArray[np.float32]) -> Stored:
    words: dict[str, NDArray[Any]] = {
        "F32": numbers,
        "F64": numbers.astype(np.float64),
        "F16": numbers.astype(np.float16).view(np.uint16),
        "BF16": (numbers.view(np.uint32) >> 16).astype(np.uint16),
    }
    return Stored((len(numbers),), stored, array=words[stored])


def read_as(stored: str, numbers: NDArray[np.float32]) -> NDArray[Any]:
    array = of_type(stored, numbers).array
    if stored == "F16":
        return array.view(np.float16).astype(np.float32)
    return (array.astype(np.uint32) << 16).view(np.float32) if stored == "BF16" else array


@pytest.mark.parametrize("stored", ["F32", "F64", "F16", "BF16"])
def test_a_sum_is_rounded_once(stored: str) -> None:
    view = views.add(of_type(stored, NUMBERS), -1)
    wide = "F64" if stored == "F64" else "F32"
    assert (view.stored, view.identical, view.exact, view.encoding) == (
        wide,
        "fp32" if wide == "F32" else None,
        (),
        None,
    )
    values = view.values(1, 7)
    expected = read_as(stored, NUMBERS)[1:7]
    assert values.stored == wide
    assert values.array.tolist() == (expected - expected.dtype.type(1)).tolist()
    assert [origin.selection for origin in view.origins] == ["plus -1"]
    assert view.values(2, 2).array.tolist() == []


@pytest.mark.parametrize("stored", ["F32", "F64", "F16", "BF16"])
def test_a_logarithm_is_taken_in_binary64(stored: str) -> None:
    numbers = np.array([-1.0, -0.5, -2.718281828, -1e-6, -65504.0], np.float32)
    view = views.log_neg(of_type(stored, numbers))
    assert (view.stored, view.identical, view.exact) == ("F32", "fp32", ())
    wide = read_as(stored, numbers).astype(np.float64)
    values = view.values(0, 5)
    assert values.array.dtype == np.float32
    assert values.array.tolist() == [np.float32(math.log(-number)) for number in wide]


@pytest.mark.parametrize("bad", [0.0, 1.0, np.nan, -0.0])
def test_what_has_no_logarithm_is_refused_with_its_place(bad: float) -> None:
    view = views.log_neg(of_type("F32", np.array([-1.0, -1.0, bad], np.float32)))
    assert view.values(0, 2).array.tolist() == [0.0, 0.0]
    with pytest.raises(SourceError, match=r"w: element 2 is \S+, and has no logarithm of its negative"):
        view.values(1, 3)


def test_what_is_computed_has_no_words() -> None:
    for view in (views.add(encoded(4, 8), 1), views.log_neg(encoded(4, 8))):
        assert (view.exact, view.identical, view.stored) == ((), "fp32", "F32")
        with pytest.raises(SourceError, match="holds no words of nvfp4"):
            view.words("nvfp4", 0, 4)


@pytest.mark.parametrize("runs", [(), ((0, 2), (3, 5)), ((2, 2),), ((-1, 1),)])
def test_rows_that_are_not_there(runs: Runs) -> None:
    with pytest.raises(IndexError, match="are no part of"):
        views.gather_rows(Numbered((4, 8)), runs)


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(IndexError, match="cannot be taken as"):
        views.reshape(Numbered((4, 8)), (4, 9))
    with pytest.raises(IndexError, match="has no two axes"):
        views.transpose(Numbered((4,)))
