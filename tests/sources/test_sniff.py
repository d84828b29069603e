"""What a file is, whatever its name: each wrong kind gets one sentence that helps (R03, R50, R53, R60, cli.md)."""

from __future__ import annotations

import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest

from ninfer_convert.errors import SourceError
from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.sniff import identify
from tests.oracle import safetensors as oracle

PLAIN = oracle.build({"t": oracle.tensor("U8", (4,))})
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12345\n"


def refused(path: Path | str) -> str:
    with pytest.raises(SourceError) as caught:
        open_checkpoint(path)
    (problem,) = caught.value.problems
    assert problem.path == str(path)
    return f"{problem.code}: {problem.message}"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("m.safetensors", b"", "empty-file: is empty: download"),
        ("m.safetensors", POINTER.encode(), "lfs-pointer: is a Git LFS pointer: the 12345 bytes it stands for"),
        ("blob", POINTER.replace("git-lfs", "hawser").encode(), "lfs-pointer: "),
        ("m.gguf", POINTER.encode(), "lfs-pointer: "),
        ("m.safetensors", b"<!DOCTYPE html><html>", "web-page: is a web page in place of the file: download"),
        ("m.gguf", b"\n  <HTML lang=en>", "web-page: "),
        ("m.safetensors", b'<?xml version="1.0"?><Error>', "web-page: "),
        ("m.safetensors", b"Entry not found", 'text-file: is a text file beginning "Entry not found"'),
        (
            "README.md",
            b"# Model\n\ntext",
            'text-file: is a text file beginning "# Model", not a checkpoint: give a safetensors or GGUF file or a',
        ),
        ("m.bin", pickle.dumps({"a": 1}, 2), "pickle: is a pickle or zip archive"),
        ("m.safetensors", pickle.dumps({"a": 1}, 4), "pickle: "),
        ("m.bin", b"PK\x03\x04\x00\x00\x08\x08", "pickle: "),
        ("m.onnx", b"\x08\x07\x12\x07pytorch\x1a\x052.1.0", "onnx: is an ONNX model"),
        ("m", b"\x08\x0a\x12\x07pytorch\x1a\x052.1.0", "onnx: "),
        ("m.h5", b"\x89HDF\r\n\x1a\n\0\0", "hdf5: is an HDF5 file"),
        ("m.npy", b"\x93NUMPY\x01\0", "numpy: is a NumPy array"),
        ("m.safetensors.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\0", "compressed: is a compressed file: unpack it first"),
        ("m.zst", b"\x28\xb5\x2f\xfd\x04\0", "compressed: "),
        ("m.ggml", b"lmgg" + bytes(20), "old-ggml: is a GGML, GGMF, GGJT or GGLA file from before GGUF"),
        ("m.ggml", b"fmgg" + bytes(20), "old-ggml: "),
        ("m.bin", b"tjgg" + bytes(20), "old-ggml: "),
        ("m.ninfer", b"NINFER\0\3" + bytes(40), "artifact: is a .ninfer artifact, where a checkpoint is needed"),
        ("m.ninfer.part-0001", b"NINPRT\0\3" + bytes(40), "artifact: is a part of a .ninfer artifact"),
        ("config.json", b'{"model_type": "llama"}', "bad-index: is JSON without a weight_map"),
        ("blob", b"\xde\xad\xbe\xef\0\1\2\3\4\5", "unknown-file: is neither safetensors nor GGUF: its first"),
        ("m.safetensors", b"\xde\xad\xbe\xef\0\1\2\3\4\5", "truncated: is 10 bytes long, but says"),
        ("m.safetensors", bytes(7), "truncated: is 7 bytes long"),
        ("m", struct.pack("<Q", 2**63) + b'{"a": 1}', "truncated: is 16 bytes long, but says"),
    ],
)  # fmt: skip
def test_each_wrong_kind_is_named(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert refused(path).startswith(expected)


def test_a_zip_of_arrays(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "weights.npz", "w") as archive:
        archive.writestr("a.npy", b"\x93NUMPY")
    assert refused(tmp_path / "weights.npz").startswith("pickle: is a pickle or zip archive")


@pytest.mark.parametrize("name", ["blob", "m.gguf", "m.bin", "m.json", "m.safetensors", "x.001", "m.part1"])
def test_names_do_not_decide_what_a_checkpoint_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(PLAIN)
    assert list(open_checkpoint(tmp_path / name).tensors) == ["t"]


@pytest.mark.parametrize(
    "length", [0x0280, 0x0580, 0x0880, 0x8B1F, 0x12_0A_08, 0x12_0708, 0x220A, 0x2020, 0x7B, 0x5B, 0x0B7B7B, 0x455A42]
)
def test_a_header_length_that_looks_like_another_kind(tmp_path: Path, length: int) -> None:
    """640 begins like a pickle, 35615 like gzip, 123 like JSON: the length's first bytes decide nothing."""
    path = tmp_path / "m"
    path.write_bytes(oracle.framed(b"{}".ljust(length), b""))
    assert identify(path, "m") == "safetensors"
    assert open_checkpoint(path).tensors == {}


@pytest.mark.parametrize("content", [b'{"weight_map": {}}', b"[1]", b"{}", b' \n {"a": 1}', b"        {}"])
def test_json_is_told_from_a_header_length(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m").write_bytes(content)
    assert identify(tmp_path / "m", "m") == "json"


def test_gguf_by_its_magic(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"GGUF\3\0\0\0")
    assert identify(tmp_path / "blob", "blob") == "gguf"


@pytest.mark.parametrize(
    "names",
    [
        ("m.gguf.part1of2", "m.gguf.part2of2"),
        ("m.safetensors.part1", "m.safetensors.part2"),
        ("m.gguf-split-a", "m.gguf-split-b"),
        ("m.gguf.aa", "m.gguf.ab"),
        ("m.safetensors.001", "m.safetensors.002"),
    ],
)
def test_pieces_of_a_raw_split_are_to_be_joined(tmp_path: Path, names: tuple[str, str]) -> None:
    half = len(PLAIN) // 2
    for name, data in zip(names, (PLAIN[:half], PLAIN[half:]), strict=True):
        (tmp_path / name).write_bytes(data)
    for name in names:
        message = refused(tmp_path / name)
        assert message.startswith("raw-split: is, by its name, one piece of a file")
        assert f"(cat PIECES > {'m.gguf' if 'gguf' in name else 'm.safetensors'})" in message


def test_one_piece_alone_is_known_by_its_count(tmp_path: Path) -> None:
    (tmp_path / "m.gguf.part1of2").write_bytes(b"GGUF\3\0\0\0")
    assert refused(tmp_path / "m.gguf.part1of2").startswith("raw-split: ")


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(PLAIN)
    assert refused("model.safetensor") == "no-such-file: does not exist; did you mean model.safetensors?"
    assert refused("nothing") == "no-such-file: does not exist"
    assert refused("org/model-7b").endswith("a model of the Hugging Face hub must be downloaded first")
    assert refused("./gone/model-7b") == "no-such-file: does not exist"
    assert refused("model.safetensors/x").startswith("no-such-file: ")
    assert refused("a\0b").startswith("unreadable: ")
    os.symlink("gone", "link.safetensors")
    assert refused("link.safetensors").startswith("broken-link: is a link to gone, which does not exist")


def test_an_empty_path_is_not_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(PLAIN)
    with pytest.raises(SourceError, match=r"^the path of the checkpoint is empty$"):
        open_checkpoint("")


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe").startswith("not-a-file: is a pipe, device or socket")
    assert refused(Path("/dev/null")).startswith("not-a-file: ")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((), "no-weights: holds no safetensors file: give a folder with"),
        (("config.json", "pytorch_model.bin"), "its weights are pickles (pytorch_model.bin)"),
        (("pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin"), "its weights are pickles"),
        (("weights.npz", "config.json"), "NumPy archives (weights.npz), as old MLX ones"),
        (("a.gguf", "b.gguf"), "give the GGUF file itself: a.gguf, b.gguf"),
        (("model.onnx",), "it holds an ONNX model (model.onnx)"),
        (("m.ninfer",), "it holds artifacts; info, verify and export take one by its name: m.ninfer"),
        (("adapter_config.json", "adapter_model.safetensors"), "adapter: holds an adapter"),
        (("adapter_config.json", "adapter_model.bin"), "adapter: holds an adapter"),
        (("unet/m.safetensors", "vae/m.safetensors"), "give the folder inside it that holds the model: unet, vae"),
    ],
)  # fmt: skip
def test_folders_that_hold_something_else(tmp_path: Path, files: tuple[str, ...], expected: str) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert expected in refused(tmp_path)


def test_a_model_with_an_adapters_config_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(PLAIN)
    (tmp_path / "adapter_config.json").write_bytes(b"{}")
    assert list(open_checkpoint(tmp_path).tensors) == ["t"]
