"""One step from a stored float word to another, whatever its type; which step is settled when a kernel is compiled.

Arrays of words are uint16 (bfloat16, or binary16 where `half` is set), uint32 (binary32) and uint64 (binary64).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from ninfer_convert.kernels.scalars import bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f64, f64_to_bf16, f64_to_f32
from ninfer_convert.kernels.words import (
    BF16_INFINITY,
    F16_INFINITY,
    F32_INFINITY,
    F32_MAGNITUDE,
    F64_INFINITY,
    F64_MAGNITUDE,
)

Step = Callable[[Any, Any], Any]


def _by_type(uint16: Step, uint32: Step, uint64: Step) -> Step:
    """A function of (word, half) that is the one of these for the word's type."""
    steps = {types.uint16: uint16, types.uint32: uint32, types.uint64: uint64}

    def step(word: Any, half: Any) -> Any:
        raise NotImplementedError("only kernels call it")

    overload(step)(lambda word, half: steps[word])
    return step


to_f32 = _by_type(
    lambda word, half: f16_to_f32(word) if half else bf16_to_f32(word),
    lambda word, half: word,
    lambda word, half: f64_to_f32(word),
)
"""The uint32 word, rounded once where the type is wider."""

to_f64 = _by_type(
    lambda word, half: f32_to_f64(to_f32(word, half)),
    lambda word, half: f32_to_f64(word),
    lambda word, half: word,
)
"""The uint64 word, exact."""

to_bf16 = _by_type(
    lambda word, half: f32_to_bf16(to_f32(word, half)),
    lambda word, half: f32_to_bf16(word),
    lambda word, half: f64_to_bf16(word),
)
"""The uint16 word, rounded once from the stored value."""

excess = _by_type(
    lambda word, half: np.int32(np.int32(word & 0x7FFF) - (F16_INFINITY if half else BF16_INFINITY)),
    lambda word, half: np.int32(np.int32(word & F32_MAGNITUDE) - F32_INFINITY),
    lambda word, half: (np.int64(word) & F64_MAGNITUDE) - F64_INFINITY,
)
"""How far the magnitude word lies beyond infinity's: negative if finite, 0 if infinite, positive if NaN."""
