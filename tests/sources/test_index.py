"""Indexes of shard sets: what they decide, and what is refused of them (faults R03 and R09)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninfer_convert.sources import open_checkpoint
from tests.sources.shards import INDEX, POINTER, index, places, refused, shard, sharded


def test_a_folder_with_an_index_and_the_index_itself(tmp_path: Path) -> None:
    weight_map = sharded(tmp_path)
    path = index(tmp_path, weight_map)
    by_folder, by_index = open_checkpoint(tmp_path), open_checkpoint(path)
    assert places(by_folder) == places(by_index) == weight_map
    assert [file.path.name for file in by_folder.files] == sorted(set(weight_map.values()))
    assert by_folder.files[1].shown == f"{tmp_path}/model-00002-of-00002.safetensors"
    assert (by_folder.default_name, by_index.default_name) == (tmp_path.name, "model")
    assert by_folder.notes == by_index.notes == ()
    assert by_folder.folder == by_index.folder == tmp_path


def test_an_index_of_another_name(tmp_path: Path) -> None:
    shard(tmp_path, "x-00001-of-00001.safetensors", "a")
    path = index(tmp_path, {"a": "x-00001-of-00001.safetensors"}, "diffusion.safetensors.index.json")
    assert places(open_checkpoint(tmp_path)) == {"a": "x-00001-of-00001.safetensors"}
    assert open_checkpoint(path).default_name == "diffusion"


def test_several_indexes_are_for_the_user_to_choose_from(tmp_path: Path) -> None:
    shard(tmp_path, "x.safetensors", "a")
    first = index(tmp_path, {"a": "x.safetensors"}, "a.safetensors.index.json")
    index(tmp_path, {"a": "x.safetensors"}, "b.safetensors.index.json")
    (message,) = refused(tmp_path)
    assert "holds 2 models (a.safetensors.index.json, b.safetensors.index.json)" in message
    assert places(open_checkpoint(first)) == {"a": "x.safetensors"}


def test_a_shard_of_any_name_is_used(tmp_path: Path) -> None:
    shard(tmp_path, "model.safetensors", "a")
    shard(tmp_path, "mtp.safetensors", "m")
    shard(tmp_path, "parts/deep.safetensors", "d")
    index(tmp_path, {"a": "model.safetensors", "m": "mtp.safetensors", "d": "parts/deep.safetensors"})
    checkpoint = open_checkpoint(tmp_path)
    assert places(checkpoint) == {"a": "model.safetensors", "m": "mtp.safetensors", "d": "deep.safetensors"}
    assert checkpoint.notes == ()


def test_a_missing_shard_is_told_with_what_it_should_hold(tmp_path: Path) -> None:
    shard(tmp_path, "model.safetensors", "a")
    index(tmp_path, {"a": "model.safetensors"} | {f"m{number}": "mtp.safetensors" for number in range(5)})
    (message,) = refused(tmp_path)
    assert message == (
        f"{tmp_path}/{INDEX}: mtp.safetensors is missing, where the index puts 5 of 6 tensors "
        "(m0, m1, m2 and 2 more): download it"
    )


def test_every_missing_shard_is_told(tmp_path: Path) -> None:
    index(tmp_path, {f"t{number}": f"model-{number:05d}-of-00030.safetensors" for number in range(1, 31)})
    assert len(refused(tmp_path)) == 30


def test_a_whole_file_beside_an_index_of_absent_shards_is_offered(tmp_path: Path) -> None:
    index(tmp_path, {"a": "model-00001-of-00001.safetensors"})
    path = shard(tmp_path, "model.safetensors", "a")
    (message,) = refused(tmp_path)
    assert message.endswith("download it, or give model.safetensors by its own path")
    assert places(open_checkpoint(path)) == {"a": "model.safetensors"}


def test_an_index_over_pickles(tmp_path: Path) -> None:
    index(tmp_path, {"a": "model-00001-of-00001.safetensors"})
    (tmp_path / "pytorch_model-00001-of-00001.bin").write_bytes(b"PK\3\4")
    (message,) = refused(tmp_path)
    assert "model-00001-of-00001.safetensors is missing" in message
    assert "pickles" in message


def test_the_index_decides_between_two_shards_of_one_tensor(tmp_path: Path) -> None:
    shard(tmp_path, "base.safetensors", "t", "u")
    shard(tmp_path, "overlay.safetensors", "t", seed=9)
    index(tmp_path, {"t": "overlay.safetensors", "u": "base.safetensors"})
    checkpoint = open_checkpoint(tmp_path)
    assert places(checkpoint) == {"u": "base.safetensors", "t": "overlay.safetensors"}
    assert checkpoint.tensors["t"].read(0, 1)[0] == 9
    assert checkpoint.notes == (f"1 tensor passed by, as {INDEX} takes another file's: t",)


def test_tensors_the_index_does_not_list_are_passed_by(tmp_path: Path) -> None:
    shard(tmp_path, "model.safetensors", "a", *(f"x{number}" for number in range(6)))
    index(tmp_path, {"a": "model.safetensors"})
    checkpoint = open_checkpoint(tmp_path)
    assert list(checkpoint.tensors) == ["a"]
    assert checkpoint.notes == (f"6 tensors passed by, not listed in {INDEX}: x0, x1, x2 and 3 more",)


def test_stray_files_beside_an_index_are_ignored_and_told(tmp_path: Path) -> None:
    index(tmp_path, sharded(tmp_path))
    shard(tmp_path, "model.safetensors", "a", dtype="U32")
    (tmp_path / "consolidated.safetensors").write_bytes(b"not even one")
    checkpoint = open_checkpoint(tmp_path)
    assert [tensor.stored for tensor in checkpoint.tensors.values()] == ["U8", "U8", "U8"]
    assert checkpoint.notes == (f"2 files ignored, not named in {INDEX}: consolidated.safetensors, model.safetensors",)


def test_an_index_that_its_shards_contradict(tmp_path: Path) -> None:
    shard(tmp_path, "base.safetensors", "t", "u")
    shard(tmp_path, "third.safetensors", "v")
    index(tmp_path, {"t": "third.safetensors", "u": "base.safetensors", "w": "base.safetensors"})
    messages = refused(tmp_path)
    assert len(messages) == 2
    assert "puts 1 tensor into base.safetensors that it lacks: w; index and shards are not of one model" in messages[0]
    assert "puts 1 tensor into third.safetensors that it lacks: t (the first is in base.safetensors)" in messages[1]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("../model.safetensors", "outside the index's own folder"),
        ("a/../../model.safetensors", "outside the index's own folder"),
        ("/etc/passwd", "outside the index's own folder"),
        ("C:\\model.safetensors", "outside the index's own folder"),
        ("..\\model.safetensors", "outside the index's own folder"),
        ("\\\\host\\share\\x", "outside the index's own folder"),
        ("", "into no file"),
        ("a\0b", "into no file"),
        (7, "into no file"),
        (None, "into no file"),
        (["a"], "into no file"),
        ("pytorch_model.bin", "a pickle"),
    ],
)
def test_places_an_index_may_not_name(tmp_path: Path, place: object, expected: str) -> None:
    index(tmp_path, {"t\n": place})
    (message,) = refused(tmp_path)
    assert "its weight_map puts t\\n " in message
    assert expected in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "JSON without a weight_map"),
        ("[]", "JSON without a weight_map"),
        ('{"weight_map": {}}', "JSON without a weight_map"),
        ('{"weight_map": ["a"]}', "JSON without a weight_map"),
        ('{"weight_map": {"a": "x", "a": "y"}}', "has the member 'a' twice"),
        ('{"weight_map": {"a": "x"', "is not JSON"),
        ("", "is empty"),
        (POINTER.decode(), "is a Git LFS pointer"),
    ],
)
def test_a_damaged_index(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / INDEX
    path.write_text(text)
    (message,) = refused(path)
    assert message.startswith(f"{path}: ")
    assert expected in message
