"""Words to bytes and back, one element at a time, straight from the formulas of layouts.md.

Words are nested lists of whole numbers: codes [N][K] (direct formats: flat; gguf: the bytes of each row), scales
[N][groups] or [N], divisors one word a share. Nothing here is shared with the package.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GROUPED = {  # bits, group
    "q2_g64_fp16": (2, 64),
    "q4_g64_fp16": (4, 64),
    "q5_g64_fp16": (5, 64),
    "q6_g64_fp16": (6, 64),
    "q8_g32_fp16": (8, 32),
    "t2_g128_fp16": (2, 128),
}
DIRECT = {"bf16": 2, "fp32": 4, "int32": 4}
GGUF = {  # block values, block bytes
    "gguf_q8_0": (32, 34),
    "gguf_q4_0": (32, 18),
    "gguf_q5_0": (32, 22),
    "gguf_q2_0": (64, 18),
    "gguf_q2_k": (256, 84),
    "gguf_q3_k": (256, 110),
    "gguf_q4_k": (256, 144),
    "gguf_q5_k": (256, 176),
    "gguf_q6_k": (256, 210),
    "gguf_iq2_xxs": (256, 66),
    "gguf_iq2_xs": (256, 74),
    "gguf_iq3_xxs": (256, 98),
    "gguf_iq1_s": (256, 50),
    "gguf_iq4_nl": (32, 18),
    "gguf_iq3_s": (256, 110),
    "gguf_iq2_s": (256, 82),
    "gguf_iq4_xs": (256, 136),
    "gguf_iq1_m": (256, 56),
}


@dataclass
class Content:
    codes: list[Any]
    scales: list[Any] = field(default_factory=list)
    divisors: list[int] = field(default_factory=list)


def align(number: int, unit: int) -> int:
    while number % unit:
        number += 1
    return number


def encode(format: str, shape: tuple[int, ...], content: Content) -> bytes:
    if format in DIRECT:
        width = DIRECT[format]
        return b"".join((word % 256**width).to_bytes(width, "little") for word in content.codes)
    if format in GROUPED:
        return _encode_grouped(format, shape, content)
    if format in GGUF:
        return bytes(byte for row in content.codes for byte in row)
    if format == "nvfp4":
        return _encode_nvfp4(shape, content)
    if format == "fp8_e4m3fn_row_bf16":
        codes = bytes(code for row in content.codes for code in row)
        scales = b"".join(scale.to_bytes(2, "little") for scale in content.scales)
        return codes + bytes(align(len(codes), 256) - len(codes)) + scales
    assert format == "fp8_e4m3fn_row_fp16"
    return b"".join(
        bytes(row) + scale.to_bytes(2, "little") for row, scale in zip(content.codes, content.scales, strict=True)
    )


def decode(format: str, shape: tuple[int, ...], payload: bytes, divisors: int = 1) -> Content:
    if format in DIRECT:
        width = DIRECT[format]
        signed = format == "int32"
        starts = range(0, len(payload), width)
        return Content([int.from_bytes(payload[at : at + width], "little", signed=signed) for at in starts])
    rows, columns = shape
    if format in GROUPED:
        return _decode_grouped(format, shape, payload)
    if format in GGUF:
        values, size = GGUF[format]
        row = columns // values * size
        return Content([list(payload[r * row : (r + 1) * row]) for r in range(rows)])
    if format == "nvfp4":
        return _decode_nvfp4(shape, payload, divisors)
    if format == "fp8_e4m3fn_row_bf16":
        start = align(rows * columns, 256)
        return Content(
            [list(payload[r * columns : (r + 1) * columns]) for r in range(rows)],
            [_u16(payload, start + 2 * r) for r in range(rows)],
        )
    assert format == "fp8_e4m3fn_row_fp16"
    stride = columns + 2
    return Content(
        [list(payload[r * stride : r * stride + columns]) for r in range(rows)],
        [_u16(payload, r * stride + columns) for r in range(rows)],
    )


def _u16(payload: bytes, at: int) -> int:
    return payload[at] | payload[at + 1] << 8


@dataclass
class _Grouped:
    """Where everything of a row-split object lies."""

    bits: int
    group: int
    groups: int
    logical: int
    base: int
    high: int
    high_offset: int
    scale_offset: int
    size: int


def _grouped(format: str, shape: tuple[int, ...]) -> _Grouped:
    bits, group = GROUPED[format]
    rows, columns = shape
    groups = align(columns, 128) // group
    base = {2: group // 4, 4: group // 2, 5: group // 2, 6: group // 2, 8: group}[bits]
    high = {5: group // 8, 6: group // 4}.get(bits, 0)
    high_offset = align(rows * groups * base, 256)
    scale_offset = high_offset + align(rows * groups * high, 256)
    size = scale_offset + rows * groups * 2
    return _Grouped(bits, group, groups, align(columns, group) // group, base, high, high_offset, scale_offset, size)


def _encode_grouped(format: str, shape: tuple[int, ...], content: Content) -> bytes:
    at = _grouped(format, shape)
    rows, columns = shape
    out = bytearray(at.size)
    for row in range(rows):
        for group in range(at.groups):
            number = row * at.groups + group
            words = []
            for lane in range(at.group):
                column = group * at.group + lane
                code = content.codes[row][column] if column < columns else 0
                words.append(code + 1 if format == "q2_g64_fp16" else code % 2**at.bits)
            base = number * at.base
            for lane, word in enumerate(words):
                if at.bits == 8:
                    out[base + lane] = word
                elif at.bits == 2:
                    out[base + lane // 4] |= word << 2 * (lane % 4)
                else:
                    out[base + lane // 2] |= (word & 15) << 4 * (lane % 2)
            stream = [word >> bit & 1 for word in words for bit in range(4, at.bits)] if at.high else []
            for t, bit in enumerate(stream):
                out[at.high_offset + number * at.high + t // 8] |= bit << t % 8
            scale = content.scales[row][group] if group < at.logical else 0
            start = at.scale_offset + number * 2
            out[start : start + 2] = scale.to_bytes(2, "little")
    return bytes(out)


def _decode_grouped(format: str, shape: tuple[int, ...], payload: bytes) -> Content:
    at = _grouped(format, shape)
    rows, columns = shape
    content = Content([], [])
    for row in range(rows):
        codes = []
        for column in range(columns):
            number, lane = row * at.groups + column // at.group, column % at.group
            base = number * at.base
            if at.bits == 8:
                word = payload[base + lane]
            elif at.bits == 2:
                word = payload[base + lane // 4] >> 2 * (lane % 4) & 3
            else:
                word = payload[base + lane // 2] >> 4 * (lane % 2) & 15
            for bit in range(4, at.bits) if at.high else ():
                t = lane * (at.bits - 4) + bit - 4
                word |= (payload[at.high_offset + number * at.high + t // 8] >> t % 8 & 1) << bit
            if format == "q2_g64_fp16":
                codes.append(word - 1)
            else:
                codes.append(word - 2**at.bits if word >= 2 ** (at.bits - 1) else word)
        content.codes.append(codes)
        start = at.scale_offset + row * at.groups * 2
        content.scales.append([_u16(payload, start + 2 * group) for group in range(at.logical)])
    return content


def _swizzle(n: int, g: int, columns: int) -> int:
    return (n // 128 * (columns // 64) + g // 4) * 512 + (n % 128 % 32) * 16 + (n % 128 // 32) * 4 + g % 4


def _encode_nvfp4(shape: tuple[int, ...], content: Content) -> bytes:
    rows, columns = shape
    codes = bytearray(align(rows * columns // 2, 256))
    scales = bytearray(rows * columns // 16)
    for n in range(rows):
        for k in range(columns):
            codes[(n * columns + k) // 2] |= content.codes[n][k] << 4 * (k % 2)
        for g in range(columns // 16):
            scales[_swizzle(n, g, columns)] = content.scales[n][g]
    return bytes(codes + scales) + b"".join(word.to_bytes(4, "little") for word in content.divisors)


def _decode_nvfp4(shape: tuple[int, ...], payload: bytes, divisors: int) -> Content:
    rows, columns = shape
    scales = align(rows * columns // 2, 256)
    words = scales + rows * columns // 16
    return Content(
        [[payload[(n * columns + k) // 2] >> 4 * (k % 2) & 15 for k in range(columns)] for n in range(rows)],
        [[payload[scales + _swizzle(n, g, columns)] for g in range(columns // 16)] for n in range(rows)],
        [int.from_bytes(payload[words + 4 * i : words + 4 * i + 4], "little") for i in range(divisors)],
    )
