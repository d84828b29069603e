"""GGUF headers: every kind of value is read, and nothing malformed gets past (field faults R10, R12, R15, R16, R20)."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.sources import gguf_header
from ninfer_convert.sources.gguf import open_gguf
from ninfer_convert.sources.gguf_header import MAX_NAME
from ninfer_convert.sources.gguf_metadata import MAX_DEPTH, MetadataArray
from tests.oracle import gguf
from tests.oracle.gguf import ARRAY, STRING, File, Tensor, array, scalar, string, text, u32

if TYPE_CHECKING:
    from ninfer_convert.sources.base import Checkpoint

ONE_TENSOR = Tensor("t", 0, (2, 4), bytes(range(32)))


def opened(tmp_path: Path, data: bytes) -> Checkpoint:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return open_gguf(path, "typed/model.gguf")


def refused(tmp_path: Path, data: bytes) -> Problem:
    """The one problem that `data` is refused with."""
    with pytest.raises(SourceError) as caught:
        opened(tmp_path, data)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].path == "typed/model.gguf"
    return caught.value.problems[0]


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_read_alike(tmp_path: Path, version: int) -> None:
    checkpoint = opened(tmp_path, File([ONE_TENSOR], [string("general.architecture", "x")], version=version).build())
    tensor = checkpoint.tensors["t"]
    assert (checkpoint.kind, checkpoint.default_name, checkpoint.folder) == ("gguf", "model", tmp_path)
    assert (tensor.stored, tensor.shape, tensor.nbytes) == ("F32", (2, 4), 32)
    assert tensor.values(0, 8).array.tobytes() == bytes(range(32))


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (0, "u8", 255),
        (1, "i8", -128),
        (2, "u16", 65535),
        (3, "i16", -32768),
        (4, "u32", 2**32 - 1),
        (5, "i32", -(2**31)),
        (6, "f32", 0.15625),
        (7, "bool", True),
        (10, "u64", 2**64 - 1),
        (11, "i64", -(2**63)),
        (12, "f64", 1e300),
    ],
)
def test_every_scalar_type_is_read_alone_and_in_arrays(tmp_path: Path, kind: int, name: str, value: float) -> None:
    entries = [
        ("one", kind, scalar(kind, value)),
        ("many", ARRAY, array(kind, [scalar(kind, value)] * 3)),
        ("none", ARRAY, array(kind, [])),
        u32("last", 7),
    ]
    metadata = opened(tmp_path, File(metadata=entries).build()).metadata
    assert metadata["one"] == value
    assert type(metadata["one"]) is type(value)
    assert isinstance(metadata["many"], MetadataArray)
    assert (metadata["many"].type, list(metadata["many"])) == (name, [value] * 3)
    assert (len(metadata["none"]), list(metadata["none"])) == (0, [])
    assert (list(metadata), metadata["last"]) == (["one", "many", "none", "last"], 7)


def test_strings_and_nested_arrays_are_read(tmp_path: Path) -> None:
    pairs = array(ARRAY, [array(STRING, [text("a"), text("")]), array(5, [scalar(5, -1)]), array(ARRAY, [])])
    entries = [string("empty", ""), string("word", "schön\n"), string("raw", b"\xff\x00a"), ("nested", ARRAY, pairs)]
    metadata = opened(tmp_path, File(metadata=entries).build()).metadata
    assert (metadata["empty"], metadata["word"], metadata["raw"]) == ("", "schön\n", "\\xff\x00a")
    nested = list(metadata["nested"])
    assert [(inner.type, list(inner)) for inner in nested] == [("string", ["a", ""]), ("i32", [-1]), ("array", [])]


def test_a_long_header_is_read_whole_and_long_arrays_only_as_far_as_asked(tmp_path: Path) -> None:
    tokens = array(STRING, [text(f"token {number}") for number in range(200_000)])
    data = File([ONE_TENSOR], [("tokens", ARRAY, tokens), u32("after", 1)]).build()
    assert len(data) > 3_000_000
    checkpoint = opened(tmp_path, data)
    assert len(checkpoint.metadata["tokens"]) == 200_000
    assert checkpoint.metadata["tokens"].head(2) == ["token 0", "token 1"]
    assert checkpoint.metadata["after"] == 1
    assert checkpoint.tensors["t"].values(0, 8).array.tobytes() == bytes(range(32))


def test_the_metadata_section_and_the_headers_digest_are_kept(tmp_path: Path) -> None:
    file = File([ONE_TENSOR], [string("k", "v")])
    checkpoint = opened(tmp_path, file.build())
    assert checkpoint.raw_metadata == file.header()[8:]
    assert checkpoint.files[0].header_sha256 == hashlib.sha256(file.header()).hexdigest()


def test_rotated_matrices_are_pointed_out(tmp_path: Path) -> None:
    (note,) = opened(tmp_path, File(metadata=[u32("prism.hadamard.block_size", 1024)]).build()).notes
    assert "Hadamard-rotated (prism.hadamard.*)" in note
    assert opened(tmp_path, File(metadata=[u32("prism.version", 1)]).build()).notes == ()


def test_a_file_without_tensors_opens(tmp_path: Path) -> None:
    assert dict(opened(tmp_path, File().build()).tensors) == {}


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        (File(version=1).build(), "gguf-version", "version 1"),
        (File(version=4).build(), "gguf-version", "versions 2 and 3"),
        (File(version=0).build(), "gguf-version", "version 0"),
        (File(version=0x03000000).build(), "big-endian", "big-endian"),
        (File(tensor_count=2**63).build(), "bad-header", f"{2**63} tensors"),
        (File(metadata_count=3).build(), "bad-header", "3 keys"),
        (
            File(metadata=[u32("a", 1), u32("b", 1), u32("a", 2)]).build(),
            "duplicate-key",
            "a twice; the second is key 3",
        ),
        (File([ONE_TENSOR, ONE_TENSOR]).build(), "duplicate-tensor", "t: is there twice, as tensor 1 and as tensor 2"),
        (File(metadata=[u32("k" * (MAX_NAME + 1), 1)]).build(), "name-too-long", "key 1 has a name of 65536 bytes"),
        (
            File([Tensor("t" * 70_000, 0, (1,), bytes(4))]).build(),
            "name-too-long",
            "tensor 1 has a name of 70000 bytes",
        ),
        (File(metadata=[(b"\xff", 4, bytes(4))]).build(), "bad-name", "key 1 has a name that is not UTF-8"),
        (File([Tensor(b"\xc3", 0, (1,), bytes(4))]).build(), "bad-name", "tensor 1"),
        (File([Tensor("t", 0, (1, 1, 1, 1, 1), bytes(4))]).build(), "bad-shape", "t: has 5 dimensions"),
        (File(metadata=[("k", 13, bytes(8))]).build(), "bad-value", "the value of k has the type 13"),
        (File(metadata=[("k", ARRAY, array(99, []))]).build(), "bad-value", "array of the type 99"),
        (File(metadata=[("k", 7, b"\x02")]).build(), "bad-value", "bool"),
        (File(metadata=[("k", ARRAY, array(7, [b"\x00", b"\x03"]))]).build(), "bad-value", "bool"),
        (
            File(metadata=[("k", STRING, struct.pack("<Q", 2**62))]).build(),
            "truncated",
            "the value of k ends",
        ),
        (File(metadata=[("k", STRING, struct.pack("<Q", 2**64 - 1))]).build(), "truncated", "the value of k ends"),
        (File(metadata=[("k", ARRAY, struct.pack("<IQ", 12, 2**61))]).build(), "truncated", "the value of k ends"),
        (File(metadata=[("k", ARRAY, struct.pack("<IQ", STRING, 2**64 - 1))]).build(), "truncated", "truncated"),
        (File(metadata=[("k", ARRAY, struct.pack("<IQ", ARRAY, 2**64 - 1))]).build(), "truncated", "truncated"),
    ],
)
def test_malformed_headers_are_refused(tmp_path: Path, data: bytes, code: str, says: str) -> None:
    problem = refused(tmp_path, data)
    assert problem.code == code
    assert says in problem.message


@pytest.mark.parametrize("count", [2, 3])
def test_more_tensors_counted_than_described_are_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(SourceError):
        opened(tmp_path, File([ONE_TENSOR], tensor_count=count).build())


@pytest.mark.parametrize("magic", [b"GGML", b"FUGG", b"lmgg", b"tjgg"])
def test_other_files_are_refused(tmp_path: Path, magic: bytes) -> None:
    assert refused(tmp_path, File([ONE_TENSOR], magic=magic).build()).code in ("not-gguf", "old-ggml", "unknown-file")


def test_arrays_nest_only_so_deep(tmp_path: Path) -> None:
    value = array(4, [])
    for _ in range(MAX_DEPTH - 1):
        value = array(ARRAY, [value])
    assert "k" in opened(tmp_path, File(metadata=[("k", ARRAY, value)]).build()).metadata
    problem = refused(tmp_path, File(metadata=[("k", ARRAY, array(ARRAY, [value]))]).build())
    assert (problem.code, problem.message) == ("bad-value", "the value of k nests arrays deeper than 16")


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096, 2**16])
def test_any_power_of_two_is_an_alignment(tmp_path: Path, alignment: int) -> None:
    tensors = [Tensor("a", 24, (3,), b"abc"), Tensor("b", 24, (5,), b"defgh")]
    data = File(tensors, [u32("general.alignment", alignment)], alignment=alignment).build()
    checkpoint = opened(tmp_path, data)
    for tensor in checkpoint.tensors.values():
        assert tensor.values(0, tensor.nbytes).array.tobytes() == {"a": b"abc", "b": b"defgh"}[tensor.name]


@pytest.mark.parametrize(
    "entry",
    [
        *(u32("general.alignment", value) for value in (0, 3, 48, 2**32 - 1)),
        ("general.alignment", 5, scalar(5, -8)),
        ("general.alignment", 5, scalar(5, 32)),
        ("general.alignment", 10, scalar(10, 32)),
        ("general.alignment", 7, b"\x01"),
        string("general.alignment", "32"),
        ("general.alignment", ARRAY, array(4, [scalar(4, 32)])),
    ],
)
def test_any_other_alignment_is_refused(tmp_path: Path, entry: tuple[str, int, bytes]) -> None:
    problem = refused(tmp_path, File([ONE_TENSOR], [entry]).build())
    assert problem.code == "bad-alignment"
    assert problem.message.startswith("general.alignment is ")
    assert "power of two of type u32" in problem.message


@pytest.mark.parametrize("name", ["", "n" * 64, "n" * 65, "n" * 300, "n" * MAX_NAME, "ünïcödé/模型", "line\nbreak"])
def test_names_are_kept_whole(tmp_path: Path, name: str) -> None:
    tensors = [
        Tensor(name, 24, (1,), b"x"),
        Tensor(f"{'n' * 70}1", 24, (1,), b"y"),
        Tensor(f"{'n' * 70}2", 24, (1,), b"z"),
    ]
    assert list(opened(tmp_path, File(tensors).build()).tensors) == [name, "n" * 70 + "1", "n" * 70 + "2"]


def test_a_name_in_a_message_shows_no_control_characters(tmp_path: Path) -> None:
    problem = refused(tmp_path, File([Tensor("a\x1b[2J", 12, (100,), bytes(144))]).build())
    assert problem.message.startswith("a\\x1b[2J: rows of 100 values")


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    whole = File([ONE_TENSOR], [string("k", "v"), ("a", ARRAY, array(STRING, [text("x")]))]).build()
    for length in range(8, len(whole)):
        problem = refused(tmp_path, whole[:length])
        assert problem.code in ("truncated", "bad-header"), length


def test_a_header_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_header, "MAX_HEADER", 1 << 21)
    data = File(metadata=[string("k", bytes(3 << 20))]).build()
    problem = refused(tmp_path, data)
    assert (problem.code, problem.message) == (
        "header-too-long",
        f"its header is over the limit of {1 << 21} bytes (of a file of {len(data)})",
    )


def test_the_oracle_reads_what_it_builds(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(File([ONE_TENSOR], [string("k", "v")]).build())
    ((name, (ggml, shape, rows)),) = gguf.read(path).items()
    assert (name, ggml, shape, rows.tobytes()) == ("t", 0, (2, 4), ONE_TENSOR.data)
