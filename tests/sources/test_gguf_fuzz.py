"""Whatever bytes a GGUF header holds, opening it gives a checkpoint or a SourceError, in little memory."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_convert.errors import SourceError
from ninfer_convert.sources.gguf import open_gguf
from tests.oracle.gguf import ARRAY, STRING, File, Tensor, array, scalar, string, text, u32

SEED = File(
    [
        Tensor("token_embd.weight", 8, (2, 64), bytes(136)),
        Tensor("blk.0.ffn_down.weight", 42, (2, 128), bytes(72)),
        Tensor("blk.0.norm.weight", 0, (8,), bytes(32)),
        Tensor("odd", 255, (3, 5), bytes(32)),
    ],
    [
        string("general.architecture", "llama"),
        u32("general.alignment", 32),
        ("tokens", ARRAY, array(STRING, [text("a"), text("bc"), text("")])),
        ("nested", ARRAY, array(ARRAY, [array(4, [scalar(4, 1)]), array(7, [b"\x01"])])),
        ("flag", 7, b"\x01"),
        u32("split.count", 1),
    ],
)
BYTES = SEED.build()
HEADER = len(SEED.header())
INTERESTING = [0, 1, 2, 7, 8, 9, 31, 32, 64, 255, 2**16, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


def check(path: Path) -> None:
    """Open and use a file; anything but success and SourceError fails the test."""
    try:
        checkpoint = open_gguf(path, "fuzzed.gguf")
    except SourceError:
        return
    for key in checkpoint.metadata:
        checkpoint.metadata[key]
    for tensor in checkpoint.tensors.values():
        assert tensor.nbytes <= path.stat().st_size
        if tensor.stored.startswith("GGML_"):
            continue
        assert tensor.values(0, prod(tensor.shape)).array.size == prod(tensor.shape)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "fuzzed.gguf"


@settings(max_examples=400)
@given(changes=st.lists(st.tuples(st.integers(8, HEADER - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes(path: Path, changes: list[tuple[int, int]]) -> None:
    data = bytearray(BYTES)
    for at, byte in changes:
        data[at] = byte
    path.write_bytes(data)
    check(path)


@settings(max_examples=400)
@given(at=st.integers(4, HEADER - 8), value=st.sampled_from(INTERESTING), wide=st.booleans())
def test_changed_numbers(path: Path, at: int, value: int, wide: bool) -> None:
    data = bytearray(BYTES)
    struct.pack_into("<Q" if wide else "<I", data, at, value if wide else value % 2**32)
    path.write_bytes(data)
    check(path)


@settings(max_examples=200)
@given(begin=st.integers(8, HEADER), length=st.integers(0, 64), inserted=st.binary(max_size=64))
def test_cut_out_and_inserted_bytes(path: Path, begin: int, length: int, inserted: bytes) -> None:
    path.write_bytes(BYTES[:begin] + inserted + BYTES[begin + length :])
    check(path)


@settings(max_examples=200)
@given(rest=st.binary(max_size=300), version=st.sampled_from([1, 2, 3, 0x03000000]))
def test_any_bytes(path: Path, rest: bytes, version: int) -> None:
    path.write_bytes(b"GGUF" + struct.pack("<I", version) + rest)
    check(path)


@pytest.mark.parametrize(
    "hostile",
    [
        lambda: File(metadata=[("k", ARRAY, struct.pack("<IQ", STRING, 2**40))]).build(),
        lambda: File(metadata=[("k", ARRAY, struct.pack("<IQ", ARRAY, 2**40))]).build(),
        lambda: File(metadata=[("k", ARRAY, struct.pack("<IQ", 10, 2**56))]).build(),
        lambda: File(metadata=[("k", STRING, struct.pack("<Q", 2**40))]).build(),
        lambda: File(tensor_count=2**40).build(),
        lambda: File(metadata_count=2**40).build(),
        lambda: File([Tensor("t", 0, (2**40, 2**20), bytes(32))]).build(),
        lambda: File([Tensor("t", 255, (2**40, 2**20), bytes(32))]).build(),
    ],
)
def test_promised_sizes_take_no_memory(path: Path, hostile: Callable[[], bytes]) -> None:
    path.write_bytes(hostile() + bytes(200))
    tracemalloc.start()
    try:
        check(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
