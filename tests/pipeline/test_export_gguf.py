"""Exports as GGUF: blocks, metadata and order are those of the file the artifact was made from; gguf-py reads them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from safetensors.numpy import load_file

from ninfer_convert.container import Binding, Part
from ninfer_convert.errors import OutputError, SourceError
from ninfer_convert.pipeline.export import Exported, export
from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.planned import Shaping
from ninfer_convert.pipeline.run import Running, run
from tests.oracle import container, gguf
from tests.oracle.gguf import ARRAY, STRING, File, Tensor, array, scalar, string, text, u32
from tests.pipeline import artifacts
from tests.support import write_safetensors

GOLDEN = Path(__file__).parent.parent / "golden" / "gguf"
EXPECTED = load_file(GOLDEN / "expected.safetensors")
TO_BF16 = ("Q4_1", "Q5_1", "MXFP4", "NVFP4", "TQ1_0", "TQ2_0", "Q1_0")
KEEP = "\n".join(["[defaults]", 'F16 = "fp32"', *(f'{name} = "bf16"' for name in TO_BF16), ""])


def convert(input: Path, output: Path, recipe: str = KEEP) -> Path:
    """The artifact of `input` under a recipe of these lines."""
    path = output.with_suffix(".toml")
    path.write_text(f'schema = 1\nname = "t"\n{recipe}', encoding="utf-8")
    run(make_plan(str(input), str(path), Shaping()), output, Running(force=True))
    return output


def round_trip(input: Path, folder: Path, recipe: str = KEEP) -> bytes:
    """What is exported of the artifact of `input`: `folder`/out.gguf."""
    export(convert(input, folder / "a.ninfer", recipe), folder / "out.gguf", force=True)
    return (folder / "out.gguf").read_bytes()


def contents(data: bytes) -> dict[str, bytes]:
    """name -> the tensor's bytes."""
    head = gguf.header(data)
    start = gguf.padded(head.size, 32)
    found = {}
    for name, shape, ggml, offset in head.infos:
        size, values = gguf.SIZES[ggml]
        assert offset % 32 == 0
        found[name] = data[start + offset :][: int(np.prod(shape, dtype=np.int64)) // values * size]
    return found


class TestFixtures:
    @pytest.mark.parametrize("name", ["blocks", "q2_0", "extras"])
    def test_metadata_order_shapes_and_blocks_come_back(self, name: str, tmp_path: Path) -> None:
        original = (GOLDEN / f"{name}.gguf").read_bytes()
        data = round_trip(GOLDEN / f"{name}.gguf", tmp_path)
        head, old = gguf.header(data), gguf.header(original)
        assert list(head.entries.items()) == list(old.entries.items())
        assert [info[:2] for info in head.infos] == [info[:2] for info in old.infos]
        types = {tensor: ggml for tensor, _, ggml, _ in old.infos}
        held = contents(original)
        for tensor, _, ggml, _ in head.infos:
            found = contents(data)[tensor]
            if ggml == types[tensor]:
                assert found == held[tensor]
            elif ggml == 0:  # F16 is exact in binary32
                assert found == np.frombuffer(held[tensor], "<f2").astype("<f4").tobytes()
            else:
                assert ggml == 30
                assert found == bf16(EXPECTED[tensor])
        kept = [tensor for tensor, _, ggml, _ in head.infos if ggml == types[tensor]]
        assert len(kept) == {"blocks": 19, "q2_0": 3, "extras": 0}[name]

    def test_a_file_of_kept_words_alone_comes_back_to_the_byte(self, tmp_path: Path) -> None:
        assert round_trip(GOLDEN / "q2_0.gguf", tmp_path) == (GOLDEN / "q2_0.gguf").read_bytes()

    def test_a_second_reader_agrees(self, tmp_path: Path) -> None:
        """gguf-py; it does not know Q2_0."""
        round_trip(GOLDEN / "blocks.gguf", tmp_path)
        ours, original = GGUFReader(tmp_path / "out.gguf"), GGUFReader(GOLDEN / "blocks.gguf")
        assert list(ours.fields) == list(original.fields)
        for key, field in ours.fields.items():
            assert field.types == original.fields[key].types
            assert field.contents() == original.fields[key].contents()
        assert [tensor.name for tensor in ours.tensors] == [tensor.name for tensor in original.tensors]
        for mine, theirs in zip(ours.tensors, original.tensors, strict=True):
            assert mine.shape.tolist() == theirs.shape.tolist()
            if theirs.tensor_type.name == "F16":
                assert mine.tensor_type.name == "F32"
            else:
                assert mine.tensor_type == theirs.tensor_type
            assert np.array_equal(mine.data, theirs.data)

    @pytest.mark.parametrize("name", ["blocks", "q2_0", "extras"])
    def test_converted_again_it_gives_the_same_words(self, name: str, tmp_path: Path) -> None:
        round_trip(GOLDEN / f"{name}.gguf", tmp_path)
        first = container.read(tmp_path / "a.ninfer")
        again = container.read(convert(tmp_path / "out.gguf", tmp_path / "b.ninfer"))
        tensors = [record for record in first.directory["objects"] if record["kind"] == "tensor"]
        assert tensors
        assert [record["id"] for record in tensors] == [
            record["id"] for record in again.directory["objects"] if record["kind"] == "tensor"
        ]
        for record in tensors:
            assert again.object_bytes(record["id"]) == first.object_bytes(record["id"])


def bf16(values: np.ndarray[Any, Any]) -> bytes:
    """Finite values rounded to bfloat16, nearest even."""
    words = values.astype(np.float32).reshape(-1).view(np.uint32).astype(np.uint64)
    return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype("<u2").tobytes()


def q8(rows: int, seed: int) -> bytes:
    """Rows of one legal Q8_0 block each."""
    source = np.random.default_rng(seed)
    return b"".join(b"\x00\x3c" + source.integers(0, 256, 32, np.uint8).tobytes() for _ in range(rows))


def every_type() -> list[tuple[str, int, bytes]]:
    """Key values of every type, with words that a value would not survive."""
    scalars = [(f"s.{kind}", kind, scalar(kind, 1)) for kind in gguf.SCALARS]
    arrays = [(f"a.{kind}", ARRAY, array(kind, [scalar(kind, 1)] * 3)) for kind in gguf.SCALARS]
    nested = array(ARRAY, [array(STRING, [text("x"), text("")]), array(4, []), array(STRING, [])])
    return [
        string("general.architecture", "llama"),
        *scalars,
        ("nan", 6, struct.pack("<I", 0x7F800001)),
        *arrays,
        string("empty", ""),
        string("no utf-8", b"\xff\xfe"),
        ("nested", ARRAY, nested),
        ("no strings", ARRAY, array(STRING, [])),
        string("ключ", "значение"),
    ]


class TestMetadata:
    def test_values_of_every_type_are_kept_as_they_stand(self, tmp_path: Path) -> None:
        source = File([Tensor("w", 8, (1, 32), q8(1, 0))], every_type())
        (tmp_path / "m.gguf").write_bytes(source.build())
        assert round_trip(tmp_path / "m.gguf", tmp_path) == source.build()

    @pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
    def test_alignment_is_this_files_own(self, tmp_path: Path, alignment: int) -> None:
        metadata = [u32("a", 1), u32("general.alignment", alignment), u32("general.alignments", 5), u32("z", 2)]
        tensors = [Tensor(name, 24, (3,), bytes([1, 2, 3])) for name in ("x", "b")]
        (tmp_path / "m.gguf").write_bytes(File(tensors, metadata, alignment=alignment).build())
        data = round_trip(tmp_path / "m.gguf", tmp_path, '[defaults]\nI8 = "int32"\n')
        head = gguf.header(data)
        assert list(head.entries) == ["a", "general.alignments", "z"]
        assert [info[0] for info in head.infos] == ["x", "b"]
        assert contents(data) == dict.fromkeys(("x", "b"), np.array([1, 2, 3], "<i4").tobytes())
        assert len(data) % 32 == 0

    @pytest.mark.parametrize("part", [1, 2, 3])
    def test_a_split_set_becomes_one_file_in_the_parts_order(self, tmp_path: Path, part: int) -> None:
        names = (("z", "b"), ("y", "a", "x"), ("c",))
        for number, own in enumerate(names):
            split = [
                ("split.no", 2, scalar(2, number)),
                ("split.count", 2, scalar(2, 3)),
                ("split.tensors.count", 5, scalar(5, 6)),
            ]
            metadata = [u32("first", 1), *split, u32("last", 2)] if number == 0 else split
            tensors = [Tensor(name, 8, (2, 32), q8(2, ord(name))) for name in own]
            (tmp_path / f"m-{number + 1:05d}-of-00003.gguf").write_bytes(File(tensors, metadata).build())
        data = round_trip(tmp_path / f"m-{part:05d}-of-00003.gguf", tmp_path)
        head = gguf.header(data)
        assert list(head.entries) == ["first", "last"]
        order = [name for own in names for name in own]
        assert [info[0] for info in head.infos] == order
        assert contents(data) == {name: q8(2, ord(name)) for name in order}
        offsets = [offset for _, _, _, offset in head.infos]
        assert offsets == sorted(offsets)

    def test_infos_and_data_may_stand_in_two_orders(self, tmp_path: Path) -> None:
        tensors = [
            Tensor("b", 8, (1, 32), q8(1, 1), offset=128),
            Tensor("a", 8, (1, 32), q8(1, 2), offset=0),
            Tensor("c", 8, (1, 32), q8(1, 3), offset=64),
        ]
        head = File(tensors, [u32("n", 1)]).header()
        body = b"".join(tensor.data + bytes(30) for tensor in (tensors[1], tensors[2], tensors[0]))
        original = head + bytes(-len(head) % 32) + body
        (tmp_path / "m.gguf").write_bytes(original)
        assert round_trip(tmp_path / "m.gguf", tmp_path) == original

    def test_version_2_is_written_as_3(self, tmp_path: Path) -> None:
        source = File([Tensor("w", 8, (1, 32), q8(1, 0))], [u32("n", 1)], version=2)
        (tmp_path / "m.gguf").write_bytes(source.build())
        source.version = 3
        assert round_trip(tmp_path / "m.gguf", tmp_path) == source.build()

    @pytest.mark.parametrize(
        ("config", "architecture"),
        [
            ('{"architecture": "one", "model_type": "two"}', "one"),
            ('{"model_type": "two"}', "two"),
            ('{"model_type": 2}', "unknown"),
            (None, "unknown"),
        ],
    )
    def test_without_kept_metadata_the_architecture_is_named(
        self, tmp_path: Path, config: str | None, architecture: str
    ) -> None:
        values = np.arange(6, dtype="<f4")
        write_safetensors(
            tmp_path / "m.safetensors",
            {"b": ("F32", (2, 3), values.tobytes()), "a": ("BF16", (2,), b"\0\1\2\3"), "c": ("I32", (), b"\7\0\0\0")},
        )
        if config is not None:
            (tmp_path / "config.json").write_text(config)
        data = round_trip(tmp_path / "m.safetensors", tmp_path)
        tensors = [
            Tensor("a", 30, (2,), b"\0\1\2\3"),
            Tensor("b", 0, (2, 3), values.tobytes()),
            Tensor("c", 26, (), b"\7\0\0\0"),
        ]
        assert data == File(tensors, [string("general.architecture", architecture)]).build()
        assert [tensor.name for tensor in GGUFReader(tmp_path / "out.gguf").tensors] == ["a", "b", "c"]

    def test_damaged_metadata_is_told(self, tmp_path: Path) -> None:
        """The resource is any bytes: it may come from another program."""
        held = container.read(convert(GOLDEN / "q2_0.gguf", tmp_path / "a.ninfer"))
        (record,) = (record for record in held.directory["objects"] if record["kind"] == "resource")
        for payload, said in (
            (b"\xff" * record["bytes"] + held.payload[record["bytes"] :], "says that it holds"),
            (b"\x04" + held.payload[1:], "is cut off"),
        ):
            container.write(tmp_path / "a.ninfer", held.directory, payload)
            with pytest.raises(SourceError, match=rf"a\.ninfer, gguf_metadata: {said}"):
                export(tmp_path / "a.ninfer", tmp_path / "out.gguf")
            assert not (tmp_path / "out.gguf").exists()


class TestTensors:
    def test_banks_scalars_and_vectors_have_their_dimensions(self, tmp_path: Path) -> None:
        tensors = [
            Tensor("bank", 8, (3, 2, 64), q8(12, 1)),
            Tensor("vector", 0, (5,), np.arange(5, dtype="<f4").tobytes()),
            Tensor("four", 0, (1, 2, 1, 3), np.arange(6, dtype="<f4").tobytes()),
            Tensor("ids", 26, (2, 2), np.arange(4, dtype="<i4").tobytes()),
            Tensor("half", 30, (2, 2), bytes(range(8))),
        ]
        source = File(tensors, [u32("n", 1)])
        (tmp_path / "m.gguf").write_bytes(source.build())
        assert round_trip(tmp_path / "m.gguf", tmp_path) == source.build()

    def test_renamed_skipped_and_converted_tensors_keep_their_places(self, tmp_path: Path) -> None:
        tensors = [Tensor(f"t.{name}", 8, (2, 32), q8(2, ord(name))) for name in "dacb"]
        (tmp_path / "m.gguf").write_bytes(File(tensors, [u32("n", 1)]).build())
        recipe = """
[[rename]]
match = 't\\.(.)'
to = 'u.\\1'
[[assign]]
select = "u.c"
format = "bf16"
[[skip]]
select = "u.a"
reason = "a test"
"""
        data = round_trip(tmp_path / "m.gguf", tmp_path, recipe)
        assert [(name, ggml) for name, _, ggml, _ in gguf.header(data).infos] == [("u.d", 8), ("u.c", 30), ("u.b", 8)]
        assert contents(data)["u.b"] == q8(2, ord("b"))
        export(tmp_path / "a.ninfer", tmp_path / "like.gguf", like=tmp_path / "m.gguf")
        like = (tmp_path / "like.gguf").read_bytes()
        assert [name for name, _, _, _ in gguf.header(like).infos] == ["t.d", "t.c", "t.b"]
        assert [*contents(like).values()] == [*contents(data).values()]

    def test_whole_rows_of_several_objects(self, tmp_path: Path) -> None:
        whole = artifacts.stored("gguf_q6_k")
        row = len(whole.payload) // 6
        bindings = {
            "turned": Binding(None, (Part("w", 4 * 512, 6 * 512), Part("w", 0, 4 * 512))),
            "part": Binding(None, (Part("w", 512, 1024),)),
        }
        path = artifacts.write(tmp_path / "a.ninfer", {"w": whole}, bindings)
        export(path, tmp_path / "out.gguf")
        data = (tmp_path / "out.gguf").read_bytes()
        assert [(name, shape) for name, shape, _, _ in gguf.header(data).infos] == [
            ("turned", (6, 512)),
            ("part", (1, 512)),
        ]
        assert contents(data) == {
            "turned": whole.payload[4 * row :] + whole.payload[: 4 * row],
            "part": whole.payload[row : 2 * row],
        }

    def test_every_block_type_and_its_number(self, tmp_path: Path) -> None:
        objects = {f: artifacts.stored(f) for f in artifacts.EVERY_FORMAT if f.startswith("gguf_")}
        assert len(objects) == 18
        export(artifacts.write(tmp_path / "a.ninfer", objects), tmp_path / "out.gguf")
        fixture = {**gguf.read(GOLDEN / "blocks.gguf"), **gguf.read(GOLDEN / "q2_0.gguf")}
        found = gguf.read(tmp_path / "out.gguf")
        for format in objects:
            ggml, shape, rows = fixture[f"blk.0.{format.removeprefix('gguf_')}.weight"]
            assert found[format][:2] == (ggml, shape)
            assert np.array_equal(found[format][2], rows)

    @pytest.mark.parametrize(
        "sources",
        [3, [], {"m": 3}, {"m": {"files": 3}}, {"m": {"files": [3, {"tensors": 3}, {"tensors": [3, "b", "none"]}]}}],
    )
    def test_another_programs_provenance_may_hold_anything(self, tmp_path: Path, sources: Any) -> None:
        objects = {name: artifacts.stored("gguf_q4_k") for name in "ab"}
        path = artifacts.write(tmp_path / "a.ninfer", objects, provenance={"sources": sources, "objects": 3})
        export(path, tmp_path / "out.gguf")
        assert set(contents((tmp_path / "out.gguf").read_bytes())) == {"a", "b"}


class TestRefusals:
    def refused(
        self, folder: Path, objects: Mapping[str, artifacts.Stored], bindings: Mapping[str, Binding] | None = None
    ) -> Sequence[str]:
        path = artifacts.write(folder / "a.ninfer", objects, bindings)
        with pytest.raises(OutputError) as caught:
            export(path, folder / "out.gguf")
        assert [file.name for file in folder.iterdir()] == ["a.ninfer"]
        assert {problem.code for problem in caught.value.problems} == {"not-gguf"}
        return [problem.message for problem in caught.value.problems]

    def test_formats_that_gguf_has_no_type_for(self, tmp_path: Path) -> None:
        objects = {f"{letter}.weight": artifacts.stored("q4_g64_fp16") for letter in "abcd"}
        objects |= {"e": artifacts.stored("nvfp4"), "f": artifacts.stored("bf16"), "g": artifacts.stored("gguf_q4_k")}
        assert self.refused(tmp_path, objects) == [
            "GGUF has no type for q4_g64_fp16, in which 4 parameters (a.weight, b.weight, c.weight and 1 more) are "
            "kept; export as safetensors",
            "GGUF has no type for nvfp4, in which 1 parameter (e) is kept; export as safetensors",
        ]

    def test_regions_of_several_formats(self, tmp_path: Path) -> None:
        objects = {"a": artifacts.stored("bf16", 2, 512), "b": artifacts.stored("gguf_q8_0")}
        parts = Binding(None, (Part("a", 0, 1024), Part("b", 0, 6 * 512)))
        (message,) = self.refused(tmp_path, objects, {"w": parts})
        assert message.startswith("GGUF has no type for bf16+gguf_q8_0, in which 1 parameter (w) is kept")

    def test_more_axes_than_gguf_has(self, tmp_path: Path) -> None:
        objects = {"five": artifacts.floats("bf16", np.arange(12.0).reshape(1, 2, 3, 1, 2))}
        assert self.refused(tmp_path, objects) == [
            "five: has 5 axes, more than the 4 that GGUF allows; export as safetensors"
        ]

    @pytest.mark.parametrize("span", [(0, 256), (256, 1024), (512, 1023)])
    def test_parts_of_rows_of_blocks(self, tmp_path: Path, span: tuple[int, int]) -> None:
        whole = Binding(None, (Part("w", *span),))
        (message,) = self.refused(tmp_path, {"w": artifacts.stored("gguf_q4_k")}, {"p": whole})
        assert message == "p: is not made of whole rows of Q4_K blocks; export as safetensors"


def test_what_is_told_of_an_export(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "m.gguf").write_bytes((GOLDEN / "q2_0.gguf").read_bytes())
    done = export(convert(tmp_path / "m.gguf", tmp_path / "a.ninfer"), tmp_path / "out.gguf")
    out = str(tmp_path / "out.gguf")
    assert done == Exported(
        ((out, (tmp_path / "out.gguf").stat().st_size),), 3, 0, ("tokenizer.json",), done.seconds, ()
    )
