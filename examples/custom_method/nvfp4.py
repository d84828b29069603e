"""NVFP4 from values, round to nearest: a method that ninfer-convert does not have, as a recipe's own function.

    ninfer-convert examples/tiny-llama -r examples/custom_method/nvfp4.toml --allow-code

A value is stored as code * scale / divisor: a 4-bit E2M1 code, an E4M3 scale for 16 of them along a row, and one
float32 divisor for the whole matrix, which gives the largest group the largest scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float32]

GROUP = 16
MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
"""What the codes 0 to 7 mean; 8 to 15 are their negatives."""

_WORDS = np.arange(127)
_EXPONENTS, _FRACTIONS = _WORDS >> 3, _WORDS & 7
SCALES = np.where(_EXPONENTS == 0, _FRACTIONS * 2.0**-9, (8 + _FRACTIONS) * 2.0 ** (_EXPONENTS - 10)).astype(np.float32)
"""What the E4M3 words 0 to 126 mean: 0 to 448."""


def nearest(values: Values, table: Values) -> NDArray[np.uint8]:
    """The index of the number in an ascending table that each value is closest to; a tie goes to the even index."""
    middles = (table[1:] + table[:-1]) / 2
    upward = np.arange(1, len(table)) % 2 == 0
    borders = np.where(upward, middles, np.nextafter(middles, np.float32(np.inf)))
    indices: NDArray[np.uint8] = np.searchsorted(borders, values, side="right").astype(np.uint8)
    return indices


def find_divisor(
    read: Callable[[int, int], Values], *, shape: tuple[int, int], format: str, parameters: Mapping[str, Any]
) -> np.float32:
    """Once for each matrix, before its first rows: the divisor that takes its largest magnitude to 6 * 448."""
    rows, _ = shape
    step = 1024
    largest = max(float(np.abs(read(row, min(row + step, rows))).max()) for row in range(0, rows, step))
    divisor: np.float32 = np.float32(6 * 448 / largest if largest else 1)
    return divisor


def round_to_nearest(
    values: Values,
    *,
    first_row: int,
    shape: tuple[int, int],
    format: str,
    parameters: Mapping[str, Any],
    state: np.float32,
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], np.float32]:
    """Codes [rows, columns], scales [rows, columns / 16] and the divisor of some rows of a matrix."""
    rows, columns = values.shape
    groups = values.reshape(rows, columns // GROUP, GROUP) * state
    scales = nearest(np.abs(groups).max(axis=2) / MAGNITUDES[-1], SCALES)
    steps = SCALES[scales][..., None]
    magnitudes = np.divide(np.abs(groups), steps, out=np.zeros_like(groups), where=steps > 0)
    codes = nearest(magnitudes, MAGNITUDES) | np.where(np.signbit(groups), 8, 0).astype(np.uint8)
    return codes.reshape(rows, columns), scales, state


round_to_nearest.prepare = find_divisor  # type: ignore[attr-defined]
