"""Where GGUF tensors lie, and of which types (field faults R06, R10, R12, R14, R17, R22, R23, R85, R87)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.formats.stored import GGML_TYPES, stored_type
from ninfer_convert.sources.base import Checkpoint, StoredTensor
from ninfer_convert.sources.gguf import open_gguf
from tests.oracle.gguf import SIZES, File, Tensor, u32


def opened(tmp_path: Path, tensors: Sequence[Tensor], alignment: int = 32, pad_last: bool = True) -> Checkpoint:
    path = tmp_path / "model.gguf"
    metadata = [u32("general.alignment", alignment)]
    path.write_bytes(File(tensors, metadata, alignment=alignment, pad_last=pad_last).build())
    return open_gguf(path, "model.gguf")


def refused(tmp_path: Path, tensors: Sequence[Tensor], pad_last: bool = True) -> tuple[Problem, ...]:
    with pytest.raises(SourceError) as caught:
        opened(tmp_path, tensors, pad_last=pad_last)
    assert all(problem.path == "model.gguf" for problem in caught.value.problems)
    return caught.value.problems


def tensor(checkpoint: Checkpoint, name: str) -> StoredTensor:
    found = checkpoint.tensors[name]
    assert isinstance(found, StoredTensor)
    return found


@pytest.mark.parametrize(
    ("ggml", "stored", "dtype"),
    [
        (0, "F32", "float32"),
        (1, "F16", "uint16"),
        (24, "I8", "int8"),
        (25, "I16", "int16"),
        (26, "I32", "int32"),
        (27, "I64", "int64"),
        (28, "F64", "float64"),
        (30, "BF16", "uint16"),
    ],
)
def test_plain_types_keep_their_words(tmp_path: Path, ggml: int, stored: str, dtype: str) -> None:
    size = SIZES[ggml][0]
    data = np.random.default_rng(ggml).integers(0, 256, 15 * size, dtype=np.uint8).tobytes()
    found = tensor(opened(tmp_path, [Tensor("t", ggml, (3, 5), data)]), "t")
    values = found.values(4, 11)
    assert (found.stored, found.exact, values.stored, str(values.array.dtype)) == (stored, (), stored, dtype)
    assert values.array.tobytes() == data[4 * size : 11 * size]


def test_every_public_type_has_its_name(tmp_path: Path) -> None:
    tensors = [
        Tensor(f"t{ggml}", ggml, (2, values), bytes(2 * size))
        for ggml, (size, values) in SIZES.items()
        if ggml in GGML_TYPES
    ]
    checkpoint = opened(tmp_path, tensors)
    assert len(checkpoint.tensors) == len(GGML_TYPES) == len(tensors)
    for ggml, kind in GGML_TYPES.items():
        assert checkpoint.tensors[f"t{ggml}"].stored == kind.name
        assert checkpoint.tensors[f"t{ggml}"].values(0, 2 * SIZES[ggml][1]).array.size == 2 * SIZES[ggml][1]


@pytest.mark.parametrize(
    ("ggml", "says"),
    [
        (4, "ggml type 4 (Q4_2, removed from ggml)"),
        (5, "ggml type 5 (Q4_3, removed from ggml)"),
        (9, "ggml type 9 (Q8_1, for ggml's intermediate results only)"),
        (36, "ggml type 36 (IQ4_NL_4_4, removed from ggml)"),
        (255, "ggml type 255 (unknown)"),
        (2**32 - 1, f"ggml type {2**32 - 1} (unknown)"),
    ],
)
def test_types_that_cannot_be_read_are_listed_and_refused_when_needed(tmp_path: Path, ggml: int, says: str) -> None:
    tensors = [Tensor("a", 0, (8,), bytes(32)), Tensor("b", ggml, (3, 7), bytes(96)), Tensor("c", 0, (8,), bytes(32))]
    found = tensor(opened(tmp_path, tensors), "b")
    assert (found.stored, found.shape, found.nbytes, found.exact) == (f"GGML_{ggml}", (3, 7), 96, ())
    kind = stored_type(found.stored)
    assert (kind.kind, kind.floating, kind.quantized, kind.described) == ("opaque", False, False, says)
    with pytest.raises(SourceError, match="b: words of ggml type") as caught:
        found.values(0, 1)
    assert says in str(caught.value)


def test_offsets_are_known_relative_and_absolute(tmp_path: Path) -> None:
    tensors = [Tensor("a", 24, (3,), b"abc"), Tensor("b", 24, (2,), b"de")]
    found = tensor(opened(tmp_path, tensors, alignment=64), "b")
    assert found.relative_offset == 64
    assert (tmp_path / "model.gguf").read_bytes()[found.offset :][:2] == b"de"


def test_tensors_are_in_the_order_of_their_data(tmp_path: Path) -> None:
    tensors = [Tensor("late", 24, (4,), bytes(32), offset=32), Tensor("early", 24, (4,), bytes(32), offset=0)]
    assert list(opened(tmp_path, tensors).tensors) == ["early", "late"]


def test_shapes_are_read_slowest_axis_first(tmp_path: Path) -> None:
    tensors = [Tensor("none", 0, (), bytes(4)), Tensor("four", 24, (2, 3, 4, 5), bytes(120))]
    checkpoint = opened(tmp_path, tensors)
    assert [found.shape for found in checkpoint.tensors.values()] == [(), (2, 3, 4, 5)]


@pytest.mark.parametrize("shape", [(0, 64), (64, 0), (0,), (2, 0, 3), (2**62, 0, 2**62)])
@pytest.mark.parametrize("ggml", [0, 2])
def test_tensors_without_elements_are_listed(tmp_path: Path, ggml: int, shape: tuple[int, ...]) -> None:
    if ggml == 2 and shape[-1] % 32:
        shape = (*shape[:-1], 32)
    tensors = [Tensor("a", 0, (8,), bytes(32)), Tensor("empty", ggml, shape), Tensor("b", 0, (8,), bytes(32))]
    found = tensor(opened(tmp_path, tensors), "empty")
    assert (found.shape, found.nbytes, found.values(0, 0).array.size) == (shape, 0, 0)


def test_the_padding_behind_the_last_tensor_may_be_missing(tmp_path: Path) -> None:
    assert opened(tmp_path, [Tensor("t", 24, (3,), b"abc")], pad_last=False).tensors["t"].nbytes == 3


@pytest.mark.parametrize("shape", [(2**62, 2), (2**32, 2**32), (2**63,), (2**64 - 1, 2**64 - 1, 2**64 - 1, 2**64 - 1)])
@pytest.mark.parametrize("ggml", [0, 8, 255])
def test_shapes_beyond_all_files_are_refused(tmp_path: Path, ggml: int, shape: tuple[int, ...]) -> None:
    (problem,) = refused(tmp_path, [Tensor("t", ggml, shape, bytes(32))])
    assert (problem.code, problem.tensor) == ("bad-shape", "t")
    assert str(list(shape)) in problem.message


def test_all_tensors_that_cannot_be_are_reported_together(tmp_path: Path) -> None:
    tensors = [
        Tensor("a", 12, (2, 100), bytes(288)),
        Tensor("b", 0, (8,), bytes(32), offset=300),
        Tensor("c", 2, (), bytes(18), offset=352),
    ]
    problems = refused(tmp_path, tensors)
    assert [problem.code for problem in problems] == ["bad-shape", "bad-offset", "bad-shape"]
    assert problems[0].message == "a: rows of 100 values are no whole number of Q4_K blocks of 256"
    assert problems[1].message == "b: its offset 300 is not a multiple of the file's alignment 32"


@pytest.mark.parametrize("offset", [2**63, 2**64 - 32, 64])
@pytest.mark.parametrize("ggml", [0, 255])
def test_tensors_beyond_the_end_are_refused(tmp_path: Path, offset: int, ggml: int) -> None:
    tensors = [Tensor("a", 0, (8,), bytes(32)), Tensor("b", ggml, (8,), b"", offset=offset)]
    (problem,) = refused(tmp_path, tensors)
    assert (problem.code, problem.tensor) == ("truncated", "b")


def test_a_file_cut_by_one_byte_is_refused_with_both_sizes(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    data = File([Tensor("a", 0, (8,), bytes(32)), Tensor("b", 0, (8,), bytes(32))]).build()
    path.write_bytes(data[:-1])
    with pytest.raises(SourceError) as caught:
        open_gguf(path, "model.gguf")
    assert f"its header describes {len(data)} bytes, the file has {len(data) - 1}" in str(caught.value)
    assert "the first tensor cut is b" in str(caught.value)


@pytest.mark.parametrize("offset", [0, 32])
def test_tensors_over_each_other_are_refused(tmp_path: Path, offset: int) -> None:
    tensors = [Tensor("a", 0, (16,), bytes(64)), Tensor("b", 0, (16,), bytes(64), offset=offset)]
    (problem,) = refused(tmp_path, tensors)
    assert (problem.code, problem.tensor) == ("overlap", "b")
    assert problem.message == f"b and a overlap by {64 - offset} bytes"


def test_a_file_that_changes_after_it_was_opened_is_noticed(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, [Tensor("t", 8, (2, 32), bytes(68))])
    os.truncate(tmp_path / "model.gguf", 40)
    with pytest.raises(SourceError):
        checkpoint.tensors["t"].values(0, 64)


GROUP_128 = "declared Q2_0 but stored as group-128 (PrismML PQ2_0); re-download the g64 file"


@pytest.mark.parametrize("pad_last", [True, False])
def test_blocks_of_128_declared_as_q2_0_are_named(tmp_path: Path, pad_last: bool) -> None:
    tensors = [
        Tensor("a", 42, (8, 512), bytes(8 * 4 * 34)),
        Tensor("b", 0, (8,), bytes(32)),
        Tensor("c", 42, (8, 1024), bytes(8 * 8 * 34)),
    ]
    problems = refused(tmp_path, tensors, pad_last=pad_last)
    assert [(problem.code, problem.message) for problem in problems] == [
        ("q2-0-group-128", f"{name}: {GROUP_128}") for name in "ac"
    ]


@pytest.mark.parametrize("columns", [64, 128, 192, 512])
@pytest.mark.parametrize("pad_last", [True, False])
def test_true_q2_0_is_read(tmp_path: Path, columns: int, pad_last: bool) -> None:
    size = 8 * columns // 64 * 18
    tensors = [Tensor("a", 42, (8, columns), bytes(size)), Tensor("b", 42, (8, columns), bytes(size))]
    checkpoint = opened(tmp_path, tensors, pad_last=pad_last)
    assert [found.nbytes for found in checkpoint.tensors.values()] == [size, size]


def test_q2_0_that_is_cut_is_called_truncated(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, [Tensor("a", 42, (8, 512), bytes(8 * 8 * 18 - 40))], pad_last=False)
    assert problem.code == "truncated"
