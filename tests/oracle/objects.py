"""Whole objects from float32 matrices with plain numpy: quick enough for real checkpoints, sharing no code with the
product. The element-by-element oracles beside it are the judges of single words; this one covers whole models."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.oracle import search_loop

GROUPED = {
    # bits, group, qmin, qmax
    "q4_g64_fp16": (4, 64, -8, 7),
    "q5_g64_fp16": (5, 64, -16, 15),
    "q6_g64_fp16": (6, 64, -32, 31),
    "q8_g32_fp16": (8, 32, -127, 127),
}


def safetensors(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """name -> (dtype tag, shape, bytes) of a safetensors file."""
    import json

    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    start = 8 + length
    return {
        name: (
            entry["dtype"],
            tuple(entry["shape"]),
            data[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]],
        )
        for name, entry in header.items()
    }


def float32(dtype: str, data: bytes) -> NDArray[np.float32]:
    """The values of F32, BF16 or F16 words, exactly."""
    if dtype == "F32":
        return np.frombuffer(data, "<f4")
    if dtype == "F16":
        return np.frombuffer(data, "<f2").astype(np.float32)
    assert dtype == "BF16"
    return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)


def grouped(values: NDArray[np.float32], format: str) -> tuple[NDArray[np.int64], NDArray[np.float16]]:
    """Codes [N, groups, G] of the padded matrix and scales [N, groups], physical groups of K padded to 128."""
    _, group, qmin, qmax = GROUPED[format]
    rows, columns = values.shape
    padded = np.zeros((rows, -(-columns // 128) * 128), np.float32)
    padded[:, :columns] = values
    x = padded.reshape(rows, -1, group)
    amax = np.abs(x).max(axis=2)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        scales = (amax / np.float32(qmax)).astype(np.float16)
        scales[(scales == 0) & (amax > 0)] = np.float16(2.0**-24)
        inverse = np.float32(1) / scales.astype(np.float32)
        codes = np.rint(x * inverse[:, :, None])
    codes[amax == 0] = 0
    return np.clip(codes, qmin, qmax).astype(np.int64), scales


def searched(
    values: NDArray[np.float32],
    format: str,
    importance: NDArray[np.float64] | None = None,
    negative_scales: bool = False,
) -> tuple[NDArray[np.int64], NDArray[np.float16]]:
    """The same by grouped_search; `importance` is [K], None of an unweighted one."""
    _, group, qmin, qmax = GROUPED[format]
    rows, columns = values.shape
    codes, words = search_loop.search(
        values, importance, group=group, qmin=qmin, qmax=qmax, negative_scales=negative_scales
    )
    physical = -(-columns // 128) * 128
    padded = np.pad(codes.astype(np.int64), ((0, 0), (0, physical - columns)))
    scales = np.pad(words, ((0, 0), (0, physical // group - words.shape[1])))
    return padded.reshape(rows, -1, group), scales.view(np.float16)


def row_split(codes: NDArray[np.int64], scales: NDArray[np.float16], bits: int) -> bytes:
    """The three planes of row_split_k128_v1 for 4, 5, 6 and 8 bits."""
    if bits == 8:
        return planes(codes.astype(np.int8).tobytes(), b"", scales)
    unsigned = (codes % 2**bits).astype(np.uint8)
    low = unsigned & 15
    base = (low[..., 0::2] | low[..., 1::2] << 4).tobytes()
    if bits == 4:
        return planes(base, b"", scales)
    high = unsigned >> 4
    stream = np.stack([high >> bit & 1 for bit in range(bits - 4)], axis=-1)
    packed = np.packbits(stream.reshape(*high.shape[:-1], -1), axis=-1, bitorder="little")
    return planes(base, packed.tobytes(), scales)


def planes(base: bytes, high: bytes, scales: NDArray[np.float16]) -> bytes:
    """Each plane but the last padded with zero bytes to 256."""
    return pad256(base) + pad256(high) + scales.astype("<f2").tobytes()


def pad256(data: bytes) -> bytes:
    """`data` and zero bytes up to a multiple of 256."""
    return data + b"\0" * (-len(data) % 256)


def bf16(values: NDArray[np.float32]) -> bytes:
    """Finite values rounded to bfloat16, nearest even."""
    words = values.view(np.uint32).astype(np.uint64)
    return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype("<u2").tobytes()


def fp8_rows(values: NDArray[np.float32]) -> bytes:
    """row_scale_v1 of fp8_row_maxabs with bfloat16 scales; codes by their rank among the middles of E4M3FN."""
    x = (np.frombuffer(bf16(values), "<u2").astype(np.uint32) << 16).view(np.float32).reshape(values.shape)
    raw = np.abs(x).max(axis=1) / np.float32(448)
    words = np.frombuffer(bf16(raw), "<u2")
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.nan_to_num(x * (np.float32(1) / (words.astype(np.uint32) << 16).view(np.float32))[:, None])
    codes = np.arange(0x7F)
    exponents, fractions = codes >> 3, codes & 7
    numbers = np.where(exponents == 0, fractions / 8 * 2.0**-6, (1 + fractions / 8) * 2.0 ** (exponents - 7))
    middles = (numbers[1:] + numbers[:-1]) / 2
    middles[0::2] = np.nextafter(middles[0::2], np.inf)
    magnitudes = np.searchsorted(middles, np.abs(y).astype(np.float64), side="right").astype(np.uint8)
    signs = np.where(np.signbit(x) & (words != 0)[:, None], 0x80, 0).astype(np.uint8)
    return pad256((magnitudes | signs).tobytes()) + words.tobytes()


def object_bytes(format: str, dtype: str, shape: tuple[int, ...], data: bytes, search: bool = False) -> bytes:
    """What an object of this format holds for a tensor stored like this; by grouped_search where `search` says so."""
    if format in GROUPED:
        values = float32(dtype, data).reshape(-1, shape[-1])
        return row_split(*(searched if search else grouped)(values, format), GROUPED[format][0])
    if format == "fp8_e4m3fn_row_bf16":
        return fp8_rows(float32(dtype, data).reshape(-1, shape[-1]))
    if format == "fp32":
        return float32(dtype, data).astype("<f4").tobytes()
    if format == "bf16":
        return data if dtype == "BF16" else bf16(float32(dtype, data))
    assert format == "int32"
    source: NDArray[Any] = np.frombuffer(data, {"I64": "<i8", "I32": "<i4"}[dtype])
    return source.astype("<i4").tobytes()
