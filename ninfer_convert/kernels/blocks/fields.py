"""Reading the fields of one block: `block` is its bytes, `at` a byte's index. For use inside kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ninfer_convert.kernels.compile import inline
from ninfer_convert.kernels.scalars import f16_to_f32, word_f32


@inline
def half(block: Any, at: int) -> Any:
    """The binary16 number at byte `at`, as float32."""
    return half_word(word16(block, at))


@inline
def half_word(word: Any) -> Any:
    """A binary16 word as float32."""
    return word_f32(f16_to_f32(word))


@inline
def word16(block: Any, at: int) -> Any:
    """The unsigned 16-bit word at byte `at`."""
    return block[at] | (block[at + 1] << 8)


@inline
def word32(block: Any, at: int) -> Any:
    """The unsigned 32-bit word at byte `at`."""
    return word16(block, at) | (word16(block, at + 2) << 16)


@inline
def nibble(block: Any, index: int) -> Any:
    """The four-bit number `index` of the bytes that begin at `block`, the low half of a byte first."""
    return (block[index // 2] >> (index % 2 * 4)) & 15


@inline
def real(code: Any) -> Any:
    """A small whole number as float32; from 32 bits, which vector units convert and 64 they may not."""
    return np.float32(np.int32(code))
