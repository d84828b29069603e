"""info: what an artifact or a checkpoint holds, from headers alone."""

from __future__ import annotations

import json
import os
import re
import struct
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.architectures import small
from tests.cli.checkpoints import make, tensors
from tests.cli.program import ok, run
from tests.support import write_safetensors


def write_artifact(path: Path, directory: dict[str, Any], payload: bytes) -> None:
    """An artifact of one file, written without the product."""
    text = json.dumps({**directory, "files": [{"path": None, "payload_bytes": len(payload)}]}).encode()
    head = b"NINFER\x00\x03" + struct.pack("<Q", len(text)) + bytes(range(16)) + text
    path.write_bytes(head.ljust(-(-len(head) // 4096) * 4096, b"\0") + payload)


def provenance_shown(shown: str) -> list[list[str]]:
    """Name and text of each line of the provenance."""
    lines = shown.split("\nprovenance\n")[1].split("\n\n", maxsplit=1)[0].splitlines()
    return [re.split("  +", line.strip()) for line in lines]


def test_an_artifact_in_text(converted: Path) -> None:
    path = converted / "model.ninfer"
    shown = ok("info", "model.ninfer", cwd=converted).stdout
    assert "  name             A model\n" in shown
    assert f"  id               {path.read_bytes()[16:32].hex()}\n" in shown
    assert f"  size             {path.stat().st_size:,} bytes" in shown
    assert "  weights          1,605 in 4 parameters\n" in shown
    assert ["q4_g64_fp16", "2", "1,536", "1,352", "90.1", "%"] in [line.split() for line in shown.splitlines()]
    assert "resource/text/tokenizer.json" in shown
    assert "text       0 members  tokenizer.json" in shown
    model = (converted / "model.safetensors").read_bytes()
    recipe, header = (
        sha256(data).hexdigest()[:12]
        for data in ((converted / "r.toml").read_bytes(), model[: 8 + int.from_bytes(model[:8], "little")])
    )
    assert provenance_shown(shown) == [
        ["made by", "ninfer-convert, encoding 1"],
        ["recipe", "tiny"],
        ["recipe file", f"r.toml, sha256 {recipe}..."],
        ["--name", "A model"],
        ["source model", f"model.safetensors, {len(model):,} bytes, sha256 of its header {header}..."],
    ]
    assert "weight/000000" not in shown
    listed = ok("info", "model.ninfer", "--tensors", cwd=converted).stdout
    assert "weight/000000" in listed
    assert "layers.0.experts" in listed


def test_an_artifact_as_json_has_its_whole_directory(converted: Path) -> None:
    path = converted / "model.ninfer"
    data = path.read_bytes()
    length = int.from_bytes(data[8:16], "little")
    directory = json.loads(data[32 : 32 + length])
    info = ok("info", "model.ninfer", "--json", cwd=converted).result
    assert {name: info[name] for name in directory} == directory
    assert info["kind"] == "artifact"
    assert info["artifact_id"] == data[16:32].hex()
    assert info["bytes"] == len(data)
    (start,) = info["payload_starts"]
    assert start + info["payload_bytes"] == len(data)
    assert info["formats"][0] == {"name": "q4_g64_fp16", "objects": 2, "elements": 1536, "bytes": 1352}


def test_one_parameter_of_an_artifact(converted: Path) -> None:
    shown = ok("info", "model.ninfer", "--parameter", "layers.0.experts", cwd=converted).stdout
    assert shown.startswith("layers.0.experts\n  object      weight/000001, elements [0, 768) of 12 x 64\n")
    assert "  shape       3 x 4 x 64\n" in shown
    assert "q4_g64_fp16 in row_split_k128_v1" in shown
    assert "grouped_absmax" in shown
    assert "layers.0.up.weight" not in shown
    parameter = ok("info", "model.ninfer", "--parameter", "layers.0.experts", "--json", cwd=converted).result[
        "parameter"
    ]
    assert parameter["shape"] == [3, 4, 64]
    assert parameter["provenance"] == {"shape": [3, 4, 64]}
    (part,) = parameter["parts"]
    assert part["shape"] == [12, 64]
    assert part["provenance"]["tensors"] == ["layers.0.experts"]


def test_a_parameter_that_is_not_there_is_answered_with_the_nearest(converted: Path) -> None:
    for path in ("model.ninfer", "model.safetensors"):
        ran = run("info", path, "--parameter", "layers.0.expert", cwd=converted)
        assert ran.status == 1
        assert "did you mean 'layers.0.experts'" in ran.stderr


def test_a_provenance_says_what_was_given_and_left_out(tmp_path: Path) -> None:
    names = [f"visual.{number}" for number in range(99)]
    skipped = [{"name": name, "tensors": [], "reason": "not wanted"} for name in names]
    provenance = {
        "overrides": {"set": ["*:format=bf16", "a:rows=[0, 1]"], "requantize": True, "name": None},
        "sources": {"other": {"files": [{"name": "m.gguf", "size": 1024, "tensors": ["a"]}, 7]}, "odd": [1]},
        "skipped": [*skipped, {"name": "rope", "tensors": [], "reason": "computed"}, "odd"],
        "activation_scales": {"a": {"a.input_scale": 0.5}},
        "tool": ["odd"],
    }
    object = {"id": "w", "kind": "tensor", "shape": [2, 2], "format": "bf16", "layout": "odd", "offset": 0, "bytes": 8}
    directory = {
        "components": {"text": {"config": {}}},
        "objects": [object],
        "bindings": {"w": {"object": "w"}},
        "uses": [],
        "provenance": provenance,
    }
    write_artifact(tmp_path / "m.ninfer", directory, bytes(8))
    shown = ok("info", "m.ninfer", "--uses", cwd=tmp_path).stdout
    many = ", ".join(names)
    assert provenance_shown(shown) == [
        ["--set", "*:format=bf16"],
        ["--set", "a:rows=[0, 1]"],
        ["--requantize", "decoded values were quantized again"],
        ["source other", "m.gguf, 1,024 bytes"],
        ["source other", "7"],
        ["source odd", "1"],
        ["left out", "odd"],
        ["left out", f"not wanted: 99 names, {many[:100]}... ({len(many):,} characters)"],
        ["left out", "computed: 1 name, rope"],
        ["activation scales", "of 1 parameter: a"],
        ["tool", "odd"],
    ]
    assert shown.endswith("\n\nno uses: it records nothing of the inputs of its parameters\n")


def test_uses_unknown_formats_and_a_foreign_provenance(tmp_path: Path) -> None:
    """What another program wrote is listed by name, whatever it is."""
    directory = {
        "components": {
            "text": {"config": {"a": 1}, "proposal": {"domain": "indexed", "rows": 7}},
            "draft": {"config": {}, "target": "text"},
        },
        "objects": [
            {"id": "w", "kind": "tensor", "shape": [2, 8], "format": "q3_new", "layout": "odd", "offset": 0, "bytes": 9}
        ],
        "bindings": {"up": {"object": "w"}, "left": {"parts": [{"object": "w", "range": [0, 8]}]}},
        "uses": [
            {"parameter": "up", "input": "x", "activation_policy": "AllowA8"},
            {"parameter": "left", "input": "y"},
        ],
        "provenance": {"objects": ["nonsense"], "parameters": 3, "conv\x1berter": "other\x1b[2J"},
    }
    write_artifact(tmp_path / "new.ninfer", directory, bytes(9))
    shown = ok("info", "new.ninfer", "--tensors", "--uses", cwd=tmp_path).stdout
    assert "q3_new" in shown
    assert "up, left" in shown
    assert "targets text" in shown
    assert "proposes 7 tokens" in shown
    assert "conv\\x1berter  other\\x1b[2J" in shown
    assert "up      x      AllowA8" in shown
    assert "AllowA8" in ok("info", "new.ninfer", "--parameter", "up", cwd=tmp_path).stdout
    assert "elements [0, 8)" in ok("info", "new.ninfer", "--parameter", "left", cwd=tmp_path).stdout
    directory["provenance"] = {"objects": {"w": "nonsense"}}
    write_artifact(tmp_path / "new.ninfer", directory, bytes(9))
    assert "q3_new in odd" in ok("info", "new.ninfer", "--parameter", "up", cwd=tmp_path).stdout


def test_a_missing_part_is_a_warning(converted: Path) -> None:
    (converted / "parts.ninfer.part-0001").unlink()
    ran = ok("info", "parts.ninfer", cwd=converted)
    assert ran.stderr.startswith("warning: parts.ninfer.part-0001: ")
    info = ok("info", "parts.ninfer", "--json", cwd=converted).result
    assert [warning["file"] for warning in info["warnings"]] == ["parts.ninfer.part-0001"]


def test_a_part_and_a_broken_artifact_are_refused(converted: Path) -> None:
    ran = run("info", "parts.ninfer.part-0001", cwd=converted)
    assert ran.status == 1
    assert "open its entry" in ran.stderr
    (converted / "cuparts.ninfer").write_bytes((converted / "parts.ninfer").read_bytes()[:5000])
    ran = run("info", "cuparts.ninfer", cwd=converted)
    assert ran.status == 1
    assert ran.stderr.startswith("error: cuparts.ninfer: ")


def test_what_it_is_is_told_by_content(converted: Path) -> None:
    (converted / "model.ninfer").rename(converted / "a.safetensors")
    (converted / "model.safetensors").rename(converted / "b.ninfer")
    assert ok("info", "a.safetensors", "--json", cwd=converted).result["kind"] == "artifact"
    assert ok("info", "b.ninfer", "--json", cwd=converted).result["kind"] == "safetensors"


def test_a_checkpoint_in_text(tmp_path: Path) -> None:
    make(tmp_path)
    shown = ok("info", "model.safetensors", cwd=tmp_path).stdout
    assert "  kind     safetensors\n" in shown
    assert "  tensors  4, of 1,605 elements\n" in shown
    assert ["F32", "1", "768", "3,072", "64.7", "%"] in [line.split() for line in shown.splitlines()]
    assert "layers.0.bias" not in shown
    listed = ok("info", "model.safetensors", "--tensors", cwd=tmp_path).stdout
    assert "layers.0.bias" in listed
    one = ok("info", "model.safetensors", "--parameter", "layers.0.bias", cwd=tmp_path).stdout
    assert "  type    F16\n" in one
    assert "layers.0.experts" not in one


@pytest.mark.parametrize("folder", [False, True])
def test_offsets_are_relative_and_absolute(tmp_path: Path, folder: bool) -> None:
    path = make(tmp_path) / "model.safetensors"
    info = ok("info", ".." + os.sep + tmp_path.name if folder else path.name, "--json", cwd=tmp_path).result
    data = path.read_bytes()
    (file,) = info["files"]
    assert file["bytes"] == len(data)
    for tensor in info["tensors"]:
        stored, shape, content = tensors()[tensor["name"]]
        assert (tensor["type"], tensor["shape"]) == (stored, list(shape))
        assert data[tensor["offset"] : tensor["offset"] + tensor["bytes"]] == content
        assert tensor["offset"] == file["data_offset"] + tensor["relative_offset"]


def test_uses_of_a_checkpoint_are_wrong_usage(tmp_path: Path) -> None:
    make(tmp_path)
    assert run("info", "model.safetensors", "--uses", cwd=tmp_path).status == 2


def gguf_text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def write_gguf(path: Path, type_id: int) -> bytes:
    """A GGUF with alignment 64, a long array, and a tensor of 96 bytes of the type; the tensor's bytes."""
    keys = [
        gguf_text("general.architecture") + struct.pack("<I", 8) + gguf_text("llama"),
        gguf_text("general.alignment") + struct.pack("<II", 4, 64),
        gguf_text("general.file_type") + struct.pack("<II", 4, 15),
        gguf_text("odd.number") + struct.pack("<If", 6, float("nan")),
        gguf_text("tokenizer.ggml.tokens")
        + struct.pack("<IIQ", 9, 8, 1000)
        + b"".join(gguf_text(f"token{number}") for number in range(1000)),
    ]
    info = gguf_text("blk.0.weight") + struct.pack("<IQQIQ", 2, 8, 3, type_id, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys)) + b"".join(keys) + info
    content = bytes(range(96))
    path.write_bytes(head.ljust(-(-len(head) // 64) * 64, b"\0") + content)
    return content


def test_a_gguf_with_all_its_metadata(tmp_path: Path) -> None:
    content = write_gguf(tmp_path / "m.gguf", 0)
    info = ok("info", "m.gguf", "--json", cwd=tmp_path).result
    assert info["kind"] == "gguf"
    (tensor,) = info["tensors"]
    assert (tensor["type"], tensor["shape"]) == ("F32", [3, 8])
    data = (tmp_path / "m.gguf").read_bytes()
    assert data[tensor["offset"] : tensor["offset"] + tensor["bytes"]] == content
    assert tensor["relative_offset"] == 0
    assert (info["metadata"]["general.file_type"], info["declared"]) == (15, "Q4_K_M")
    assert info["metadata"]["odd.number"] == "nan"
    tokens = info["metadata"]["tokenizer.ggml.tokens"]
    assert (tokens["type"], tokens["length"]) == ("string", 1000)
    assert tokens["first"] == [f"token{number}" for number in range(8)]
    shown = ok("info", "m.gguf", cwd=tmp_path).stdout
    assert "  declared  mostly Q4_K_M, by its metadata\n" in shown
    assert re.search(r"^type +tensors +elements +bytes +share\nF32 +1 +24 +96 +100.0 %$", shown, re.MULTILINE)
    assert "[token0, token1, " in shown
    assert "(1,000 elements)" in shown


def test_an_unknown_type_is_listed_by_its_number(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", 77)
    assert "77" in ok("info", "m.gguf", "--tensors", cwd=tmp_path).stdout
    (tensor,) = ok("info", "m.gguf", "--json", cwd=tmp_path).result["tensors"]
    assert "77" in tensor["type"]


def test_long_metadata_is_shortened_in_text_and_whole_in_json(tmp_path: Path) -> None:
    text = json.dumps({"__metadata__": {"note": "x" * 5000, "k" * 500: "1"}}).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    shown = ok("info", "m.safetensors", cwd=tmp_path).stdout
    assert "  note  xxx" in shown
    assert "xxx... (5,000 characters)\n" in shown
    assert ok("info", "m.safetensors", "--json", cwd=tmp_path).result["metadata"]["note"] == "x" * 5000


def test_long_names_widen_no_column_and_very_long_ones_are_cut(tmp_path: Path) -> None:
    words = ("F32", (1,), bytes(4))
    tensors = {"n" * 60_000: words, "m" * 150: words, "k" * 80: words, "short": words}
    write_safetensors(tmp_path / "m.safetensors", tensors)
    listed = ok("info", "m.safetensors", "--tensors", cwd=tmp_path).stdout.splitlines()
    lengths = {line.split()[0]: len(line) for line in listed if "F32" in line and "  1  " in line}
    assert lengths["short"] == lengths["k" * 80] < lengths["m" * 150] < 250
    assert f"{'n' * 1000}... (60,000 characters)  F32" in "\n".join(listed)
    json_names = [tensor["name"] for tensor in ok("info", "m.safetensors", "--json", cwd=tmp_path).result["tensors"]]
    assert set(json_names) == set(tensors)


def test_warnings_of_a_checkpoint_are_told(tmp_path: Path) -> None:
    folder = make(tmp_path)
    write_safetensors(folder / "stray.safetensors", tensors())
    names = ", ".join(f'"{name}": "model.safetensors"' for name in tensors())
    (folder / "model.safetensors.index.json").write_text(f'{{"weight_map": {{{names}}}}}')
    ran = ok("info", ".", cwd=folder)
    assert ran.stderr.startswith("warning: .: ")
    assert "stray.safetensors" in ran.stderr


def test_an_artifact_for_the_engine_is_told_by_kinds_of_parameters(tmp_path: Path) -> None:
    small.write(tmp_path / "qwen", small.KINDS["experts in banks"])
    ok("qwen", "-r", "qwen3_6_35b_a3b", cwd=tmp_path)
    shown = [re.split(r"  +", line.strip()) for line in ok("info", "qwen.ninfer", cwd=tmp_path).stdout.splitlines()]
    component = next(line for line in shown if line[0] == "text")
    assert component[1] == "Qwen3_5MoeForCausalLM, 22 members"
    by_name = {line[0]: line[1:] for line in shown}
    assert by_name["parameters"] == ["count", "format", "shape", "bytes", "in one object", "used with"]
    assert by_name["text/layers/*/moe/experts/*/up"] == [
        "12",
        "q4_g64_fp16",
        "128 x 128",
        "104,448",
        "gate + up, 3 of each",
        "text/layers/*/ffn_input",
    ]
    query = by_name["text/layers/*/attention/query"]
    assert query[1:3] + query[4:] == [
        "q8_g32_fp16",
        "144 x 128",
        "query + key + gate + value",
        "text/layers/*/mixer_input",
    ]
