"""safetensors headers: what is well formed is read to the byte, what is not is refused (faults R01 to R17 of T1)."""

from __future__ import annotations

import hashlib
import json
import struct
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import deserialize
from safetensors.numpy import save_file

from ninfer_convert.errors import SourceError
from ninfer_convert.sources.safetensors import DTYPES, MAX_HEADER, MAX_NAME, Header, read_header
from tests.oracle import safetensors as oracle

SHOWN = "typed/model.safetensors"


def opened(folder: Path, data: bytes) -> Header:
    path = folder / "model.safetensors"
    path.write_bytes(data)
    return read_header(path, SHOWN)


def refused(folder: Path, data: bytes) -> list[str]:
    """The messages that `data` is refused with; each names the file as typed."""
    with pytest.raises(SourceError) as caught:
        opened(folder, data)
    assert all(problem.path == SHOWN for problem in caught.value.problems)
    return [f"{problem.code}: {problem.message}" for problem in caught.value.problems]


def with_header(described: Any, payload: bytes = b"") -> bytes:
    return oracle.framed(json.dumps(described).encode(), payload)


def entry(dtype: Any = "U8", shape: Any = (4,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


# What is read


def test_every_dtype_of_the_format_is_listed_with_its_place(tmp_path: Path) -> None:
    assert set(DTYPES) == set(oracle.BITS)
    tensors = {f"t.{dtype}": oracle.tensor(dtype, (3, 8), seed) for seed, dtype in enumerate(oracle.BITS)}
    data = oracle.build(tensors)
    header = opened(tmp_path, data)
    assert list(header.tensors) == list(tensors)
    for name, (dtype, shape, expected) in tensors.items():
        found = header.tensors[name]
        assert (found.stored, found.shape, found.nbytes) == (dtype, tuple(shape), len(expected))
        assert data[found.offset : found.offset + found.nbytes] == expected
        assert found.relative_offset == found.offset - header.file.payload
        assert found.read(0, found.nbytes).tobytes() == expected
        (origin,) = found.origins
        assert (origin.source, origin.file, origin.tensor, origin.stored, origin.selection) == (
            "model",
            SHOWN,
            name,
            dtype,
            None,
        )


@pytest.mark.parametrize("dtype", [name for name, kind in DTYPES.items() if kind.kind != "opaque"])
def test_values_are_the_stored_words(tmp_path: Path, dtype: str) -> None:
    _, _, data = tensors = oracle.tensor(dtype, (2, 5))
    source = opened(tmp_path, oracle.build({"t": tensors})).tensors["t"]
    size = oracle.BITS[dtype] // 8
    for begin, end in ((0, 10), (3, 7), (9, 10), (4, 4)):
        values = source.values(begin, end)
        assert values.stored == dtype
        assert values.array.shape == (end - begin,)
        assert values.array.itemsize == size
        assert values.array.tobytes() == data[begin * size : end * size]


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F4", "F6_E2M3", "C64"])
def test_types_without_values_are_listed_and_give_none(tmp_path: Path, dtype: str) -> None:
    source = opened(tmp_path, oracle.build({"t": oracle.tensor(dtype, (8,))})).tensors["t"]
    with pytest.raises(SourceError, match=f"^{SHOWN}: t: .*{dtype}"):
        source.values(0, 8)


def test_plain_tensors_hold_no_words_of_a_format(tmp_path: Path) -> None:
    source = opened(tmp_path, oracle.build({"t": oracle.tensor("BF16", (2, 8))})).tensors["t"]
    assert source.exact == ()
    with pytest.raises(SourceError, match="plain BF16"):
        source.words("bf16", 0, 2)


def test_a_read_beyond_the_tensor_never_reaches_its_neighbour(tmp_path: Path) -> None:
    tensors = {"a": oracle.tensor("BF16", (4,)), "b": oracle.tensor("BF16", (4,))}
    source = opened(tmp_path, oracle.build(tensors)).tensors["a"]
    for begin, end in ((0, 5), (-1, 2), (3, 2)):
        with pytest.raises(IndexError):
            source.values(begin, end)


@pytest.mark.parametrize("pad", range(9))
def test_a_payload_may_start_at_any_byte(tmp_path: Path, pad: int) -> None:
    tensors = {"a": oracle.tensor("BF16", (3, 7)), "b": oracle.tensor("F32", (5,)), "c": oracle.tensor("F64", (2,))}
    header = opened(tmp_path, oracle.build(tensors, pad=pad))
    for name, (_, shape, data) in tensors.items():
        array = header.tensors[name].values(0, int(np.prod(shape))).array
        assert array.tobytes() == data
        assert array.flags.aligned


def test_the_order_of_members_means_nothing(tmp_path: Path) -> None:
    tensors = {name: oracle.tensor("U8", (4,), seed) for seed, name in enumerate("abc")}
    described = oracle.header(tensors)
    payload = b"".join(data for _, _, data in tensors.values())
    header = opened(tmp_path, with_header({name: described[name] for name in "cab"}, payload))
    assert list(header.tensors) == ["a", "b", "c"]
    assert {name: found.read(0, 4).tobytes() for name, found in header.tensors.items()} == {
        name: data for name, (_, _, data) in tensors.items()
    }


def test_names_are_kept_exactly(tmp_path: Path) -> None:
    names = [
        "",
        " ",
        "a\nb\t\x1b[31m\x00",
        "модель.層.é",
        "[bold]x[/bold] {0} *?",
        "..",
        "weight",
        "x" * 70 + "a",
        "x" * 70 + "b",
        *("n" * length for length in (64, 65, 300, MAX_NAME)),
    ]
    header = opened(tmp_path, oracle.build({name: oracle.tensor("U8", (1,)) for name in names}))
    assert list(header.tensors) == names


@pytest.mark.parametrize("name", ["n" * (MAX_NAME + 1), "é" * (MAX_NAME // 2) + "n"])
def test_a_name_over_the_documented_maximum_is_refused(tmp_path: Path, name: str) -> None:
    (message,) = refused(tmp_path, oracle.build({name: oracle.tensor("U8", (1,))}))
    assert f"a name of {MAX_NAME + 1} bytes is over the limit of {MAX_NAME}" in message
    assert len(message) < 500


def test_metadata_and_digest_of_the_header(tmp_path: Path) -> None:
    data = oracle.build({"t": oracle.tensor("U8", (3,))}, metadata={"format": "pt", "note": "é"})
    header = opened(tmp_path, data)
    assert header.metadata == {"format": "pt", "note": "é"}
    assert list(header.tensors) == ["t"]
    assert header.file.size == len(data)
    assert header.file.payload == len(data) - 3
    assert header.file.header_sha256 == hashlib.sha256(data[:-3]).hexdigest()


@pytest.mark.parametrize("shape", [(0,), (4, 0), (0, 2**60, 2**60)])
def test_zero_element_tensors_are_listed(tmp_path: Path, shape: tuple[int, ...]) -> None:
    tensors = {"empty": ("F32", shape, b""), "t": oracle.tensor("F32", (2,))}
    header = opened(tmp_path, oracle.build(tensors))
    assert header.tensors["empty"].shape == shape
    assert header.tensors["empty"].values(0, 0).array.size == 0
    assert header.tensors["t"].values(0, 2).array.tobytes() == tensors["t"][2]


def test_a_scalar_and_a_file_without_tensors(tmp_path: Path) -> None:
    header = opened(tmp_path, oracle.build({"s": oracle.tensor("F32", ())}))
    assert header.tensors["s"].shape == ()
    assert header.tensors["s"].values(0, 1).array.size == 1
    assert opened(tmp_path, with_header({})).tensors == {}
    assert opened(tmp_path, with_header({"__metadata__": {}})).tensors == {}


# What is refused


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ({"t": entry(dtype="BF17")}, "t: unknown dtype 'BF17'; did you mean BF16"),
        ({"t": entry(dtype="Q4_0")}, "t: unknown dtype 'Q4_0'"),
        ({"t": entry(dtype="NVFP4")}, "t: unknown dtype 'NVFP4'"),
        ({"t": {**entry(), "dtype": 7}}, "t: its dtype is no string"),
        ({"t": {**entry(), "dtype": ["U8"]}}, "t: its dtype is no string"),
        ({"t": entry(shape=[True, 4])}, "t: its shape is no list of whole numbers"),
        ({"t": entry(shape=[4.0])}, "t: its shape"),
        ({"t": entry(shape=["4"])}, "t: its shape"),
        ({"t": entry(shape=[-4])}, "t: its shape"),
        ({"t": entry(shape=[2**63])}, "t: its shape"),
        ({"t": {**entry(), "shape": 4}}, "t: its shape"),
        ({"t": {**entry(), "shape": None}}, "t: its shape"),
        ({"t": entry(offsets=[0, True])}, "t: its data_offsets"),
        ({"t": entry(offsets=[0, 4.0])}, "t: its data_offsets"),
        ({"t": entry(offsets=[4, 0])}, "t: its data_offsets"),
        ({"t": entry(offsets=[-4, 0])}, "t: its data_offsets"),
        ({"t": entry(offsets=[0])}, "t: its data_offsets"),
        ({"t": entry(offsets=[0, 2, 4])}, "t: its data_offsets"),
        ({"t": {**entry(), "data_offsets": {"0": 0, "1": 4}}}, "t: its data_offsets"),
        ({"t": entry(shape=[3])}, "t: U8 [3] takes 3 bytes, but its data_offsets span 4"),
        ({"t": entry(shape=[])}, "t: U8 [] takes 1 bytes, but its data_offsets span 4"),
        ({"t": entry(dtype="F32", shape=[2**61])}, "takes 9223372036854775808 bytes, but its data_offsets span 4"),
        ({"t": entry(dtype="F32", shape=[2**62] * 3)}, f"takes {2**188} bytes, but its data_offsets span 4"),
        ({"t": entry(shape=[1] * 65)}, "t: its shape has 65 axes, over the limit of 64"),
        ({"t": entry(dtype="F4", shape=[7])}, "t: 7 elements of F4 fill no whole number of bytes"),
        ({"t": entry(dtype="F6_E2M3", shape=[6])}, "t: 6 elements of F6_E2M3 fill no whole number of bytes"),
        ({"t": {"dtype": "U8", "shape": [4]}}, "t: is no object of exactly dtype, shape and data_offsets"),
        ({"t": {**entry(), "strides": [1]}}, "t: is no object of exactly dtype, shape and data_offsets"),
        ({"t": [1, 2]}, "t: is no object of exactly"),
        ({"t": None}, "t: is no object of exactly"),
        ({"t": entry(), "__metadata__": {"a": 1}}, "its __metadata__ is no object of strings"),
        ({"t": entry(), "__metadata__": ["a"]}, "its __metadata__ is no object of strings"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(tmp_path: Path, described: dict[str, Any], expected: str) -> None:
    (message,) = refused(tmp_path, with_header(described, bytes(4)))
    assert message.startswith("bad-header: ")
    assert expected in message


def test_all_wrong_entries_are_told_together(tmp_path: Path) -> None:
    described = {f"t{index}": entry(dtype="F7") for index in range(30)}
    assert len(refused(tmp_path, with_header(described, bytes(4)))) == 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "no JSON object"),
        (b"[]", "no JSON object"),
        (b" {}", "no JSON object"),
        (b"{", "is not JSON"),
        (b'{"a": 1,}', "is not JSON"),
        (b"{}x", "is not JSON"),
        (b'{"\xff": 1}', "is not UTF-8"),
        (b'{"a": NaN}', "holds NaN at a"),
        (b'{"a": {"shape": [1e999]}}', "holds the number 1e999 at a.shape[0]"),
        (b'{"a": 1, "b": 2, "a": 3}', "has the member 'a' twice"),
        (b'{"a": {"dtype": "U8", "dtype": "I8"}}', "has the member 'dtype' twice"),
        (b'{"\\ud800": 1}', "lone surrogate"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nests deeper"),
    ],
)
def test_a_header_that_is_no_strict_json_is_refused(tmp_path: Path, text: bytes, expected: str) -> None:
    (message,) = refused(tmp_path, oracle.framed(text, b""))
    assert message.startswith("bad-header: its header ")
    assert expected in message


@pytest.mark.parametrize(
    ("offsets", "payload", "expected"),
    [
        ({"k": (0, 4), "v": (0, 4)}, 4, ["overlap: v and k overlap by 4 bytes"]),
        ({"k": (0, 4), "v": (2, 6)}, 6, ["overlap: v and k overlap by 2 bytes"]),
        (
            {"k": (0, 8), "v": (2, 4), "w": (4, 8)},
            8,
            ["overlap: v and k overlap by 6 bytes", "overlap: w and k overlap by 4 bytes"],
        ),
        ({"k": (0, 4), "v": (20, 24)}, 24, ["hole: 16 bytes before v belong to no tensor"]),
        ({"k": (16, 20)}, 20, ["hole: 16 bytes before k belong to no tensor"]),
        ({"k": (0, 4)}, 20, ["trailing-bytes: 16 bytes at its end belong to no tensor"]),
        ({}, 16, ["trailing-bytes: 16 bytes at its end belong to no tensor"]),
        (
            {"k": (0, 4), "v": (6, 8)},
            9,
            ["hole: 2 bytes before v belong to no tensor", "trailing-bytes: 1 bytes at its end belong to no tensor"],
        ),
    ],
)
def test_the_tensors_cover_the_payload_exactly(
    tmp_path: Path, offsets: Mapping[str, tuple[int, int]], payload: int, expected: list[str]
) -> None:
    described = {name: entry(shape=[end - begin], offsets=[begin, end]) for name, (begin, end) in offsets.items()}
    for order in (list(described), list(reversed(described))):
        data = with_header({name: described[name] for name in order}, bytes(payload))
        assert refused(tmp_path, data) == expected


def test_a_cut_file_is_told_with_both_sizes(tmp_path: Path) -> None:
    data = oracle.build({"a": oracle.tensor("F32", (4,)), "b": oracle.tensor("F32", (4,))})
    (message,) = refused(tmp_path, data[:-1])
    assert message.startswith("truncated: ")
    assert f"describes {len(data)} bytes, the file has {len(data) - 1}" in message
    assert "first tensor cut is b" in message
    for size in (1, 4, 7, 8, 20):
        (message,) = refused(tmp_path, data[:size])
        assert message.startswith(f"truncated: is {size} bytes long")


@pytest.mark.parametrize("length", [17, 2**31, 2**63, 2**64 - 1])
def test_a_length_beyond_the_file_allocates_nothing(tmp_path: Path, length: int) -> None:
    tracemalloc.start()
    try:
        (message,) = refused(tmp_path, struct.pack("<Q", length) + b'{"a": {}}       ')
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert message.startswith("truncated: is 24 bytes long")
    assert f"header alone is {length} bytes" in message
    assert peak < 1 << 20


def test_a_header_over_the_documented_limit_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    size = MAX_HEADER + 100
    with path.open("wb") as file:
        file.write(struct.pack("<Q", MAX_HEADER + 1) + b"{")
        file.truncate(size)
    with pytest.raises(SourceError) as caught:
        read_header(path, SHOWN)
    message = caught.value.problems[0].message
    assert all(str(number) in message for number in (MAX_HEADER + 1, MAX_HEADER, size))


def test_a_header_over_100_megabytes_is_read(tmp_path: Path) -> None:
    count = 20_000
    tensors = {f"{number:05d}" + "x" * 5_300: oracle.tensor("U8", (1,)) for number in range(count)}
    header = opened(tmp_path, oracle.build(tensors))
    assert header.file.payload > 100 << 20
    assert list(header.tensors) == list(tensors)


def test_a_hostile_shape_costs_no_time(tmp_path: Path) -> None:
    (message,) = refused(tmp_path, with_header({"t": entry(shape=[2**62] * 500_000)}, bytes(4)))
    assert len(message) < 200


# A second opinion: the format's own package


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.int32, np.int8, np.uint8, np.bool_])
def test_files_that_the_formats_own_package_writes(tmp_path: Path, dtype: type[np.generic]) -> None:
    whole = np.arange(12).astype(dtype)
    arrays = {"a.b": whole.reshape(3, 4), "scalar": whole[1:2].reshape(()), "empty": whole[:0].reshape(0, 2)}
    save_file(arrays, tmp_path / "m.safetensors", metadata={"format": "np"})
    header = read_header(tmp_path / "m.safetensors", SHOWN)
    assert header.metadata == {"format": "np"}
    assert header.tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        source = header.tensors[name]
        assert source.shape == array.shape
        assert source.values(0, array.size).array.tobytes() == array.tobytes()


SIZES = st.sampled_from([1, 2, 3, 8])
FILES = st.dictionaries(
    st.text(max_size=8).filter(lambda name: name != "__metadata__"),
    st.tuples(st.sampled_from(["U8", "BF16", "F32", "F8_E4M3", "I64"]), st.lists(SIZES, max_size=3)),
    max_size=4,
)


@given(FILES, st.randoms(use_true_random=False))
def test_valid_files_are_read_as_the_oracle_reads_them(
    tmp_path_factory: pytest.TempPathFactory, described: dict[str, tuple[str, list[int]]], random: Any
) -> None:
    tensors = {name: oracle.tensor(dtype, shape, seed) for seed, (name, (dtype, shape)) in enumerate(described.items())}
    data = oracle.build(tensors)
    header = opened(tmp_path_factory.mktemp("valid"), data)
    expected = oracle.read(data)
    assert header.tensors.keys() == expected.keys()
    for name, (dtype, shape, stored) in expected.items():
        source = header.tensors[name]
        assert (source.stored, list(source.shape)) == (dtype, list(shape))
        begin = random.randint(0, len(stored))
        end = random.randint(begin, len(stored))
        assert source.read(begin, end).tobytes() == stored[begin:end]


@given(FILES, st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4), st.integers(-3, 3))
def test_a_mutated_file_is_refused_or_read_never_worse(
    tmp_path_factory: pytest.TempPathFactory,
    described: dict[str, tuple[str, list[int]]],
    changes: list[tuple[int, int]],
    longer: int,
) -> None:
    data = bytearray(oracle.build({name: oracle.tensor(*tensor) for name, tensor in described.items()}))
    for place, byte in changes:
        data[place % len(data)] = byte
    if longer < 0:
        del data[longer:]
    data += bytes(max(0, longer))
    try:
        header = opened(tmp_path_factory.mktemp("mutated"), bytes(data))
    except SourceError:
        return
    # Whatever is accepted, the format's own package accepts too, and reads alike.
    theirs = dict(cast("Any", deserialize)(bytes(data)))
    assert theirs.keys() == header.tensors.keys()
    for name, source in header.tensors.items():
        assert source.read(0, source.nbytes).tobytes() == bytes(theirs[name]["data"])
        assert list(source.shape) == theirs[name]["shape"]
