"""How far values lie from the ones they stand for: the measures, and the sums they are taken from.

Sums are added in the order of their chunks, one after the other, so that no thread and no library changes a bit.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEASURES: MappingProxyType[str, Literal["above", "below"]] = MappingProxyType(
    {"max": "above", "rms": "above", "relative": "above", "sqnr": "below", "cosine": "below"}
)
"""Every measure by its name in `Metrics`, and on which side of a threshold it is worse."""


@dataclass(frozen=True)
class Metrics:
    """Errors of values against their reference, over the pairs of which both are finite.

    Without any error `sqnr` is infinite, also where the reference is all zero; an error against a reference of zeros
    is infinite by `relative` and `sqnr`. Without any pair there is no error.
    """

    max: float
    """The largest absolute error."""
    rms: float
    """The root of the mean squared error."""
    relative: float
    """The root of squared errors over squared reference values."""
    sqnr: float
    """Squared reference values over squared errors, in dB."""
    cosine: float
    """The cosine of the angle between values and reference; 1 where there is no error, 0 where one is all zero."""

    def passes(self, measure: str, threshold: float) -> bool:
        """Whether a measure lies on the good side of `threshold`, or on it."""
        value: float = getattr(self, measure)
        return value <= threshold if MEASURES[measure] == "above" else value >= threshold


@dataclass(frozen=True)
class Sums:
    """Sums over pairs of a value and its reference, as `kernels.metrics.sum_pairs` gives them."""

    pairs: int = 0
    counted: int = 0
    """Pairs of two finite values: those that are summed."""
    agreeing: int = 0
    """Pairs of two NaNs or of the same infinity."""
    noise: float = 0.0
    values: float = 0.0
    references: float = 0.0
    products: float = 0.0
    largest: float = 0.0

    @classmethod
    def of(cls, pairs: int, counts: NDArray[Any], sums: NDArray[Any]) -> Sums:
        """The sums of all chunks; `counts` and `sums` hold a row for each."""
        from ninfer_convert.kernels.metrics import AGREEING, COUNTED, LARGEST

        noise, values, references, products = (_in_order(sums[:, kind].tolist()) for kind in range(LARGEST))
        counted, agreeing = counts[:, COUNTED].sum(), counts[:, AGREEING].sum()
        largest = float(sums[:, LARGEST].max())
        return cls(pairs, int(counted), int(agreeing), noise, values, references, products, largest)

    def __add__(self, other: Sums) -> Sums:
        both = zip(astuple(self), astuple(other), strict=True)
        return replace(Sums(*(a + b for a, b in both)), largest=max(self.largest, other.largest))

    @property
    def disagreeing(self) -> int:
        """Pairs of a finite and another value, of a NaN and an infinity, of two infinities."""
        return self.pairs - self.counted - self.agreeing

    @property
    def metrics(self) -> Metrics:
        if self.noise == 0.0:
            return Metrics(self.largest, 0.0, 0.0, math.inf, 1.0)
        both = math.sqrt(self.values) * math.sqrt(self.references)
        return Metrics(
            max=self.largest,
            rms=math.sqrt(self.noise / self.counted),
            relative=math.sqrt(self.noise / self.references) if self.references else math.inf,
            sqnr=10 * (math.log10(self.references) - math.log10(self.noise)) if self.references else -math.inf,
            cosine=min(max(self.products / both, -1.0), 1.0) if both else 0.0,
        )


def _in_order(numbers: list[float]) -> float:
    """Their sum from left to right (the built-in one is exact or not by Python's version)."""
    total = 0.0
    for number in numbers:
        total += number
    return total
