"""Checkpoints given back: artifacts of logical parameters, exported like what they were made from (qwen35.md 2, 8)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ninfer_convert import Shaping, convert, export
from ninfer_convert.errors import OutputError
from tests.architectures import small
from tests.architectures.building import write_files
from tests.architectures.llamas import CASES, lines
from tests.oracle import container
from tests.pipeline.restored import DECAYS, assembled, checkpoint, decoded, recipe, refused, tensors, values
from tests.support import bf16, write_safetensors


@pytest.mark.parametrize("kind", [kind for kind in small.KINDS.values() if kind.stored == "BF16"])
def test_every_tensor_comes_back_word_for_word(tmp_path: Path, kind: small.Kind) -> None:
    checkpoint(tmp_path, kind)
    convert(tmp_path, "bf16", tmp_path / "a.ninfer")
    done = export(tmp_path / "a.ninfer", tmp_path / "out.safetensors", like=tmp_path)
    original = tensors(tmp_path / "model.safetensors")
    assert tensors(tmp_path / "out.safetensors") == original
    assert (done.parameters, done.decoded, done.warnings) == (len(original), 0, ())


def test_words_of_binary32_come_back_but_for_what_is_locked(tmp_path: Path) -> None:
    """What the engine takes as bf16 only is kept, and exported, as that; here without loss."""
    original = checkpoint(tmp_path, small.KINDS["dense, tied, in binary32"])
    convert(tmp_path, "fp32", tmp_path / "a.ninfer")
    export(tmp_path / "a.ninfer", tmp_path / "out.safetensors", like=tmp_path)
    found = tensors(tmp_path / "out.safetensors")
    assert found.keys() == original.keys()
    for name, array in original.items():
        locked = array.ndim == 1 or name.endswith(("conv1d.weight", "in_proj_a.weight", "in_proj_b.weight"))
        if locked and not name.endswith(DECAYS):
            assert found[name] == ("BF16", list(array.shape), bf16(array)), name
        else:
            assert found[name] == ("F32", list(array.shape), array.tobytes()), name


@pytest.mark.parametrize("kind", ["dense", "experts in banks, tied, text only"])
def test_a_folder_of_them_converts_again(tmp_path: Path, kind: str) -> None:
    """Its config.json is the checkpoint's, which names go with, but for the storage of weights there."""
    checkpoint(tmp_path / "model", small.KINDS[kind])
    config = {**small.config(small.KINDS[kind]), "torch_dtype": "bfloat16"}
    write_files(tmp_path / "model", {"config.json": config})
    convert(tmp_path / "model", "bf16", tmp_path / "a.ninfer")
    export(tmp_path / "a.ninfer", tmp_path / "out", like=tmp_path / "model")
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == small.config(small.KINDS[kind])
    convert(tmp_path / "out", "bf16", tmp_path / "b.ninfer")
    one, two = (container.read(tmp_path / f"{name}.ninfer") for name in "ab")
    assert one.payload == two.payload
    assert [one.directory[part] for part in ("components", "objects", "bindings", "uses")] == [
        two.directory[part] for part in ("components", "objects", "bindings", "uses")
    ]


@pytest.mark.parametrize("kind", ["dense", "experts of their own", "experts in banks, tied, text only"])
def test_quantized_values_are_put_in_their_places(tmp_path: Path, kind: str) -> None:
    checkpoint(tmp_path, small.KINDS[kind])
    convert(tmp_path, "q4", tmp_path / "a.ninfer")
    export(tmp_path / "a.ninfer", tmp_path / "out", like=tmp_path, max_shard_bytes=10**9, jobs=2)
    found = values(tmp_path / "out" / "model.safetensors")
    expected = assembled(small.KINDS[kind], decoded(tmp_path / "a.ninfer"))
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert np.array_equal(found[name], array), name


def test_parts_in_several_formats_are_decoded_to_what_is_asked_for(tmp_path: Path) -> None:
    checkpoint(tmp_path / "model", small.KINDS["dense"])
    select = '[[assign]]\nselect = "text/layers/*/{}"\nformat = "{}"'
    rules = (select.format("{attention/query,gdn/key}", "q4_g64_fp16"), select.format("attention/gate", "q5_g64_fp16"))
    convert(tmp_path / "model", recipe(tmp_path, 'extends = "bf16"', *rules), tmp_path / "a.ninfer")
    expected = assembled(small.KINDS["dense"], decoded(tmp_path / "a.ninfer"))
    original = tensors(tmp_path / "model" / "model.safetensors")
    for dtype, stored in (("fp32", "F32"), ("bf16", "BF16")):
        out = tmp_path / f"{dtype}.safetensors"
        done = export(tmp_path / "a.ninfer", out, like=tmp_path / "model", dtype=dtype)
        found, numbers = tensors(out), values(out)
        changed = {name for name in original if found[name] != original[name]}
        assert {name.rsplit(".", 3)[-2] for name in changed} == {"q_proj", "in_proj_qkv"}
        assert done.decoded == len(changed) == 4
        for name in changed:
            assert found[name][0] == stored
            assert np.allclose(numbers[name], expected[name], rtol=0 if dtype == "fp32" else 2**-8, atol=0)


def test_decays_stay_as_the_artifact_keeps_them(tmp_path: Path) -> None:
    """A checkpoint may have them in bfloat16; words of direct formats are never narrowed."""
    original = small.write(tmp_path, small.KINDS["dense"])
    convert(tmp_path, "bf16", tmp_path / "a.ninfer")
    export(tmp_path / "a.ninfer", tmp_path / "out.safetensors", like=tmp_path)
    found = tensors(tmp_path / "out.safetensors")
    assert {name for name, (dtype, _, _) in found.items() if dtype != "BF16"} == {
        name for name in original if name.endswith(DECAYS)
    }
    assert all(np.array_equal(array, original[name]) for name, array in values(tmp_path / "out.safetensors").items())


def test_other_components_are_told_of(tmp_path: Path) -> None:
    small.write(tmp_path, small.Kind(extra=("mtp.fc.weight", "model.visual.pos_embed.weight")))
    convert(tmp_path, "bf16", tmp_path / "a.ninfer")
    (warning,) = export(tmp_path / "a.ninfer", tmp_path / "out.safetensors", like=tmp_path).warnings
    assert warning.message == (
        "2 weights not in the artifact, so not exported: mtp.fc.weight, model.visual.pos_embed.weight"
    )


def test_a_tied_head_is_no_tensor_of_its_own(tmp_path: Path) -> None:
    kind = small.KINDS["experts in banks, tied, text only"]
    checkpoint(tmp_path, kind)
    rule = '[[assign]]\nselect = "text/output_head"\nformat = "q6_g64_fp16"'
    convert(tmp_path, recipe(tmp_path, 'extends = "bf16"', rule), tmp_path / "a.ninfer")
    (warning,) = export(tmp_path / "a.ninfer", tmp_path / "out.safetensors", like=tmp_path).warnings
    assert warning.message == (
        "text/output_head, kept as q6_g64_fp16, is left out: model.embed_tokens.weight is written as "
        "text/token_embedding has it, which is kept as bf16"
    )
    assert tensors(tmp_path / "out.safetensors") == tensors(tmp_path / "model.safetensors")


@pytest.mark.parametrize("method", ["grouped_absmax", "grouped_search"])
def test_a_tied_head_of_other_values_is_told_of(tmp_path: Path, method: str) -> None:
    """Which of the two is written is not for silence to decide where one format has been made in two ways."""
    checkpoint(tmp_path, small.KINDS["experts in banks, tied, text only"])
    rule = '[[assign]]\nselect = "text/{}"\nformat = "q4_g64_fp16"\nmethod = "{}"'
    rules = (rule.format("token_embedding", "grouped_absmax"), rule.format("output_head", method))
    convert(tmp_path, recipe(tmp_path, 'extends = "bf16"', *rules), tmp_path / "a.ninfer")
    warnings = export(tmp_path / "a.ninfer", tmp_path / "out.safetensors", like=tmp_path).warnings
    differ = [
        "text/output_head, kept as q4_g64_fp16, is left out: model.embed_tokens.weight is written as "
        "text/token_embedding has it, which is kept as q4_g64_fp16 in another object"
    ]
    assert [warning.message for warning in warnings] == (differ if method == "grouped_search" else [])


def test_a_head_of_another_checkpoint_is_told_of(tmp_path: Path) -> None:
    checkpoint(tmp_path, small.KINDS["experts in banks, tied, text only"])
    other = tmp_path / "other.safetensors"
    write_safetensors(other, {"lm_head.weight": ("BF16", (small.V, small.H), bytes(2 * small.V * small.H))})
    rule = '[[assign]]\nselect = "text/output_head"\nsource = "other"\ntensor = "lm_head.weight"'
    made = recipe(tmp_path, 'extends = "bf16"', '[sources]\nother = ""', rule)
    shaping = Shaping(sources={"other": str(other)})
    convert(tmp_path, made, tmp_path / "a.ninfer", shaping=shaping)
    (warning,) = export(tmp_path / "a.ninfer", tmp_path / "out.safetensors", like=tmp_path).warnings
    assert warning.message.startswith("text/output_head, kept as bf16, is left out: model.embed_tokens.weight")
    assert tensors(tmp_path / "out.safetensors") == tensors(tmp_path / "model.safetensors")


def test_a_tensor_of_which_parameters_are_missing_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path, small.KINDS["experts in banks"])
    convert(tmp_path, "bf16", tmp_path / "a.ninfer")
    held = container.read(tmp_path / "a.ninfer")
    gone = ["1/attention/gate", "2/moe/experts/1/gate", "2/moe/experts/1/up", "0/gdn/norm"]
    gone = [f"text/layers/{name}" for name in gone]
    held.directory["uses"] = [use for use in held.directory["uses"] if use["parameter"] not in gone]
    for name in gone:
        del held.directory["bindings"][name]
    container.write(tmp_path / "a.ninfer", held.directory, held.payload)
    layers = "model.language_model.layers"
    assert refused(OutputError, tmp_path / "a.ninfer", tmp_path / "out", tmp_path) == [
        f"{layers}.1.self_attn.q_proj.weight: rows 48:96 are missing, as the artifact has no {gone[0]}; convert with "
        "them, or export under logical names",
        f"{layers}.2.mlp.experts.gate_up_proj: rows 256:512 are missing, as the artifact has no {gone[1]}, {gone[2]}; "
        "convert with them, or export under logical names",
    ]


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path / "one", small.KINDS["dense"])
    checkpoint(tmp_path / "two", small.KINDS["experts of their own"])
    convert(tmp_path / "one", "bf16", tmp_path / "a.ninfer")
    problems = refused(OutputError, tmp_path / "a.ninfer", tmp_path / "out", tmp_path / "two")
    assert problems == [
        f"text/layers/{layer}/mlp/{part}: was made from no tensor of {tmp_path / 'two'}"
        for layer in range(4)
        for part in ("gate", "up", "down")
    ]


@pytest.mark.parametrize("case", ["qwen3, tied", "llama with biases"])
def test_tensors_of_llamas(tmp_path: Path, case: str) -> None:
    config, layer = CASES[case]
    random = np.random.default_rng(0)
    shapes = {tensor: shape for _, shape, tensor, _, _ in lines(config, layer)}
    stored = {name: ("BF16", shape, bf16(random.standard_normal(shape))) for name, shape in shapes.items()}
    write_safetensors(tmp_path / "model.safetensors", stored)
    write_files(tmp_path, {"config.json": config})
    convert(tmp_path, recipe(tmp_path, 'extends = "bf16"', 'architecture = "llama"'), tmp_path / "a.ninfer")
    done = export(tmp_path / "a.ninfer", tmp_path / "out.safetensors", like=tmp_path)
    assert tensors(tmp_path / "out.safetensors") == tensors(tmp_path / "model.safetensors")
    assert done.warnings == ()
