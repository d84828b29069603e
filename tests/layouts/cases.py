"""Words, payloads and readers that the layout tests share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ninfer_convert.formats import GroupedFormat, get_format
from ninfer_convert.layouts import Read, Tensor, usual_layout
from ninfer_convert.values import Words
from tests.oracle import layouts as oracle

DTYPES = {"bf16": "uint16", "fp32": "uint32", "int32": "int32"}


def tensor(format: str, *shape: int, divisors: int = 1) -> Tensor:
    return Tensor(get_format(format), shape, divisors)


def random_words(of: Tensor, seed: int = 0) -> Words:
    """Legal codes and any scale words for all rows; each share of nvfp4 rows has a divisor of its own."""
    rng = np.random.default_rng(seed)
    name = of.format.name
    if name in DTYPES:
        count = int(np.prod(of.shape))
        raw = rng.integers(0, 256, count * oracle.DIRECT[name], np.uint8)
        return Words(raw.view(DTYPES[name]))
    rows, columns = of.shape
    if isinstance(of.format, GroupedFormat):
        codes = rng.integers(of.format.qmin, of.format.qmax + 1, (rows, columns), np.int8)
        groups = -(-columns // of.format.group)
        return Words(codes, rng.integers(0, 2**16, (rows, groups), np.uint16))
    if name == "nvfp4":
        divisors = np.arange(1, of.divisors + 1, dtype=np.float32).repeat(rows // of.divisors)
        scales = rng.integers(0, 256, (rows, columns // 16), np.uint8)
        return Words(rng.integers(0, 16, (rows, columns), np.uint8), scales, divisors)
    if name in oracle.GGUF:
        values, size = oracle.GGUF[name]
        return Words(rng.integers(0, 256, (rows, columns // values * size), np.uint8))
    return Words(rng.integers(0, 256, (rows, columns), np.uint8), rng.integers(0, 2**16, rows, np.uint16))


def rows_of(words: Words, rows: Any) -> Words:
    return Words(
        words.codes[rows],
        None if words.scales is None else words.scales[rows],
        None if words.divisors is None else words.divisors[rows],
    )


def content(words: Words, divisors: int = 1) -> oracle.Content:
    """The same words as the oracle takes them."""
    scales = [] if words.scales is None else words.scales.tolist()
    shares: list[int] = []
    if words.divisors is not None:
        shares = words.divisors.view(np.uint32)[:: len(words.divisors) // divisors].tolist()
    return oracle.Content(words.codes.tolist(), scales, shares)


def stored(of: Tensor, words: Words, cuts: Sequence[int] = ()) -> bytes:
    """The payload, encoded in pieces that begin at `cuts`; every byte must be written exactly once."""
    layout = usual_layout(of.format.name)
    rows, _ = layout.matrix(of.shape)
    payload = np.zeros(layout.size(of), np.uint8)
    times = np.zeros(layout.size(of), np.uint8)
    bounds = [0, *cuts, rows]
    for begin, end in pairwise(bounds):
        for segment in layout.encode(of, begin, rows_of(words, slice(begin, end))):
            assert segment.data.dtype == np.uint8
            assert segment.data.ndim == 1
            place = slice(segment.offset, segment.offset + segment.data.size)
            assert segment.offset >= 0
            assert place.stop <= payload.size
            payload[place] = segment.data
            times[place] += 1
    assert (times == 1).all()
    return payload.tobytes()


def reader(payload: bytes, spans: list[tuple[int, int]] | None = None) -> Read:
    """Reads from `payload`, noting each (offset, length) in `spans`."""

    def read(offset: int, length: int) -> memoryview:
        assert 0 <= offset <= offset + length <= len(payload)
        if spans is not None:
            spans.append((offset, length))
        return memoryview(payload)[offset : offset + length]

    return read


def assert_same(found: Words, expected: Words) -> None:
    for name in ("codes", "scales", "divisors"):
        a, b = getattr(found, name), getattr(expected, name)
        if b is None:
            assert a is None
        else:
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert a.tobytes() == b.tobytes()
