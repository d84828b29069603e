"""Whole conversions of GGUF files: byte copies, imported words, decoded values, what is refused before it starts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ninfer_convert.errors import NinferConvertError
from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.planned import Shaping
from ninfer_convert.pipeline.run import Running, run
from tests.oracle import container, gguf
from tests.oracle.gguf import File, Tensor, string
from tests.support import program

GOLDEN = Path(__file__).parent.parent / "golden" / "gguf"
EXPECTED = load_file(GOLDEN / "expected.safetensors")
WITHOUT_FORMAT = ("F16", "Q4_1", "Q5_1", "MXFP4", "NVFP4", "TQ1_0", "TQ2_0", "Q1_0")


def defaults(stored: Sequence[str], format: str) -> str:
    return "\n".join(["[defaults]", *(f'{name} = "{format}"' for name in stored)])


def assign(select: str, format: str, more: str = "") -> str:
    return f'[[assign]]\nselect = "{select}"\nformat = "{format}"\n{more}\n'


def convert(input: Path, recipe: str, folder: Path, requantize: bool = False) -> container.Container:
    """The artifact of `input` under a recipe of these lines."""
    path = folder / "recipe.toml"
    path.write_text(f'schema = 1\nname = "t"\n{recipe}', encoding="utf-8")
    run(make_plan(str(input), str(path), Shaping(requantize=requantize)), folder / "a.ninfer", Running(force=True))
    return container.read(folder / "a.ninfer")


def refused(input: Path, recipe: str, folder: Path) -> NinferConvertError:
    """The error of a conversion that must be refused and leave nothing."""
    with pytest.raises(NinferConvertError) as caught:
        convert(input, recipe, folder)
    assert not list(folder.glob("*.ninfer*"))
    return caught.value


def bound(artifact: container.Container, name: str) -> tuple[str, bytes]:
    """The format and bytes of the object that a parameter is bound to."""
    id = artifact.directory["bindings"][name]["object"]
    (record,) = (record for record in artifact.directory["objects"] if record["id"] == id)
    return record["format"], artifact.object_bytes(id)


def bf16(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bytes:
    """Finite values rounded to bfloat16, nearest even."""
    words = values.view(np.uint32).astype(np.uint64)
    return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype("<u2").tobytes()


@pytest.mark.parametrize("file", ["blocks.gguf", "q2_0.gguf", "extras.gguf"])
def test_blocks_are_kept_to_the_byte_and_the_rest_by_its_values(file: str, tmp_path: Path) -> None:
    artifact = convert(GOLDEN / file, defaults(WITHOUT_FORMAT, "bf16"), tmp_path)
    tensors = gguf.read(GOLDEN / file)
    assert artifact.directory["bindings"].keys() == tensors.keys()
    for name, (ggml, _, rows) in tensors.items():
        format, data = bound(artifact, name)
        if format.startswith("gguf_"):
            assert data == rows.tobytes(), name
        elif ggml == 0:
            assert (format, data) == ("fp32", rows.tobytes())
        else:
            values = EXPECTED[name] if name in EXPECTED else rows.view("<f2").astype(np.float32)
            assert (format, data) == ("bf16", bf16(values)), name
    formats = {bound(artifact, name)[0] for name in tensors}
    assert len(formats) == {"blocks.gguf": 19, "q2_0.gguf": 1, "extras.gguf": 1}[file]


def test_the_metadata_section_becomes_a_resource(tmp_path: Path) -> None:
    artifact = convert(GOLDEN / "q2_0.gguf", "", tmp_path)
    text = artifact.directory["components"]["text"]
    section = artifact.object_bytes(text["resources"]["gguf_metadata"])
    assert (GOLDEN / "q2_0.gguf").read_bytes()[8 : 8 + len(section)] == section
    assert text["config"] == {"architecture": "llama"}


def test_words_move_into_the_planes_of_native_formats(tmp_path: Path) -> None:
    recipe = assign("*q2_0*", "q2_g64_fp16")
    artifact = convert(GOLDEN / "q2_0.gguf", recipe, tmp_path)
    for name, (_, _, rows) in gguf.read(GOLDEN / "q2_0.gguf").items():
        blocks = rows.reshape(6, -1, 18)
        padding = blocks.shape[1] % 2
        codes = np.concatenate([blocks[:, :, 2:], np.full((6, padding, 16), 0x55, np.uint8)], axis=1).tobytes()
        scales = np.concatenate([blocks[:, :, :2], np.zeros((6, padding, 2), np.uint8)], axis=1).tobytes()
        assert bound(artifact, name) == ("q2_g64_fp16", codes + bytes(-len(codes) % 256) + scales)


def test_nvfp4_blocks_become_an_nvfp4_object(tmp_path: Path) -> None:
    _, _, rows = gguf.read(GOLDEN / "extras.gguf")["blk.0.nvfp4.weight"]
    blocks = np.tile(rows, (22, 1))[:128].reshape(128, 8, 36)
    path = tmp_path / "m.gguf"
    tensors = [
        Tensor("blk.0.ffn_up.weight", 40, (128, 512), blocks.tobytes()),
        Tensor("blk.0.ffn_up.scale", 0, (1,), np.array([0.25], "<f4").tobytes()),
    ]
    path.write_bytes(File(tensors, [string("general.architecture", "llama")]).build())
    artifact = convert(path, assign("*", "nvfp4"), tmp_path)
    assert artifact.directory["bindings"].keys() == {"blk.0.ffn_up.weight"}
    format, data = bound(artifact, "blk.0.ffn_up.weight")
    assert format == "nvfp4"
    codes = np.concatenate(
        [blocks[:, :, 4:].reshape(128, -1, 8) & 15, blocks[:, :, 4:].reshape(128, -1, 8) >> 4], axis=2
    )
    codes = codes.reshape(128, 512)
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).tobytes()
    scales = bytearray(128 * 32)
    for n in range(128):
        for g in range(32):
            scales[g // 4 * 512 + n % 32 * 16 + n // 32 * 4 + g % 4] = blocks[n, g // 4, g % 4]
    assert data == packed + bytes(scales) + np.array([4.0], "<f4").tobytes()


def test_a_wrong_word_is_refused_in_convert_naming_the_way_out(tmp_path: Path) -> None:
    error = refused(GOLDEN / "blocks.gguf", assign("*q8_0*", "q8_g32_fp16") + defaults(["F16"], "bf16"), tmp_path)
    assert "blk.0.q8_0_underflow.weight: row 4, block 8: zero scale with non-zero codes" in str(error)
    assert "keep the tensor as gguf_q8_0" in str(error)


def test_types_that_ggml_lacks_must_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tensors = [
        Tensor("a.weight", 8, (2, 64), bytes(136)),
        Tensor("b.weight", 36, (2, 64), bytes(64)),
        Tensor("c.weight", 200, (2, 64), bytes(64)),
    ]
    path.write_bytes(File(tensors, [string("general.architecture", "llama")]).build())
    error = refused(path, "", tmp_path)
    assert [(problem.code, problem.tensor) for problem in error.problems] == [
        ("opaque-type", "b.weight"),
        ("opaque-type", "c.weight"),
    ]
    assert "b.weight: stored as ggml type 36 (IQ4_NL_4_4, removed from ggml), which cannot be converted" in str(error)
    assert "c.weight: stored as ggml type 200 (unknown), which cannot be converted" in str(error)
    skip = '[[skip]]\nselect = ["b.weight", "c.weight"]\nreason = "of no known type"\n'
    assert convert(path, skip, tmp_path).directory["bindings"].keys() == {"a.weight"}


def test_info_lists_what_cannot_be_converted(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    tensors = [Tensor("a", 22, (2, 256), bytes(164)), Tensor("b", 200, (2, 64), bytes(64))]
    path.write_bytes(File(tensors, [gguf.u32("general.alignment", 64), gguf.u32("n", 7)], alignment=64).build())
    done = program("info", path, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    listed = {tensor["name"]: tensor for tensor in document["tensors"]}
    assert [(name, tensor["type"]) for name, tensor in listed.items()] == [("a", "IQ2_S"), ("b", "GGML_200")]
    assert listed["b"]["relative_offset"] == 192
    assert listed["b"]["offset"] == len(path.read_bytes()) - 64
    assert document["metadata"] == {"general.alignment": 64, "n": 7}


def test_a_file_without_tensors_has_info_and_no_artifact(tmp_path: Path) -> None:
    path = tmp_path / "empty.gguf"
    path.write_bytes(File(metadata=[string("general.architecture", "llama")]).build())
    assert program("info", path).returncode == 0
    assert [problem.code for problem in refused(path, "", tmp_path).problems] == ["no-tensors"]


def test_block_types_without_a_format_of_their_own_need_a_line(tmp_path: Path) -> None:
    error = refused(GOLDEN / "extras.gguf", "", tmp_path)
    for stored in ("Q4_1", "Q5_1", "MXFP4", "NVFP4", "TQ1_0", "TQ2_0", "Q1_0"):
        assert f'add {stored} = "bf16" under [defaults]' in str(error)


def test_quantizing_decoded_values_again_must_be_said(tmp_path: Path) -> None:
    recipe = assign("*q4_k*", "q4_g64_fp16") + defaults(["F16"], "bf16")
    error = refused(GOLDEN / "blocks.gguf", recipe, tmp_path)
    assert "blk.0.q4_k.weight (1 Q4_K): " in str(error)
    assert "--requantize" in str(error)
    assert (
        bound(convert(GOLDEN / "blocks.gguf", recipe, tmp_path, requantize=True), "blk.0.q4_k.weight")[0]
        == "q4_g64_fp16"
    )


def test_any_part_of_a_split_set_gives_the_same_artifact(tmp_path: Path) -> None:
    names = [f"m-{number:05d}-of-00002.gguf" for number in (1, 2)]
    for index, name in enumerate(names):
        split = [("split.no", 2, gguf.scalar(2, index)), ("split.count", 2, gguf.scalar(2, 2))]
        data = bytes([index, 0x3C, *range(32)])
        (tmp_path / name).write_bytes(File([Tensor(f"t{index}.weight", 8, (1, 32), data)], split).build())
    artifacts = [convert(tmp_path / name, "", tmp_path) for name in names]
    assert artifacts[0].directory["bindings"].keys() == {"t0.weight", "t1.weight"}
    assert artifacts[0] == artifacts[1]
