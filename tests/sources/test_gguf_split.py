"""Split GGUF sets: opened from any part, complete or not at all (field faults R15, R53, R55)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ninfer_convert.errors import SourceError
from ninfer_convert.sources import open_checkpoint
from tests.oracle.gguf import STRING, File, Tensor, scalar, text, u32

NAMES = [f"model-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]


def part(index: int, total: int = 3, name: str = "", declared: int | None = 3) -> File:
    """One part with one tensor."""
    metadata = [("split.no", 2, scalar(2, index)), ("split.count", 2, scalar(2, total))]
    if declared is not None:
        metadata.append(("split.tensors.count", 5, scalar(5, declared)))
    if index == 0:
        metadata.append(("general.architecture", STRING, text("llama")))
    return File([Tensor(name or f"t{index}", 24, (4,), bytes([index] * 4))], metadata)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for index in (2, 0, 1):
        (tmp_path / NAMES[index]).write_bytes(part(index).build())
    return tmp_path


@pytest.mark.parametrize("given", NAMES)
def test_any_part_opens_the_whole_set(folder: Path, given: str) -> None:
    checkpoint = open_checkpoint(folder / given)
    assert [file.path.name for file in checkpoint.files] == NAMES
    assert [file.shown for file in checkpoint.files] == [str(folder / name) for name in NAMES]
    assert {name: source.values(0, 4).array.tolist() for name, source in checkpoint.tensors.items()} == {
        f"t{index}": [index] * 4 for index in range(3)
    }
    assert list(checkpoint.tensors) == ["t0", "t1", "t2"]
    assert (checkpoint.default_name, checkpoint.metadata["general.architecture"]) == ("model", "llama")
    assert checkpoint.raw_metadata == part(0).header()[8:]


def test_a_set_behind_links_is_found_beside_the_link(folder: Path) -> None:
    links = folder / "snapshot"
    links.mkdir()
    for index, name in enumerate(NAMES):
        (folder / name).rename(folder / f"blob{index}")
        (links / name).symlink_to(folder / f"blob{index}")
    assert len(open_checkpoint(links / NAMES[1]).tensors) == 3


def test_the_parts_are_called_as_the_user_typed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert [file.shown for file in open_checkpoint(f"./{NAMES[2]}").files][:2] == [f"./{name}" for name in NAMES[:2]]
    assert [file.shown for file in open_checkpoint(NAMES[2]).files] == NAMES


def test_a_missing_part_is_named(folder: Path) -> None:
    (folder / NAMES[1]).unlink()
    with pytest.raises(SourceError) as caught:
        open_checkpoint(folder / NAMES[2])
    (problem,) = caught.value.problems
    assert problem.code == "missing-part"
    assert problem.message == f"is part 3 of 3 of a split set, and {NAMES[1]} is not beside it; download the rest"


def test_a_part_under_another_name_is_explained(folder: Path) -> None:
    (folder / NAMES[0]).rename(folder / "first.gguf")
    with pytest.raises(SourceError) as caught:
        open_checkpoint(folder / "first.gguf")
    assert caught.value.problems[0].code == "split-name"
    assert "-00001-of-00003.gguf" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({2: part(2, name="t0")}, "duplicate-tensor", f"t0: is in {NAMES[0]} too"),
        ({1: part(2)}, "split-mismatch", "part 3 of 3, not 2 of 3"),
        ({1: part(1, total=4)}, "split-mismatch", "part 2 of 4, not 2 of 3"),
        ({1: File([Tensor("t1", 24, (4,), bytes(4))])}, "split-mismatch", "part 1 of 1, not 2 of 3"),
        ({0: part(0, declared=5)}, "split-mismatch", "holds 5 tensors, but its parts hold 3"),
        ({1: File(metadata=[("split.no", STRING, text("one"))])}, "bad-value", "split.no is one"),
        ({1: File(metadata=[u32("split.count", 3), ("split.no", 5, scalar(5, -1))])}, "bad-value", "split.no"),
        ({1: File([Tensor("t1", 24, (400,), b"")])}, "split-mismatch", "part 1 of 1"),
        ({1: part(1, name="\x07"), 2: part(2, name="\x07")}, "duplicate-tensor", "\\x07: is in"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(
    folder: Path, changes: Mapping[int, File], code: str, says: str
) -> None:
    for index, file in changes.items():
        (folder / NAMES[index]).write_bytes(file.build())
    with pytest.raises(SourceError) as caught:
        open_checkpoint(folder / NAMES[0])
    assert [problem.code for problem in caught.value.problems] == [code]
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 400\n"),
        lambda path: path.write_bytes(path.read_bytes()[:-30]),
        lambda path: path.write_bytes(b""),
    ],
    ids=["pointer", "cut", "empty"],
)
def test_a_damaged_part_is_named(folder: Path, spoil: Callable[[Path], int]) -> None:
    spoil(folder / NAMES[2])
    with pytest.raises(SourceError) as caught:
        open_checkpoint(folder / NAMES[0])
    assert [problem.path for problem in caught.value.problems] == [str(folder / NAMES[2])]


def test_a_name_alone_makes_no_set(tmp_path: Path) -> None:
    path = tmp_path / NAMES[1]
    path.write_bytes(File([Tensor("t", 24, (4,), b"abcd")]).build())
    assert list(open_checkpoint(path).tensors) == ["t"]


def test_the_set_may_not_say_how_many_tensors_it_holds(tmp_path: Path) -> None:
    for index, name in enumerate(NAMES):
        (tmp_path / name).write_bytes(part(index, declared=None).build())
    assert len(open_checkpoint(tmp_path / NAMES[0]).tensors) == 3
