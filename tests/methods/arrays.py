"""A source over words in memory, and jobs that take all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ninfer_convert.errors import NumericError, Problem
from ninfer_convert.formats import get_format
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.methods import METHODS, Job
from ninfer_convert.values import Encoding, Origin, Values, Words

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Words of a stored type; `decoded_as` where the values come out as another (an encoded source's float32)."""

    array: Array
    stored: str
    name: str = "model.weight"
    decoded_as: str | None = None
    selection: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    @property
    def origins(self) -> Sequence[Origin]:
        return (Origin("model", "folder/model.safetensors", self.name, self.stored, self.selection),)

    @property
    def identical(self) -> str | None:
        return stored_type(self.stored).identical

    @property
    def exact(self) -> Sequence[str]:
        return ()

    @property
    def encoding(self) -> Encoding | None:
        return None

    def values(self, begin: int, end: int) -> Values:
        return Values(self.array.reshape(-1)[begin:end].copy(), self.decoded_as or self.stored)

    def words(self, format: str, begin: int, end: int) -> Words:
        raise NotImplementedError


def source(array: Array, stored: str, **facts: Any) -> ArraySource:
    """A source of an array, which may be given as floats for F16 and as float32 cut short for BF16."""
    if stored == "F16" and array.dtype.kind == "f":
        array = array.astype(np.float16).view(np.uint16)
    elif stored == "BF16" and array.dtype.kind == "f":
        array = (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if not facts.get("decoded_as"):
        assert array.dtype == stored_type(stored).numpy
    return ArraySource(array, stored, **facts)


def job(of: ArraySource, format: str, non_finite: str = "warn", **facts: Any) -> Job:
    """All of a source in a format: folded to rows of the last axis, or element by element for direct formats."""
    columns = 1 if get_format(format).category == "direct" else of.shape[-1]
    return Job(
        of, get_format(format), prod(of.shape) // columns, columns, facts.pop("parameters", {}), non_finite, **facts
    )


def encode(method: str, of: ArraySource, format: str, begin: int = 0, end: int | None = None) -> Words:
    """The words of rows [begin, end) of a source, None for all behind."""
    whole = job(of, format)
    return METHODS[method].encoder(whole)(begin, whole.rows if end is None else end)


def refusals(method: str, of: ArraySource, format: str) -> list[Problem]:
    """The problems with which a source is refused; each says which it is."""
    with pytest.raises(NumericError) as caught:
        encode(method, of, format)
    for problem in caught.value.problems:
        assert problem.tensor == of.name
        assert problem.path == "folder/model.safetensors"
    return list(caught.value.problems)


def as_lists(words: Words, codes: str) -> tuple[Any, Any]:
    """Codes, which are of this dtype, and binary16 or bfloat16 words of scales."""
    assert words.scales is not None
    assert words.codes.dtype == codes
    assert words.scales.dtype == "uint16"
    return words.codes.tolist(), words.scales.tolist()
