"""Views undone: what they look at comes back out of what they show, its words too where nodes keep them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from ninfer_convert.values import Encoding, Origin, Shape, Source, Values, Words

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Held:
    """A source of these words; the words of its rows are the numbers of these."""

    array: Array
    stored: str = "F32"
    exact: tuple[str, ...] = ()
    identical: str | None = "fp32"
    encoding: Encoding | None = None
    name: str = "w"

    @property
    def shape(self) -> Shape:
        return self.array.shape

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)

    @property
    def origins(self) -> list[Origin]:
        return [Origin("model", "m.safetensors", self.name, self.stored)]

    def values(self, begin: int, end: int) -> Values:
        assert 0 <= begin <= end <= self.array.size
        return Values(self.array.reshape(-1)[begin:end], "F32" if self.exact else self.stored)

    def words(self, format: str, begin: int, end: int) -> Words:
        assert format in self.exact
        return Words(self.array.reshape(-1, self.shape[-1])[begin:end].astype(np.uint8))


def numbered(*shape: int, first: int = 0, **options: Any) -> Held:
    return Held(np.arange(first, first + prod(shape), dtype=np.float32).reshape(shape), **options)


def shown(view: Source) -> Held:
    """The elements of a view, held by themselves."""
    return Held(view.values(0, prod(view.shape)).array.reshape(view.shape))


@st.composite
def partition(draw: st.DrawFn, root: Source) -> list[Source]:
    """Views that show each element of the root once, under up to three nodes each."""
    parts = [root]
    for _ in range(draw(st.integers(0, 3))):
        view = parts.pop(draw(st.integers(0, len(parts) - 1)))
        node = draw(st.sampled_from(["rows", "columns", "reshape", "transpose"]))
        count = prod(view.shape)
        if node == "rows":
            edges = sorted({0, view.shape[0], *draw(st.lists(st.integers(0, view.shape[0]), max_size=4))})
            runs = draw(st.permutations(list(pairwise(edges))))
            cut = draw(st.integers(1, len(runs)))
            parts += [views.gather_rows(view, tuple(own)) for own in (runs[:cut], runs[cut:]) if own]
        elif node == "columns":
            edges = sorted({0, view.shape[-1], *draw(st.lists(st.integers(0, view.shape[-1]), max_size=3))})
            parts.append(views.gather_columns(view, tuple(draw(st.permutations(list(pairwise(edges)))))))
        elif node == "reshape":
            rows = draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
            parts.append(views.reshape(view, draw(st.sampled_from([(rows, count // rows), (rows, 1, count // rows)]))))
        else:
            parts.append(views.transpose(view) if len(view.shape) > 1 else view)
    return parts


@given(st.data())
def test_whatever_shows_all_of_a_source_gives_it_back(data: st.DataObject) -> None:
    root = numbered(*data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    parts = data.draw(partition(root))
    again = views.inverse(root, [(part, shown(part)) for part in data.draw(st.permutations(parts))])
    assert (again.shape, again.stored, again.identical) == (root.shape, "F32", "fp32")
    begin = data.draw(st.integers(0, root.array.size))
    end = data.draw(st.integers(begin, root.array.size))
    assert again.values(begin, end).array.tolist() == list(range(begin, end))


def test_views_built_apart_are_equal_where_they_look_in_the_same_way() -> None:
    root, other = numbered(2, 6), numbered(2, 6)
    makes: list[Callable[[Source], Source]] = [
        lambda source: views.take_rows(views.reshape(source, (4, 3)), 1, 3),
        lambda source: views.add(views.transpose(source), -1),
        lambda source: views.log_neg(views.gather_columns(source, ((3, 6), (0, 3)))),
    ]
    for make in makes:
        assert make(root) == make(root)
        assert hash(make(root)) == hash(make(root))
        assert make(root) != make(other)
    assert views.add(root, 1) != views.add(root, 2)
    assert views.take_rows(root, 0, 1) != views.take_rows(root, 1, 2)


def test_parts_whose_nodes_were_built_apart_are_merged() -> None:
    """Experts of a bank: each has its own reshape of it."""
    bank = numbered(3, 4, 5)
    parts = [views.take_rows(views.reshape(bank, (12, 5)), begin, begin + 2) for begin in range(0, 12, 2)]
    again = views.inverse(bank, [(part, shown(part)) for part in reversed(parts)])
    assert again.shape == (3, 4, 5)
    assert again.values(13, 47).array.tolist() == list(range(13, 47))


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([((0, 2),), ((3, 6),)], "rows 2:3 are missing"),
        ([((1, 6),)], "rows 0:1 are missing"),
        ([((0, 5),)], "rows 5:6 are missing"),
        ([((0, 3),), ((2, 6),)], "rows 2:3 are there twice"),
        ([((0, 6),), ((2, 4),)], "rows 2:4 are there twice"),
        ([((4, 6), (0, 1)), ((2, 4),)], "rows 1:2 are missing"),
    ],
)
def test_rows_of_none_or_two(runs: list[Any], said: str) -> None:
    root = numbered(6, 2)
    parts = [views.gather_rows(root, own) for own in runs]
    with pytest.raises(IndexError, match=said):
        views.inverse(root, [(part, shown(part)) for part in parts])


def test_what_shows_everything_in_two_ways_is_there_twice() -> None:
    root = numbered(6, 2)
    for pair in (
        (root, views.transpose(root)),
        (views.reshape(root, (12,)), views.transpose(root)),
        (views.take_rows(root, 0, 6), views.transpose(root)),
    ):
        with pytest.raises(IndexError, match="there twice"):
            views.inverse(root, [(part, shown(part)) for part in pair])


def test_rows_that_one_view_shows_more_than_once() -> None:
    root = numbered(6, 2)
    view = views.gather_rows(root, ((2, 6), (0, 4), (3, 4)))
    assert views.inverse(root, [(view, shown(view))]).values(0, 12).array.tolist() == list(range(12))


def blocks(*shape: int, first: int = 0) -> Held:
    return numbered(*shape, first=first, stored="Q8_0", exact=("gguf_q8_0",), identical="gguf_q8_0")


def test_words_of_merged_rows() -> None:
    root = blocks(6, 3, 2)
    parts = [(((4, 6), (0, 1)), blocks(3, 3, 2)), (((1, 4),), blocks(3, 3, 2, first=18))]
    again = views.merge_rows(root, parts)
    assert (again.stored, again.exact, again.identical) == ("Q8_0", ("gguf_q8_0",), "gguf_q8_0")
    assert again.words("gguf_q8_0", 2, 5).codes.tolist() == [[16, 17], [18, 19], [20, 21]]
    assert again.values(16, 20).array.tolist() == [28, 29, 30, 31]
    assert len(again.words("gguf_q8_0", 7, 7).codes) == len(again.values(9, 9).array) == 0
    with pytest.raises(IndexError):
        again.values(36, 37)
    assert again.nbytes == root.nbytes


def test_parts_of_one_order_of_columns_alone_keep_words() -> None:
    root, turned = blocks(4, 8), ((4, 8), (0, 4))
    one, two = (views.gather_columns(blocks(2, 8), turned) for _ in range(2))
    kept = views.merge_rows(root, [(((0, 2),), one), (((2, 4),), two)])
    assert (kept.exact, kept.encoding) == (("gguf_q8_0",), one.encoding)
    mixed = views.merge_rows(root, [(((0, 2),), one), (((2, 4),), blocks(2, 8))])
    assert (mixed.exact, mixed.identical) == ((), None)
    assert mixed.values(0, 20).array.tolist() == [4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11, 0, 1, 2, 3]


def test_columns_put_back_are_the_words_themselves() -> None:
    data = blocks(2, 8)
    view = views.gather_columns(blocks(2, 8), ((6, 8), (0, 3), (3, 6)))
    assert views.inverse(view.whole, [(view, views.gather_columns(data, view.runs))]) is data  # type: ignore[attr-defined]


def test_parts_of_several_types_are_numbers() -> None:
    half = Held(np.array([0x3F80, 0xC000], np.uint16).reshape(1, 2), "BF16", identical="bf16")
    root = numbered(2, 2)
    again = views.merge_rows(root, [(((1, 2),), half), (((0, 1),), numbered(1, 2))])
    assert (again.stored, again.identical) == ("F32", None)
    assert again.values(1, 4).array.tolist() == [1, 1, -2]
    assert [again.values(begin, begin + 1).array.dtype for begin in range(4)] == [np.float32] * 4
    double = views.merge_rows(root, [(((1, 2),), half), (((0, 1),), Held(np.array([[1e-300, 2]]), "F64"))])
    assert (double.stored, double.values(0, 4).array.tolist()) == ("F64", [1e-300, 2, 1, -2])
    alike = views.merge_rows(root, [(((1, 2),), half), (((0, 1),), Held(half.array, "BF16", identical="bf16"))])
    assert (alike.stored, alike.identical) == ("BF16", "bf16")
    assert alike.values(0, 4).array.tolist() == [0x3F80, 0xC000] * 2


def test_what_was_computed_is_computed_back() -> None:
    root = numbered(3)
    plus = views.add(root, 1)
    assert views.inverse(root, [(plus, shown(plus))]).values(0, 3).array.tolist() == [0, 1, 2]
    decays = Held(np.array([-1.0, -0.25, -20.0], np.float32))
    logarithms = views.log_neg(decays)
    again = views.inverse(decays, [(logarithms, shown(logarithms))])
    assert np.allclose(again.values(0, 3).array, decays.array, rtol=1e-6)
    assert [origin.selection for origin in again.origins] == ["negative of the exponential"]


def test_an_exponential_beyond_binary32_is_refused() -> None:
    view = views.neg_exp(Held(np.array([0.0, 88.0, 89.0, np.nan], np.float32)))
    assert view.values(0, 2).array.tolist() == [-1, -np.exp(np.float64(88)).astype(np.float32)]
    with pytest.raises(SourceError, match=r"w: element 2 is 89\.0, and binary32 has no exponential of it"):
        view.values(1, 4)
    with pytest.raises(SourceError, match="element 3 is nan"):
        view.values(3, 4)
