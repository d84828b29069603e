"""Words of stored numbers as plain integers, and what NumPy tells of them at the speed of memory.

Nothing here is compiled, so that work which only copies words does not load Numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

F16_INFINITY = 0x7C00
BF16_INFINITY = 0x7F80
F32_INFINITY = 0x7F800000
F32_MAGNITUDE = 0x7FFFFFFF
F64_INFINITY = 0x7FF << 52
F64_MAGNITUDE = (1 << 63) - 1
E4M3_LARGEST = 0x7E
E4M3_NAN = 0x7F

_INFINITIES = {2: BF16_INFINITY, 4: F32_INFINITY, 8: F64_INFINITY}


def count_non_finite(words: Any, half: bool) -> int:
    """How many words are NaN or infinite; `words` and `half` as in `stored`."""
    if not words.size:
        return 0
    infinity = F16_INFINITY if half else _INFINITIES[words.itemsize]
    sign = 1 << 8 * words.itemsize - 1
    # As integers of either kind, the words of one sign that lie at infinity or beyond are the largest of all.
    if words.view(f"i{words.itemsize}").max() < infinity and words.max() < sign | infinity:
        return 0
    return int(np.count_nonzero((words & words.dtype.type(sign - 1)) >= infinity))
