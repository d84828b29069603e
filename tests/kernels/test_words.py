"""Counting NaN and infinite words, against NumPy's and `struct`'s own reading of them."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_convert.kernels.words import count_non_finite

WIDTHS = {"<e": 2, "<f": 4, "<d": 8}


def is_finite(word: int, code: str) -> bool:
    return math.isfinite(struct.unpack(code, word.to_bytes(WIDTHS[code], "little"))[0])


@pytest.mark.parametrize("half", [False, True])
def test_every_word_of_sixteen_bits(half: bool) -> None:
    for word in range(1 << 16):
        finite = is_finite(word, "<e") if half else is_finite(word << 16, "<f")
        assert count_non_finite(np.array([0, word, 0x8000], np.uint16), half) == (not finite)


@pytest.mark.parametrize(("code", "half"), [("<e", True), ("<f", False), ("<d", False)])
@given(data=st.data())
def test_several_words(code: str, half: bool, data: st.DataObject) -> None:
    width = WIDTHS[code]
    infinity = int.from_bytes(struct.pack(code, math.inf), "little")
    near = st.integers(-2, 2).map(lambda step: infinity + step)
    magnitude = st.one_of(st.integers(0, (1 << 8 * width - 1) - 1), near)
    words = data.draw(
        st.lists(st.builds(lambda word, sign: word | sign << 8 * width - 1, magnitude, st.integers(0, 1)))
    )
    array = np.array(words, f"<u{width}")
    assert count_non_finite(array, half) == sum(not is_finite(word, code) for word in words)
