"""Values that are computed from the stored ones, element by element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.sources.labels import label
from ninfer_convert.sources.views.base import View
from ninfer_convert.values import Values

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.values import Shape, Source


def add(source: Source, constant: float) -> Source:
    """Each value plus a number, in binary32, or in binary64 where the source is; no words."""
    return _Added(source, constant)


def log_neg(source: Source) -> Source:
    """The natural logarithm of each value's negative, in binary64, rounded to binary32; no words.

    Reading raises SourceError for a value that is not below zero.
    """
    return _LogNeg(source)


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
class _Added(_Computed):
    constant: float

    @property
    def selection(self) -> str:
        return f"plus {self.constant:g}"

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order."""
        numbers = _numbers(self.whole.values(begin, end))
        return Values(numbers + numbers.dtype.type(self.constant), self.stored)


@dataclass(frozen=True, eq=False)
class _LogNeg(_Computed):
    @property
    def stored(self) -> str:
        return "F32"

    @property
    def selection(self) -> str:
        return "logarithm of the negative"

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order."""
        import numpy as np

        numbers = _numbers(self.whole.values(begin, end)).astype(np.float64)
        wrong = ~(numbers < 0)
        if wrong.any():
            at = int(np.argmax(wrong))
            message = f"{label(self.name)}: element {begin + at} is {numbers[at]}, and has no logarithm of its negative"
            raise SourceError(Problem("not-negative", message, path=self.origins[0].file, tensor=self.name))
        return Values(np.log(-numbers).astype(np.float32), self.stored)


def _numbers(values: Values) -> NDArray[np.floating]:
    """Float values as the numbers they mean."""
    import numpy as np

    from ninfer_convert.kernels.cast import floats_to_f32

    if values.stored not in ("BF16", "F16"):
        return values.array
    wide = np.empty(values.array.shape, np.uint32)
    floats_to_f32(values.array, values.stored == "F16", wide)
    return wide.view(np.float32)
