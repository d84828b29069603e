"""Rows of a source: the same elements and words, under the same name, with the selection recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_convert.sources.views import take_rows
from ninfer_convert.values import Encoding, Origin, Shape, Source, Values, Words


@dataclass
class Counted:
    """A source whose element n is n, and whose words of row r are r."""

    shape: Shape
    name: str = "bank"
    stored: str = "NVFP4"
    identical: str = "nvfp4"
    exact: Sequence[str] = ("nvfp4",)
    encoding: Encoding | None = None
    reads: list[tuple[int, int]] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * 4

    @property
    def origins(self) -> Sequence[Origin]:
        return [Origin("model", "m.safetensors", f"{self.name}.{part}", "U8") for part in ("codes", "scales")]

    def values(self, begin: int, end: int) -> Values:
        self.reads.append((begin, end))
        return Values(np.arange(begin, end, dtype=np.float32), "F32")

    def words(self, format: str, begin: int, end: int) -> Words:
        assert format == "nvfp4"
        return Words(np.arange(begin, end, dtype=np.uint8).reshape(-1, 1))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.data())
def test_rows_are_the_elements_of_those_rows(shape: list[int], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, shape[0] - 1))
    end = data.draw(st.integers(begin + 1, shape[0]))
    whole = np.arange(prod(shape)).reshape(shape)
    view = take_rows(Counted(tuple(shape)), begin, end)
    expected = whole[begin:end]
    assert view.shape == expected.shape
    assert view.nbytes == expected.size * 4
    first = data.draw(st.integers(0, expected.size))
    last = data.draw(st.integers(first, expected.size))
    assert view.values(first, last).array.tolist() == expected.reshape(-1)[first:last].tolist()


def test_words_count_the_folded_rows_of_a_bank() -> None:
    view = take_rows(Counted((4, 3, 8)), 1, 3)
    assert (view.identical, view.exact) == ("nvfp4", ("nvfp4",))
    assert view.words("nvfp4", 0, 6).codes.ravel().tolist() == [3, 4, 5, 6, 7, 8]
    assert view.words("nvfp4", 2, 3).codes.ravel().tolist() == [5]
    assert take_rows(Counted((4, 8)), 1, 3).words("nvfp4", 0, 2).codes.ravel().tolist() == [1, 2]


@pytest.mark.parametrize(("divisors", "expected"), [((), ()), ((2.0,), (2.0,)), ((1.0, 2.0, 3.0, 4.0), (2.0, 3.0))])
def test_rows_of_a_bank_keep_the_divisors_of_their_own_matrices(
    divisors: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    view = take_rows(Counted((4, 3, 8), encoding=Encoding("d", divisors=divisors, input_divisor=5.0)), 1, 3)
    assert view.encoding == Encoding("d", divisors=expected, input_divisor=5.0)
    assert take_rows(Counted((4, 3, 8)), 1, 3).encoding is None


def test_rows_of_rows_are_rows_of_the_whole() -> None:
    source: Source = Counted((10, 2))
    view = take_rows(take_rows(source, 2, 9), 3, 5)
    assert view.values(0, 4).array.tolist() == [10, 11, 12, 13]
    assert [origin.selection for origin in view.origins] == ["rows 5:7", "rows 5:7"]
    assert [origin.tensor for origin in view.origins] == ["bank.codes", "bank.scales"]
    assert (view.name, view.stored) == ("bank", "NVFP4")


def test_nothing_is_read_before_it_is_asked_for() -> None:
    source = Counted((10, 2))
    view = take_rows(source, 2, 9)
    assert (view.shape, view.nbytes, source.reads) == ((7, 2), 56, [])
    view.values(1, 3)
    assert source.reads == [(5, 7)]


@pytest.mark.parametrize(("begin", "end"), [(-1, 2), (0, 5), (3, 3), (3, 2)])
def test_rows_that_are_not_there(begin: int, end: int) -> None:
    with pytest.raises(IndexError):
        take_rows(Counted((4, 2)), begin, end)


def test_a_scalar_has_no_rows() -> None:
    with pytest.raises(IndexError):
        take_rows(Counted(()), 0, 1)


def test_rows_of_rows_stay_within_them() -> None:
    with pytest.raises(IndexError):
        take_rows(take_rows(Counted((10, 2)), 2, 5), 0, 4)
