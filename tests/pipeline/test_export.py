"""Exports as safetensors: read back by the package of that name, with the oracles' values."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors import safe_open

from ninfer_convert.container import (
    ArtifactWriter,
    Binding,
    Component,
    Directory,
    Part,
    ResourceObject,
    TensorObject,
    Use,
    plan_files,
)
from ninfer_convert.errors import NumericError, OutputError, SourceError
from ninfer_convert.pipeline.export import export, tensors
from ninfer_convert.sources import open_checkpoint
from tests.oracle import objects as oracle
from tests.pipeline import artifacts
from tests.pipeline.artifacts import EVERY_FORMAT, Stored
from tests.pipeline.exporting import read, refused
from tests.support import TINY_LLAMA, program, write_safetensors

if TYPE_CHECKING:
    from ninfer_convert.pipeline.progress import Progress


DIRECT = {"bf16": "BF16", "fp32": "F32", "int32": "I32"}
WIDTH = {"BF16": 2, "F32": 4, "I32": 4}


def metadata(path: Path) -> dict[str, str]:
    with safe_open(path, framework="numpy") as opened:
        return dict(opened.metadata())


def expected(each: Stored, dtype: str) -> tuple[str, list[int], bytes]:
    """What the oracles say of an object as an exported tensor."""
    shape = list(each.shape)
    if each.format in DIRECT:
        return DIRECT[each.format], shape, each.payload
    values = each.values.astype("<f4")
    return ("F32", shape, values.tobytes()) if dtype == "fp32" else ("BF16", shape, oracle.bf16(values))


class TestValues:
    @pytest.mark.parametrize("dtype", ["fp32", "bf16"])
    def test_every_format_is_what_the_oracle_decodes(
        self, every_format: tuple[Path, dict[str, Stored]], dtype: str, tmp_path: Path
    ) -> None:
        path, objects = every_format
        done = export(path, tmp_path / "m.safetensors", dtype=dtype, jobs=2)
        found = read(tmp_path / "m.safetensors")
        assert found == {id: expected(each, dtype) for id, each in objects.items()}
        assert (done.parameters, done.decoded) == (30, 27)
        assert done.files == ((str(tmp_path / "m.safetensors"), (tmp_path / "m.safetensors").stat().st_size),)

    def test_values_are_exact_where_nothing_is_said(
        self, every_format: tuple[Path, dict[str, Stored]], tmp_path: Path
    ) -> None:
        path, _ = every_format
        export(path, tmp_path / "a.safetensors")
        export(path, tmp_path / "b.safetensors", dtype="fp32")
        assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()

    def test_parameters_are_read_through_their_bindings(self, tmp_path: Path) -> None:
        objects = {
            "q4": artifacts.stored("q4_g64_fp16", 7, 130, 1),
            "q6": artifacts.stored("q6_g64_fp16", 4, 130, 2),
            "bf16": artifacts.stored("bf16", 3, 130, 3),
            "fp4": artifacts.stored("nvfp4"),
            "scalar": artifacts.floats("fp32", np.array(2.5)),
            "q8": artifacts.stored("q8_g32_fp16", 12, 33, 5),
        }
        bindings = {
            "regions": Binding(None, (Part("q4", 0, 910), Part("q6", 0, 520), Part("bf16", 0, 390))),
            "direct": Binding(None, (Part("bf16", 130, 390), Part("bf16", 0, 130))),
            "bank": Binding(None, (Part("q8", 0, 396),)),
            "query": Binding(None, (Part("fp4", 0, 64 * 128),)),
            "key": Binding(None, (Part("fp4", 64 * 128, 256 * 128),)),
            "pieces": Binding(None, (Part("q4", 3, 777), Part("fp4", 129, 130))),
            "scalar": Binding("scalar"),
            "tied": Binding("q6"),
        }
        shapes = {"regions": {"shape": [14, 130]}, "bank": {"shape": [3, 4, 33]}, "direct": {"shape": [3, 130]}}
        path = artifacts.write(tmp_path / "a.ninfer", objects, bindings, {"parameters": shapes})
        export(path, tmp_path / "m.safetensors")
        found = read(tmp_path / "m.safetensors")
        fp4 = objects["fp4"].values.astype("<f4").tobytes()
        regions = artifacts.fused(objects, ["q4", "q6", "bf16"]).astype("<f4").tobytes()
        pieces = objects["q4"].values.reshape(-1)[3:777].astype("<f4").tobytes() + fp4[4 * 129 : 4 * 130]
        assert found == {
            "regions": ("F32", [14, 130], regions),
            "direct": ("BF16", [3, 130], objects["bf16"].payload[260:] + objects["bf16"].payload[:260]),
            "bank": ("F32", [3, 4, 33], objects["q8"].values.astype("<f4").tobytes()),
            "query": ("F32", [64, 128], fp4[: 4 * 64 * 128]),
            "key": ("F32", [192, 128], fp4[4 * 64 * 128 :]),
            "pieces": ("F32", [775], pieces),
            "scalar": ("F32", [], objects["scalar"].payload),
            "tied": ("F32", [4, 130], objects["q6"].values.astype("<f4").tobytes()),
        }

    @pytest.mark.parametrize("jobs", [1, 5])
    @pytest.mark.parametrize("elements", [1, 1000])
    def test_neither_pieces_nor_threads_change_a_byte(
        self,
        every_format: tuple[Path, dict[str, Stored]],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        jobs: int,
        elements: int,
    ) -> None:
        path, objects = every_format
        monkeypatch.setattr(tensors, "PIECE_ELEMENTS", elements)
        seen: list[Progress] = []
        export(path, tmp_path / "m.safetensors", dtype="bf16", jobs=jobs, progress=seen.append)
        assert read(tmp_path / "m.safetensors") == {id: expected(each, "bf16") for id, each in objects.items()}
        done = [now.done for now in seen]
        assert done == sorted(done)
        assert done[-1] == seen[-1].total
        assert {now.parameter for now in seen} == set(objects)

    def test_every_tensor_is_aligned_to_its_own_words(
        self, every_format: tuple[Path, dict[str, Stored]], tmp_path: Path
    ) -> None:
        path, _ = every_format
        export(path, tmp_path / "m.safetensors")
        data = (tmp_path / "m.safetensors").read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        del header["__metadata__"]
        for entry in header.values():
            assert (8 + length + entry["data_offsets"][0]) % WIDTH[entry["dtype"]] == 0

    def test_what_was_lossy_is_recorded(self, every_format: tuple[Path, dict[str, Stored]], tmp_path: Path) -> None:
        path, _ = every_format
        export(path, tmp_path / "m.safetensors")
        found = metadata(tmp_path / "m.safetensors")
        assert found["format"] == "pt"
        assert found["ninfer.artifact_id"] == path.read_bytes()[16:32].hex()
        assert json.loads(found["ninfer.decoded"]) == {f: f for f in EVERY_FORMAT if f not in DIRECT}

    def test_nan_infinity_and_zero_signs_are_kept(self, tmp_path: Path) -> None:
        words = np.array([0x7FC00001, 0xFF800001, 0x7F800000, 0xFF800000, 0x80000000, 1], np.uint32)
        objects = {"w": artifacts.direct("fp32", (6,), words)}
        path = artifacts.write(tmp_path / "a.ninfer", objects)
        export(path, tmp_path / "m.safetensors", dtype="bf16")
        assert read(tmp_path / "m.safetensors")["w"] == ("F32", [6], words.astype("<u4").tobytes())


def row_scaled(codes: list[int], scale: int) -> Stored:
    """One row of fp8_e4m3fn_row_bf16."""
    payload = bytes(codes) + bytes(-len(codes) % 256) + scale.to_bytes(2, "little")
    return Stored("fp8_e4m3fn_row_bf16", (1, len(codes)), payload, np.array(codes), None, np.zeros((1, len(codes))))


def test_a_value_that_bf16_alone_holds_as_infinity_is_refused(tmp_path: Path) -> None:
    """1.75 under the scale 1.140625 * 2^127 is half-way between the largest bfloat16 and 2^128."""
    large, infinite = row_scaled([0x38, 0x3E, 0x3E], 0x7F12), row_scaled([0x7E, 0xFE], 0x7F7F)
    path = artifacts.write(tmp_path / "a.ninfer", {"infinite": infinite, "large": large})
    export(path, tmp_path / "m.safetensors", dtype="fp32")
    words = np.frombuffer(read(tmp_path / "m.safetensors")["large"][2], "<u4")
    assert words.tolist() == [0x7F120000, 0x7F7F8000, 0x7F7F8000]
    (tmp_path / "m.safetensors").unlink()
    (problem,) = refused(NumericError, path, tmp_path / "m.safetensors", dtype="bf16").problems
    assert (problem.code, problem.tensor) == ("made-infinite", "large")
    assert problem.message.startswith("large: element 1 is 3.39617752923046e+38, which bfloat16 holds as an infinity")


def test_what_is_infinite_already_stays_so(tmp_path: Path) -> None:
    path = artifacts.write(tmp_path / "a.ninfer", {"w": row_scaled([0x7E, 0xFE], 0x7F7F)})
    export(path, tmp_path / "m.safetensors", dtype="bf16")
    assert read(tmp_path / "m.safetensors")["w"] == ("BF16", [1, 2], bytes.fromhex("807f80ff"))


class TestFolder:
    def test_weights_config_and_resources(self, tmp_path: Path) -> None:
        path = tmp_path / "m.ninfer"
        assert program(TINY_LLAMA, "-r", "q4", "-o", path, "--max-file-bytes", "64KiB", "--quiet").returncode == 0
        done = export(path, tmp_path / "out", dtype="bf16")
        out = tmp_path / "out"
        names = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
        assert {file.name for file in out.iterdir()} == names
        assert {Path(name).name for name, _ in done.files} == names
        assert all(os.path.getsize(name) == size for name, size in done.files)
        for name in ("tokenizer.json", "generation_config.json"):
            assert (out / name).read_bytes() == (TINY_LLAMA / name).read_bytes()
        config = json.loads((TINY_LLAMA / "config.json").read_text())
        del config["torch_dtype"]
        assert json.loads((out / "config.json").read_text()) == config
        assert {name: tensor[1] for name, tensor in read(out / "model.safetensors").items()} == {
            name: list(tensor[1]) for name, tensor in oracle.safetensors(TINY_LLAMA / "model.safetensors").items()
        }
        assert done.left_out == ()
        assert export(path, tmp_path / "m.safetensors").left_out == ("tokenizer.json", "generation_config.json")

    def test_an_export_converts_again(self, tmp_path: Path) -> None:
        """Direct words come back; so do config and resources."""
        for name, input in (("a", TINY_LLAMA), ("b", tmp_path / "out")):
            done = program(input, "-r", "bf16", "-o", tmp_path / f"{name}.ninfer", "--quiet")
            assert done.returncode == 0, done.stderr
            if name == "a":
                export(tmp_path / "a.ninfer", tmp_path / "out", max_shard_bytes=100_000)
        compared = program("compare", tmp_path / "a.ninfer", tmp_path / "b.ninfer", "--json")
        assert json.loads(compared.stdout)["identical"] is True
        info = [json.loads(program("info", tmp_path / f"{n}.ninfer", "--json").stdout) for n in "ab"]
        assert info[0]["components"] == info[1]["components"]

    def test_shards_are_filled_in_order_and_indexed(self, tmp_path: Path) -> None:
        sizes = {"b": 4, "a": 2, "large": 100, "c": 10, "d": 1, "e": 9}
        objects = {name: artifacts.floats("fp32", np.arange(size) + ord(name[0])) for name, size in sizes.items()}
        path = artifacts.write(tmp_path / "a.ninfer", objects)
        export(path, tmp_path / "out", max_shard_bytes=40)
        out = tmp_path / "out"
        shards = [["b", "a"], ["large"], ["c"], ["d", "e"]]
        names = [f"model-{number:05d}-of-00004.safetensors" for number in range(1, 5)]
        assert sorted(file.name for file in out.iterdir()) == [*names, "model.safetensors.index.json"]
        index = json.loads((out / "model.safetensors.index.json").read_text())
        assert index == {
            "metadata": {"total_size": 4 * 126},
            "weight_map": {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard},
        }
        for name, shard in zip(names, shards, strict=True):
            assert read(out / name) == {tensor: expected(objects[tensor], "fp32") for tensor in shard}
        assert set(open_checkpoint(out).tensors) == set(sizes)

    @pytest.mark.parametrize("limit", [4 * 126, None])
    def test_what_fits_is_one_file(self, tmp_path: Path, limit: int | None) -> None:
        path = artifacts.write(tmp_path / "a.ninfer", {"w": artifacts.floats("fp32", np.arange(126.0))})
        export(path, tmp_path / "out", max_shard_bytes=limit)
        assert [file.name for file in (tmp_path / "out").iterdir()] == ["model.safetensors"]


def with_resources(path: Path, components: Mapping[str, Component], uses: tuple[Use, ...] = (), **extra: bytes) -> Path:
    """An artifact of a vector `w`, a scalar `x` and resources of these contents, called like the objects."""
    records: list[Any] = []
    payload = b""
    for id, content in extra.items():
        records.append(ResourceObject(id, len(payload), len(content)))
        payload += content
    payload += bytes(-len(payload) % 256)
    records.append(TensorObject("w", (3,), "fp32", "contiguous_le_v1", len(payload), 12))
    payload += bytes(12) + bytes(244)
    records.append(TensorObject("x", (), "fp32", "contiguous_le_v1", len(payload), 4))
    payload += b"\0\0\x80\x3f"
    directory = Directory(components, tuple(records), {"w": Binding("w")}, uses)
    with ArtifactWriter(path, plan_files(directory, path)) as writer:
        for record in records:
            writer.write(record.offset, payload[record.offset : record.end])
        writer.finish()
    return path


class TestResources:
    def test_those_of_every_component_and_a_config_among_them(self, tmp_path: Path) -> None:
        large = random.Random(0).randbytes(3_000_000)
        text = Component({"a": 1}, resources={"config.json": "one", "b.bin": "two"})
        vision = Component({"b": 2}, resources={"b.bin": "two", "c.txt": "one"})
        path = with_resources(tmp_path / "a.ninfer", {"vision": vision, "text": text}, one=b"{}", two=large)
        export(path, tmp_path / "out")
        found = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
        del found["model.safetensors"]
        assert found == {"config.json": b"{}", "b.bin": large, "c.txt": b"{}"}

    def test_the_main_components_config_counts(self, tmp_path: Path) -> None:
        components = {"vision": Component({"b": 2}), "text": Component({"é": [1, 2.5]})}
        export(with_resources(tmp_path / "a.ninfer", components), tmp_path / "out")
        text = (tmp_path / "out" / "config.json").read_text("utf-8")
        assert json.loads(text) == {"é": [1, 2.5]}
        assert "é" in text

    def test_without_a_config_there_is_no_file(self, tmp_path: Path) -> None:
        export(with_resources(tmp_path / "a.ninfer", {"text": Component({})}), tmp_path / "out")
        assert [file.name for file in (tmp_path / "out").iterdir()] == ["model.safetensors"]

    @pytest.mark.parametrize("role", ["../x", "a/b", "..", "a\\b"])
    def test_a_role_that_is_no_file_name_is_refused(self, tmp_path: Path, role: str) -> None:
        path = with_resources(tmp_path / "a.ninfer", {"text": Component({}, resources={role: "one"})}, one=b"x")
        error = refused(OutputError, path, tmp_path / "out")
        assert [problem.code for problem in error.problems] == ["resource-name"]
        assert "is no plain file name" in str(error)
        export(path, tmp_path / "m.safetensors")

    def test_two_files_of_one_name_are_refused(self, tmp_path: Path) -> None:
        text = Component({}, resources={"model.safetensors": "one", "t": "one"})
        components = {"text": text, "vision": Component({}, resources={"t": "two"})}
        path = with_resources(tmp_path / "a.ninfer", components, one=b"x", two=b"y")
        error = refused(OutputError, path, tmp_path / "out")
        assert [problem.message.split("'")[1] for problem in error.problems] == ["model.safetensors", "t"]
        assert all("is the name of another file of the export" in problem.message for problem in error.problems)

    def test_what_weights_are_used_with_has_no_place(self, tmp_path: Path) -> None:
        use = Use("w", "i", "A16Only", {"activation_input_divisor": Binding("x")})
        path = with_resources(tmp_path / "a.ninfer", {"text": Component({})}, (use,))
        (warning,) = export(path, tmp_path / "m.safetensors").warnings
        assert warning.message.startswith("activation_input_divisor of 1 use")


class TestLike:
    """Names that a checkpoint has."""

    def checkpoint(self, folder: Path, **shapes: tuple[int, ...]) -> Path:
        tensors = {name: ("F32", shape, bytes(4 * prod(shape))) for name, shape in shapes.items()}
        return write_safetensors(folder / "c.safetensors", tensors)

    def artifact(self, folder: Path, made: Mapping[str, str], tied: Mapping[str, str] | None = None) -> Path:
        """Vectors of three numbers: parameter -> the tensor that it was made from; alias -> the parameter."""
        objects = {f"o.{name}": artifacts.floats("fp32", np.arange(3.0) + at) for at, name in enumerate(made)}
        bindings = {name: Binding(f"o.{name}") for name in made}
        bindings |= {alias: bindings[name] for alias, name in (tied or {}).items()}
        records = {f"o.{name}": {"parameters": [name], "tensors": [tensor]} for name, tensor in made.items()}
        return artifacts.write(folder / "a.ninfer", objects, bindings, {"objects": records})

    def test_each_has_the_name_of_the_tensor_it_was_made_from(self, tmp_path: Path) -> None:
        path = self.artifact(tmp_path, {"p": "y", "q": "x", "z": "z"})
        done = export(path, tmp_path / "m.safetensors", like=self.checkpoint(tmp_path, x=(3,), y=(3,), z=(3,)))
        found = read(tmp_path / "m.safetensors")
        firsts = {name: np.frombuffer(data, "<f4")[0] for name, (_, _, data) in found.items()}
        assert firsts == {"y": 0, "x": 1, "z": 2}
        assert (done.parameters, done.warnings) == (3, ())

    def test_what_shares_data_is_written_once(self, tmp_path: Path) -> None:
        path = self.artifact(tmp_path, {"embedding": "e"}, {"head": "embedding"})
        export(path, tmp_path / "m.safetensors", like=self.checkpoint(tmp_path, e=(3,)))
        assert list(read(tmp_path / "m.safetensors")) == ["e"]
        export(path, tmp_path / "all.safetensors")
        assert list(read(tmp_path / "all.safetensors")) == ["embedding", "head"]

    def test_what_the_artifact_lacks_is_told(self, tmp_path: Path) -> None:
        path = self.artifact(tmp_path, {"p": "x"})
        like = self.checkpoint(tmp_path, x=(3,), a=(1,), b=(2,))
        (warning,) = export(path, tmp_path / "m.safetensors", like=like).warnings
        assert (warning.path, warning.message) == (str(like), "2 weights not in the artifact, so not exported: a, b")

    def test_what_the_checkpoint_lacks_or_has_otherwise_is_refused(self, tmp_path: Path) -> None:
        path = self.artifact(tmp_path, {"p": "x", "q": "gone", "r": "y", "s": "y"})
        like = self.checkpoint(tmp_path, x=(3, 1), y=(3,))
        problems = refused(OutputError, path, tmp_path / "m.safetensors", like=like).problems
        assert {problem.code for problem in problems} == {"no-counterpart"}
        assert [problem.message for problem in problems] == [
            f"q: was made from no tensor of {like}",
            "p: has the shape [3], x [3, 1]",
            "s: was made from y, and so was r",
        ]

    def test_a_checkpoint_that_cannot_be_read(self, tmp_path: Path) -> None:
        path = self.artifact(tmp_path, {"p": "x"})
        refused(SourceError, path, tmp_path / "m.safetensors", like=tmp_path / "none")
