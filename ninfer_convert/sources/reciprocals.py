"""Multipliers as the divisors that stand for them (encoded-sources.md 5.1, 7.5)."""

from __future__ import annotations

from math import isfinite


def reciprocal(multiplier: float) -> float:
    """The divisor that stands for a multiplier: 1 / x rounded to binary32; 0.0 or infinity beyond its range."""
    import numpy as np

    with np.errstate(divide="ignore", over="ignore"):
        return float(np.float32(np.divide(1.0, np.float64(multiplier))))


def is_divisor(number: float) -> bool:
    return isfinite(number) and number > 0
