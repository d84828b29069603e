"""Folders, shard sets and links: which files make a model (faults R03, R09 and T3)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ninfer_convert.errors import SourceError
from ninfer_convert.sources import open_checkpoint
from tests.oracle import safetensors as oracle
from tests.sources.shards import INDEX, POINTER, index, places, refused, shard, sharded

# One file


def test_any_file_name_works_and_its_folder_is_looked_in(tmp_path: Path) -> None:
    path = shard(tmp_path, "llama.safetensors", "a", "b")
    (tmp_path / "config.json").write_text('{"x": 1}')
    checkpoint = open_checkpoint(path)
    assert (checkpoint.kind, checkpoint.shown, checkpoint.source) == ("safetensors", str(path), "model")
    assert list(checkpoint.tensors) == ["a", "b"]
    assert checkpoint.default_name == "llama"
    assert checkpoint.beside("config.json") == b'{"x": 1}'
    assert checkpoint.beside("tokenizer.json") is None
    assert checkpoint.notes == ()


def test_a_source_has_the_name_it_is_given(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(shard(tmp_path, "m.safetensors", "a"), source="base")
    assert checkpoint.source == "base"
    assert [origin.source for origin in checkpoint.tensors["a"].origins] == ["base"]


def test_a_folder_with_one_file_of_any_name(tmp_path: Path) -> None:
    shard(tmp_path / "my model", "weights.safetensors", "a")
    checkpoint = open_checkpoint(tmp_path / "my model")
    assert places(checkpoint) == {"a": "weights.safetensors"}
    assert checkpoint.default_name == "my model"
    assert checkpoint.folder == tmp_path / "my model"
    assert checkpoint.files[0].shown == str(tmp_path / "my model" / "weights.safetensors")


def test_hidden_files_and_folders_are_no_weights(tmp_path: Path) -> None:
    shard(tmp_path, "model.safetensors", "a")
    (tmp_path / "._model.safetensors").write_bytes(b"\0\5\x16\7 resource fork")
    (tmp_path / "old.safetensors").mkdir()
    assert open_checkpoint(tmp_path).notes == ()


# No index


def test_a_complete_numbered_set_needs_no_index(tmp_path: Path) -> None:
    weight_map = sharded(tmp_path)
    assert places(open_checkpoint(tmp_path)) == weight_map


def test_an_incomplete_set_names_what_is_missing(tmp_path: Path) -> None:
    shard(tmp_path, "model-00002-of-00003.safetensors", "a")
    (message,) = refused(tmp_path)
    assert "lacks 2 of the 3 shards of its model" in message
    assert "model-00001-of-00003.safetensors, model-00003-of-00003.safetensors" in message


def test_a_tensor_in_two_shards_and_no_index(tmp_path: Path) -> None:
    shard(tmp_path, "model-00001-of-00002.safetensors", "t")
    shard(tmp_path, "model-00002-of-00002.safetensors", "t")
    (message,) = refused(tmp_path)
    assert "t is in model-00001-of-00002.safetensors and in model-00002-of-00002.safetensors" in message
    assert INDEX in message


def test_two_families_and_no_index(tmp_path: Path) -> None:
    sharded(tmp_path)
    path = shard(tmp_path, "consolidated.safetensors", "a", "b", "c")
    (message,) = refused(tmp_path)
    assert "holds 2 models (consolidated.safetensors, model-00001-of-00002.safetensors)" in message
    assert "give the path of the file to convert" in message
    assert places(open_checkpoint(path)) == dict.fromkeys("abc", "consolidated.safetensors")


def test_a_gguf_beside_another_file_is_a_second_model(tmp_path: Path) -> None:
    shard(tmp_path, "weights.safetensors", "a")
    (tmp_path / "weights.gguf").write_bytes(b"GGUF")
    (message,) = refused(tmp_path)
    assert "holds 2 models (weights.safetensors, weights.gguf)" in message


def test_the_layouts_own_name_wins_over_files_beside_it(tmp_path: Path) -> None:
    shard(tmp_path, "model.safetensors", "a", "b")
    shard(tmp_path, "notes.safetensors", "x")
    shard(tmp_path, "decoded.safetensors", "a", dtype="F32")
    checkpoint = open_checkpoint(tmp_path)
    assert places(checkpoint) == {"a": "model.safetensors", "b": "model.safetensors"}
    assert checkpoint.notes == ("2 files ignored beside model.safetensors: decoded.safetensors, notes.safetensors",)


def test_the_same_tensor_twice_and_no_index(tmp_path: Path) -> None:
    shard(tmp_path, "model.safetensors", "a", "b")
    path = shard(tmp_path, "overlay.safetensors", "a")
    (message,) = refused(tmp_path)
    assert "1 tensor (a) both in model.safetensors and in overlay.safetensors" in message
    assert "give the path of the file" in message
    assert places(open_checkpoint(path)) == {"a": "overlay.safetensors"}


def test_one_shard_of_a_set_points_to_the_folder(tmp_path: Path) -> None:
    sharded(tmp_path)
    (message,) = refused(tmp_path / "model-00002-of-00002.safetensors")
    assert f"is shard 2 of 2: give the folder ({tmp_path})" in message
    alone = shard(tmp_path / "one", "model-00001-of-00001.safetensors", "a")
    assert open_checkpoint(alone).default_name == "model"


# Damage in a set


def test_every_pointer_of_a_set_is_told_and_nothing_else_read(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"model-0000{number}-of-00003.safetensors").write_bytes(POINTER if number != 2 else b"damaged too!")
    messages = refused(tmp_path)
    pointers = [message for message in messages if "Git LFS pointer" in message]
    assert len(pointers) == 2
    assert f"{tmp_path}/model-00001-of-00003.safetensors: is a Git LFS pointer" in pointers[0]
    assert all("4976698672 bytes" in message and "git lfs pull" in message for message in pointers)


@pytest.mark.parametrize(
    ("content", "expected"), [(b'{"error": "not found"}', "is JSON,"), (b"GGUF\3\0\0\0", "is GGUF,")]
)
def test_a_shard_of_another_kind(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    (message,) = refused(tmp_path)
    assert f"model.safetensors: {expected} where a safetensors file was expected" in message


def test_every_shard_is_checked_against_its_size(tmp_path: Path) -> None:
    for number, cut in ((1, 0), (2, 1), (3, 80)):
        path = shard(tmp_path, f"model-0000{number}-of-00003.safetensors", f"t{number}")
        data = path.read_bytes()
        path.write_bytes(data[: len(data) - cut])
    messages = refused(tmp_path)
    assert [Path(message.split(":")[0]).name for message in messages] == [
        "model-00002-of-00003.safetensors",
        "model-00003-of-00003.safetensors",
    ]


# Links


def test_a_cache_folder_of_links_to_blobs(tmp_path: Path) -> None:
    cache = tmp_path / "models--org--Tiny-Model"
    snapshot = cache / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    for number, tensor in ((1, "a"), (2, "b")):
        shard(cache / "blobs", f"blob{number}", tensor)
        os.symlink(f"../../blobs/blob{number}", snapshot / f"model-0000{number}-of-00002.safetensors")
    index(cache / "blobs", {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}, "blob3")
    os.symlink("../../blobs/blob3", snapshot / INDEX)
    checkpoint = open_checkpoint(snapshot)
    assert list(checkpoint.tensors) == ["a", "b"]
    assert checkpoint.default_name == "Tiny-Model"
    assert checkpoint.files[0].shown == f"{snapshot}/model-00001-of-00002.safetensors"
    os.symlink(snapshot, tmp_path / "link")
    assert open_checkpoint(tmp_path / "link").default_name == "Tiny-Model"
    assert places(open_checkpoint(cache / "blobs" / "blob1")) == {"a": "blob1"}
    (message,) = refused(cache)
    assert f"give the folder inside it that holds the model: {Path('snapshots') / '0123abc'}" in message
    (cache / "blobs" / "blob2").unlink()
    (message,) = refused(snapshot)
    assert "is a link to ../../blobs/blob2, which does not exist" in message


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("m.safetensors", "m"),
        ("m.v2.safetensors", "m.v2"),
        ("m-00001-of-00001.safetensors", "m"),
        ("m-q8.bin", "m-q8.bin"),
        ("0a1b2c", "0a1b2c"),
    ],
)
def test_default_names(tmp_path: Path, name: str, expected: str) -> None:
    assert open_checkpoint(shard(tmp_path, name, "a")).default_name == expected


def test_the_current_folder_has_its_resolved_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard(tmp_path / "model-x", "model.safetensors", "a")
    monkeypatch.chdir(tmp_path / "model-x")
    checkpoint = open_checkpoint(".")
    assert checkpoint.default_name == "model-x"
    assert checkpoint.files[0].shown == "./model.safetensors"


@pytest.mark.parametrize("name", ["модель", "模型", "a b", "-r", "[x]", os.fsdecode(b"\xff\xfe")])
def test_paths_of_any_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    shard(tmp_path / name, "model.safetensors", "a")
    checkpoint = open_checkpoint(name)
    assert checkpoint.default_name == name
    assert checkpoint.tensors["a"].read(0, 4).size == 4
    (tmp_path / name / "model.safetensors").write_bytes(b"")
    (message,) = refused(name)
    assert message.encode("utf-8")
    assert "is empty" in message


def test_resources_that_are_pointers_are_refused(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(shard(tmp_path, "m.safetensors", "a"))
    (tmp_path / "tokenizer.json").write_bytes(POINTER)
    with pytest.raises(SourceError, match=r"tokenizer.json: is a Git LFS pointer: the 4976698672 bytes"):
        checkpoint.beside("tokenizer.json")


def test_metadata_of_shards_is_joined(tmp_path: Path) -> None:
    for number, metadata in ((1, {"format": "pt", "a": "1"}), (2, {"format": "mlx", "b": "2"})):
        data = oracle.build({f"t{number}": oracle.tensor("U8", (1,))}, metadata)
        (tmp_path / f"model-0000{number}-of-00002.safetensors").write_bytes(data)
    assert open_checkpoint(tmp_path).metadata == {"format": "pt", "a": "1", "b": "2"}
