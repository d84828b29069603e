"""Codes of encoded checkpoints: unpacked, and decoded under scales of any grid (encoded-sources.md 4 to 8).

One rule serves every encoding: value = (meaning of the code - zero point) * scale, taken in binary64 and rounded to
binary32 once. The binary64 product is exact where codes of up to 8 bits meet scales of up to 44.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ninfer_convert.kernels.compile import inline, kernel
from ninfer_convert.kernels.decode import rounded_f32
from ninfer_convert.kernels.scalars import e2m1_to_f32, e4m3_to_f32, f32_to_f64, f32_word, word_f64
from ninfer_convert.kernels.stored import to_f64

_LEAST_NORMAL = 2.0**-126


@kernel
def widen(words: Any, half: bool, out: Any) -> None:
    """Float words [n] (see `kernels.stored`) as the float64 [n] they mean, exactly."""
    for i in range(len(words)):
        out[i] = word_f64(to_f64(words[i], half))


@kernel
def e4m3_values(out: Any) -> None:
    """What each of the 256 E4M3FN words means, float64."""
    for word in range(256):
        out[word] = word_f64(f32_to_f64(e4m3_to_f32(word)))


@kernel
def e2m1_values(out: Any) -> None:
    """What each of the 16 E2M1 words means, float64."""
    for word in range(16):
        out[word] = word_f64(f32_to_f64(e2m1_to_f32(word)))


@kernel
def decode_scaled(codes: Any, meanings: Any, scales: Any, zeros: Any, scale_rows: Any, edges: Any, out: Any) -> None:
    """Codes uint8 [rows, K] into the uint32 words [rows, K] of binary32.

    `meanings` float64 [n] gives each code's value. Row r is scaled by `scales[scale_rows[r], g]` (float64) where its
    column lies in [edges[g], edges[g + 1]), after `zeros` of the same place is taken off (None: nothing is). Rows of
    one scale row stand together, so a table of all products serves them all, where it is not longer than they are.
    """
    table = np.empty(len(meanings), np.uint32)
    begin = 0
    while begin < len(scale_rows):
        end = begin + 1
        while end < len(scale_rows) and scale_rows[end] == scale_rows[begin]:
            end += 1
        for g in range(scales.shape[1]):
            scale = scales[scale_rows[begin], g]
            zero = 0.0
            if zeros is not None:
                zero = zeros[scale_rows[begin], g]
            first, last = edges[g], edges[g + 1]
            if (end - begin) * (last - first) < len(meanings):
                for row in range(begin, end):
                    for k in range(first, last):
                        out[row, k] = _rounded((meanings[codes[row, k]] - zero) * scale)
                continue
            for code in range(len(meanings)):
                table[code] = _rounded((meanings[code] - zero) * scale)
            for row in range(begin, end):
                for k in range(first, last):
                    out[row, k] = table[codes[row, k]]
        begin = end


@inline
def _rounded(value: Any) -> Any:
    """The uint32 word of a binary64 number rounded to binary32; the processor may only flush what is subnormal."""
    if abs(value) >= _LEAST_NORMAL:
        return f32_word(np.float32(value))
    return rounded_f32(value)


@kernel
def multiply_columns(words: Any, factors: Any, out: Any) -> None:
    """Binary32 words uint32 [rows, K], each times the float64 factor of its column, rounded to binary32 once."""
    for row in range(words.shape[0]):
        for k in range(words.shape[1]):
            out[row, k] = _rounded(word_f64(f32_to_f64(words[row, k])) * factors[k])


@kernel
def find_nan(codes: Any) -> Any:
    """Flat index of the first E4M3FN word that is NaN in uint8 [rows, K], -1 if there is none."""
    for row in range(codes.shape[0]):
        largest = np.uint8(0)
        for k in range(codes.shape[1]):
            largest = max(largest, np.uint8(codes[row, k] & 0x7F))
        if largest == 0x7F:
            for k in range(codes.shape[1]):
                if codes[row, k] & 0x7F == 0x7F:
                    return row * codes.shape[1] + k
    return -1


@kernel
def unpack_dense(packed: Any, bits: int, out: Any) -> None:
    """Element k of a row's little-endian bit stream, bits [k * bits, (k + 1) * bits): uint8 [rows, B] to [rows, K]."""
    mask = (1 << bits) - 1
    for row in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[row, k] = (_window(packed[row], k * bits) & mask) & 0xFF


@inline
def _window(stream: Any, bit: Any) -> Any:
    """The bits from `bit` on, at least eight of them where the stream is so long."""
    at = bit >> 3
    low = np.int64(stream[at])
    if at + 1 < len(stream):
        low |= np.int64(stream[at + 1]) << 8
    return low >> (bit & 7)


@kernel
def unpack_down(words: Any, bits: int, out: Any) -> None:
    """GPTQ: field i of the uint32 word [r, n] is code (n, r * (32 / bits) + i) of uint8 [rows, K]."""
    fields = 32 // bits
    mask = np.uint32((1 << bits) - 1)
    for n in range(words.shape[1]):
        for r in range(words.shape[0]):
            word = words[r, n]
            for i in range(fields):
                out[n, r * fields + i] = word & mask
                word = np.uint32(word >> np.uint32(bits))


@kernel
def unpack_across(words: Any, order: Any, out: Any) -> None:
    """AWQ: nibble i of the uint32 word [k, c] is code (8 * c + order[i], k) of uint8 [8 * C, K]."""
    for c in range(words.shape[1]):
        for k in range(words.shape[0]):
            word = words[k, c]
            for i in range(8):
                out[8 * c + order[i], k] = word & np.uint32(15)
                word = np.uint32(word >> np.uint32(4))


@kernel
def count_exponents(packed: Any, exponents: Any, counts: Any) -> None:
    """Add to int64 [256] how many groups have each E8M0 exponent, groups of zero codes alone left out.

    `packed` is uint8 [groups, 16], two E2M1 codes to a byte; `exponents` uint8 [groups].
    """
    for group in range(len(exponents)):
        magnitudes = np.uint8(0)
        for byte in range(16):
            magnitudes |= packed[group, byte] & np.uint8(0x77)
        if magnitudes != 0:
            counts[exponents[group]] += 1
