"""Errors of values against a reference by exact sums (`math.fsum`), one pair at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def metrics(values: Iterable[float], references: Iterable[float]) -> dict[str, float]:
    """max, rms, relative, sqnr and cosine over the pairs of which both are finite."""
    pairs = [(a, b) for a, b in zip(values, references, strict=True) if math.isfinite(a) and math.isfinite(b)]
    noise = math.fsum((a - b) ** 2 for a, b in pairs)
    if noise == 0:
        return {"max": 0.0, "rms": 0.0, "relative": 0.0, "sqnr": math.inf, "cosine": 1.0}
    ours, theirs = _length([a for a, _ in pairs]), _length([b for _, b in pairs])
    return {
        "max": max(abs(a - b) for a, b in pairs),
        "rms": math.sqrt(noise / len(pairs)),
        "relative": math.sqrt(noise) / theirs if theirs else math.inf,
        "sqnr": 20 * math.log10(theirs / math.sqrt(noise)) if theirs else -math.inf,
        "cosine": math.fsum(a * b for a, b in pairs) / ours / theirs if ours and theirs else 0.0,
    }


def _length(vector: Sequence[float]) -> float:
    return math.sqrt(math.fsum(x * x for x in vector))
