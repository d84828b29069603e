"""Values that are computed from the stored ones, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.sources.labels import label
from ninfer_convert.sources.views.base import View, numbers
from ninfer_convert.values import Values

if TYPE_CHECKING:
    from ninfer_convert.values import Shape, Source


def add(source: Source, constant: float) -> Source:
    """Each value plus a number, in binary32, or in binary64 where the source is; no words."""
    return _Added(source, constant)


def log_neg(source: Source) -> Source:
    """The natural logarithm of each value's negative, in binary64, rounded to binary32; no words.

    Reading raises SourceError for a value that is not below zero.
    """
    return _LogNeg(source)


def neg_exp(source: Source) -> Source:
    """The negative of each value's exponential, in binary64, rounded to binary32; no words.

    Reading raises SourceError for a value whose exponential binary32 does not hold.
    """
    return _NegExp(source)


@dataclass(frozen=True)
class _Computed(View):
    """Values that are not stored: binary32, or binary64 where the source is."""

    @property
    def stored(self) -> str:
        return "F64" if self.whole.stored == "F64" else "F32"

    @property
    def shape(self) -> Shape:
        return self.whole.shape

    @property
    def identical(self) -> str | None:
        return stored_type(self.stored).identical


@dataclass(frozen=True)
class _Added(_Computed):
    constant: float

    @property
    def selection(self) -> str:
        return f"plus {self.constant:g}"

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order."""
        read = numbers(self.whole.values(begin, end))
        return Values(read + read.dtype.type(self.constant), self.stored)

    def undone(self, data: Source) -> Source:
        return add(data, -self.constant)


@dataclass(frozen=True)
class _LogNeg(_Computed):
    @property
    def stored(self) -> str:
        return "F32"

    @property
    def selection(self) -> str:
        return "logarithm of the negative"

    def undone(self, data: Source) -> Source:
        return neg_exp(data)

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order."""
        import numpy as np

        read = numbers(self.whole.values(begin, end)).astype(np.float64)
        wrong = ~(read < 0)
        if wrong.any():
            at = int(np.argmax(wrong))
            message = f"{label(self.name)}: element {begin + at} is {read[at]}, and has no logarithm of its negative"
            raise SourceError(Problem("not-negative", message, path=self.origins[0].file, tensor=self.name))
        return Values(np.log(-read).astype(np.float32), self.stored)


@dataclass(frozen=True)
class _NegExp(_Computed):
    @property
    def stored(self) -> str:
        return "F32"

    @property
    def selection(self) -> str:
        return "negative of the exponential"

    def undone(self, data: Source) -> Source:
        return log_neg(data)

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order."""
        import numpy as np

        read = numbers(self.whole.values(begin, end)).astype(np.float64)
        with np.errstate(over="ignore"):
            made = -np.exp(read).astype(np.float32)
        wrong = ~np.isfinite(made)
        if wrong.any():
            at = int(np.argmax(wrong))
            message = f"{label(self.name)}: element {begin + at} is {read[at]}, and binary32 has no exponential of it"
            raise SourceError(Problem("made-infinite", message, path=self.origins[0].file, tensor=self.name))
        return Values(made, self.stored)
