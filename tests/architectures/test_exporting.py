"""Checkpoints given back: artifacts of logical parameters, exported like what they were made from (qwen35.md 2, 8)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
from safetensors import deserialize

from ninfer_convert import convert, export, open_artifact
from ninfer_convert.errors import ArtifactError, OutputError
from tests.architectures import llama_cpp, small
from tests.architectures.building import write_files
from tests.architectures.test_llama import CASES, lines
from tests.architectures.test_qwen3_5_gguf import write as write_gguf
from tests.oracle import container
from tests.support import bf16, write_safetensors

if TYPE_CHECKING:
    from tests.architectures.small import Array

Tensor = tuple[str, list[int], bytes]
DECAYS = ("linear_attn.A_log", "linear_attn.dt_bias")
"""What the engine takes as fp32 only."""


def tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, as the package of that name reads them."""
    found = dict(deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
    return {name: (each["dtype"], list(each["shape"]), bytes(each["data"])) for name, each in found.items()}


def values(path: Path) -> dict[str, Array]:
    """The same as numbers."""
    found = {}
    for name, (dtype, shape, data) in tensors(path).items():
        wide = np.frombuffer(data, "<u2").astype("<u4") << 16 if dtype == "BF16" else np.frombuffer(data, "<u4")
        found[name] = wide.view(np.float32).reshape(shape)
    return found


def recipe(folder: Path, *lines: str) -> Path:
    path = folder / "r.toml"
    path.write_text("\n".join(("schema = 1", *lines, "")))
    return path


def assembled(kind: small.Kind, logical: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors of a checkpoint of which these are the logical parameters."""
    parts = {f"layers.{name.removeprefix('text/layers/')}": array for name, array in logical.items()}
    found = {}
    for name, shape in small.shapes(kind).items():
        own = name.removeprefix(kind.prefix)
        if not own.startswith("layers."):
            logical_name = {"norm.weight": "final_norm", "lm_head.weight": "output_head"}.get(own, "token_embedding")
            found[name] = logical[f"text/{logical_name}"]
            continue
        _, number, rest = own.split(".", 2)
        found[name] = _assembled(
            rest,
            {
                each.removeprefix(f"layers.{number}/"): array
                for each, array in parts.items()
                if each.startswith(f"layers.{number}/")
            },
        )
        assert found[name].shape == shape
    return found


ONE_TO_ONE = {
    "input_layernorm.weight": "input_norm",
    "post_attention_layernorm.weight": "post_attention_norm",
    "linear_attn.A_log": "gdn/a_log",
    "linear_attn.dt_bias": "gdn/dt_bias",
    "linear_attn.in_proj_a.weight": "gdn/a_projection",
    "linear_attn.in_proj_b.weight": "gdn/b_projection",
    "linear_attn.in_proj_z.weight": "gdn/z",
    "linear_attn.norm.weight": "gdn/norm",
    "linear_attn.out_proj.weight": "gdn/output",
    "mlp.gate.weight": "moe/router",
    "mlp.shared_expert_gate.weight": "moe/shared_score",
    **{f"self_attn.{name}_norm.weight": f"attention/{long}_norm" for name, long in (("q", "query"), ("k", "key"))},
    **{
        f"self_attn.{n}_proj.weight": f"attention/{long}"
        for n, long in zip("kvo", ("key", "value", "output"), strict=True)
    },
    **{f"mlp.{part}_proj.weight": f"mlp/{part}" for part in ("gate", "up", "down")},
    **{f"mlp.shared_expert.{part}_proj.weight": f"moe/shared/{part}" for part in ("gate", "up", "down")},
}


def _assembled(name: str, own: Mapping[str, Array]) -> Array:
    if name in ONE_TO_ONE:
        return own[ONE_TO_ONE[name]]
    if name == "self_attn.q_proj.weight":
        halves = [own[f"attention/{half}"].reshape(small.A, 1, small.D, small.H) for half in ("query", "gate")]
        both: Array = np.concatenate(halves, axis=1).reshape(2 * small.A * small.D, small.H)
        return both
    if name == "linear_attn.in_proj_qkv.weight":
        return np.concatenate([own["gdn/query"], own["gdn/key"], own["gdn/value"]])
    if name == "linear_attn.conv1d.weight":
        taps: Array = own["gdn/convolution"].T[:, None, :]
        return taps
    experts = range(small.E)
    if name == "mlp.experts.gate_up_proj":
        pairs = [(own[f"moe/experts/{expert}/gate"], own[f"moe/experts/{expert}/up"]) for expert in experts]
        return np.stack([np.concatenate(pair) for pair in pairs])
    if name == "mlp.experts.down_proj":
        return np.stack([own[f"moe/experts/{expert}/down"] for expert in experts])
    _, _, expert, part, _ = name.split(".")
    return own[f"moe/experts/{expert}/{part.removesuffix('_proj')}"]


def decoded(path: Path) -> dict[str, Array]:
    """Every parameter of an artifact, decoded through its binding."""
    with open_artifact(path) as artifact:
        return {name: parameter.numpy() for name, parameter in artifact.items()}


def checkpoint(folder: Path, kind: small.Kind) -> dict[str, Array]:
    """The small checkpoint with decays in binary32, as the published ones have them."""
    found = small.write(folder, kind)
    stored = {
        name: ("F32", array.shape, array.tobytes())
        if kind.stored == "F32" or name.endswith(DECAYS)
        else ("BF16", array.shape, bf16(array))
        for name, array in found.items()
    }
    write_safetensors(folder / "model.safetensors", stored)
    return found


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


def refused(kind: type[Exception], artifact: Path, out: Path, like: Path) -> list[str]:
    """The problems of an export that must be refused and leave nothing."""
    with pytest.raises(kind) as caught:
        export(artifact, out, like=like)
    assert not out.exists()
    return [problem.message for problem in caught.value.problems]  # type: ignore[attr-defined]


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


def test_transposed_weights_lie_as_they_lay(tmp_path: Path) -> None:
    """As shapes cannot tell, the provenance does."""
    shapes = {"a": (3, 4), "b": (6, 2), "square": (4, 4), "bank": (2, 3, 3)}
    arrays = {name: np.random.default_rng(0).standard_normal(shape, np.float32) for name, shape in shapes.items()}
    write_safetensors(
        tmp_path / "model.safetensors", {name: ("F32", each.shape, each.tobytes()) for name, each in arrays.items()}
    )
    rule = '[[assign]]\nselect = ["a", "square", "bank"]\nformat = "fp32"\ntranspose = true'
    convert(tmp_path / "model.safetensors", recipe(tmp_path, rule), tmp_path / "a.ninfer")
    assert decoded(tmp_path / "a.ninfer")["square"].tolist() == arrays["square"].T.tolist()
    export(tmp_path / "a.ninfer", tmp_path / "out.safetensors", like=tmp_path / "model.safetensors")
    assert tensors(tmp_path / "out.safetensors") == tensors(tmp_path / "model.safetensors")


GGUF_KINDS = {"dense": small.Kind(), "experts, tied": small.Kind(experts=True, fused=True, tied=True)}


def same(found: Array, expected: Array, name: str) -> bool:
    """Equal; decays have been through a logarithm and back."""
    if found.shape != expected.shape:
        return False
    return np.allclose(found, expected, rtol=1e-5) if name.endswith("ssm_a") else np.array_equal(found, expected)


@pytest.mark.parametrize("kind", GGUF_KINDS.values(), ids=GGUF_KINDS)
def test_values_of_a_gguf_come_back(tmp_path: Path, kind: small.Kind) -> None:
    expected = llama_cpp.exported(kind, write_gguf(tmp_path, kind))
    convert(tmp_path / "m.gguf", "bf16", tmp_path / "a.ninfer")
    done = export(tmp_path / "a.ninfer", tmp_path / "out.safetensors", like=tmp_path / "m.gguf")
    norms = [name for name in expected if name.endswith("norm.weight") and "ssm" not in name]
    assert (done.decoded, done.warnings) == (len(norms), ())  # which are sums
    found = values(tmp_path / "out.safetensors")
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert same(found[name], array, name), name


def read_gguf(path: Path) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize("kind", GGUF_KINDS.values(), ids=GGUF_KINDS)
def test_blocks_of_a_gguf_come_back_byte_for_byte(tmp_path: Path, kind: small.Kind) -> None:
    """Rows are gathered again, and the columns of a linear layer's output never were moved."""
    write_gguf(tmp_path, kind, blocks=True)
    convert(tmp_path / "m.gguf", "gguf", tmp_path / "a.ninfer")
    done = export(tmp_path / "a.ninfer", tmp_path / "out.gguf", like=tmp_path / "m.gguf")
    assert done.warnings == ()
    original, found = read_gguf(tmp_path / "m.gguf"), read_gguf(tmp_path / "out.gguf")
    assert list(found) == list(original)
    kept = set()
    for name, tensor in found.items():
        assert tensor.shape.tolist() == original[name].shape.tolist()
        if original[name].tensor_type.name == "Q8_0" == tensor.tensor_type.name:
            assert np.array_equal(tensor.data, original[name].data), name
            kept.add(name.split(".", 2)[-1])
    assert {"attn_qkv.weight", "attn_q.weight", "attn_gate.weight", "ssm_out.weight"} <= kept
    assert ("ffn_gate_exps.weight" in kept) == kind.experts
    fields = [list(gguf.GGUFReader(tmp_path / name).fields) for name in ("m.gguf", "out.gguf")]
    assert fields[0] == fields[1]
    norms = {name: tensor for name, tensor in found.items() if name.endswith(("attn_norm.weight", "ssm_conv1d.weight"))}
    for name, tensor in norms.items():
        data = tensor.data.view(np.uint16).astype(np.uint32) << 16 if tensor.tensor_type.name == "BF16" else tensor.data
        assert np.array_equal(data.view(np.float32), original[name].data)


def test_a_ggufs_blocks_as_the_safetensors_they_were_made_of(tmp_path: Path) -> None:
    kind = GGUF_KINDS["dense"]
    write_gguf(tmp_path, kind, blocks=True)
    checkpoint(tmp_path / "safetensors", kind)
    convert(tmp_path / "m.gguf", "gguf", tmp_path / "a.ninfer")
    done = export(tmp_path / "a.ninfer", tmp_path / "out.safetensors", like=tmp_path / "safetensors")
    assert done.warnings == ()
    logical = decoded(tmp_path / "a.ninfer")
    for name in ("text/layers/0/gdn/output", "text/layers/2/gdn/output"):  # kept as llama.cpp has the columns
        heads = logical[name].reshape(small.H, llama_cpp.R, small.NK, small.DV)
        logical[name] = heads.swapaxes(1, 2).reshape(small.H, -1)
    expected, found = assembled(kind, logical), values(tmp_path / "out.safetensors")
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert np.array_equal(found[name], array), name
    problems = refused(OutputError, tmp_path / "a.ninfer", tmp_path / "out.gguf", tmp_path / "safetensors")
    assert problems == [
        f"model.language_model.layers.{layer}.linear_attn.out_proj.weight: is not made of whole rows of Q8_0 blocks; "
        "export as safetensors"
        for layer in (0, 2)
    ]
    (warning,) = export(tmp_path / "a.ninfer", tmp_path / "own.safetensors").warnings
    assert warning.message.startswith("input_columns of 2 uses is left out")


def test_formats_of_parts_that_differ_are_none_of_a_gguf(tmp_path: Path) -> None:
    write_gguf(tmp_path, GGUF_KINDS["dense"], blocks=True)
    rule = '[[assign]]\nselect = "text/layers/0/gdn/key"\nformat = "bf16"'
    convert(tmp_path / "m.gguf", recipe(tmp_path, 'extends = "gguf"', rule), tmp_path / "a.ninfer")
    assert refused(OutputError, tmp_path / "a.ninfer", tmp_path / "out.gguf", tmp_path / "m.gguf") == [
        "GGUF has no type for gguf_q8_0+bf16, in which 1 parameter (blk.0.attn_qkv.weight) is kept; export as "
        "safetensors"
    ]


@pytest.mark.parametrize("fault", ["word", "use"])
def test_columns_in_no_order_are_refused(tmp_path: Path, fault: str) -> None:
    write_gguf(tmp_path, GGUF_KINDS["dense"], blocks=True)
    convert(tmp_path / "m.gguf", "gguf", tmp_path / "a.ninfer")
    held = container.read(tmp_path / "a.ninfer")
    payload = bytearray(held.payload)
    if fault == "word":
        (record,) = (each for each in held.directory["objects"] if each["id"].startswith("auxiliary/"))
        payload[record["offset"]] ^= 1
    else:
        (use,) = (each for each in held.directory["uses"] if each["parameter"] == "text/layers/0/gdn/output")
        held.directory["uses"].append({**use, "input": "another", "auxiliaries": {}})
    container.write(tmp_path / "a.ninfer", held.directory, bytes(payload))
    (message,) = refused(ArtifactError, tmp_path / "a.ninfer", tmp_path / "out.safetensors", tmp_path / "m.gguf")
    assert message == (
        "text/layers/0/gdn/output: input_columns of its uses are no order of its columns; verify the artifact"
    )
