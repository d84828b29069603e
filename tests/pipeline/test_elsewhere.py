"""Values from elsewhere or otherwise: source, tensor, transpose, [[rename]], base (recipes.md, Skips and Ranks)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from tests.architectures import small
from tests.oracle import gguf
from tests.pipeline.converting import (
    Array,
    bound,
    checkpoint,
    convert,
    expected,
    layered,
    lines,
    made,
    messages,
    nvfp4_checkpoint,
    planned,
    refused,
    stored,
    weights,
)

BLOCKS = Path(__file__).parent.parent / "golden" / "gguf" / "blocks.gguf"
OTHER = lines("[sources]", "other = 'a second checkpoint'")


def second(folder: Path, arrays: dict[str, Array]) -> dict[str, str]:
    """A second checkpoint of these arrays, as `sources` gives it."""
    return {"other": str(checkpoint(folder / "second" / "model.safetensors", arrays))}


def assign(select: str, *says: str) -> str:
    return lines("[[assign]]", f"select = '{select}'", *says)


def test_a_source_gives_the_values_of_the_same_name(tmp_path: Path) -> None:
    path, layers = layered(tmp_path)
    others = {name: weights(*array.shape, seed=99) for name, array in layers.items() if name.endswith("q")}
    sources = second(tmp_path, others)
    recipe = OTHER + assign("*.q", "source = 'other'", "format = 'q4_g64_fp16'")
    artifact = convert(path, recipe, tmp_path, sources=sources)
    for name, array in layers.items():
        format, values = ("q4_g64_fp16", others[name]) if name in others else ("bf16", array)
        assert stored(artifact, name) == (format, list(array.shape), expected(format, values))
    assert made(artifact, "layers.0.q")["sources"] == ["other"]
    assert "sources" not in made(artifact, "layers.0.k")
    provenance = artifact.directory["provenance"]["sources"]
    assert list(provenance) == ["model", "other"]
    (file,) = provenance["other"]["files"]
    assert (file["name"], file["size"]) == ("model.safetensors", Path(sources["other"]).stat().st_size)


def test_a_source_that_no_assign_uses_is_not_opened(tmp_path: Path) -> None:
    path, _ = layered(tmp_path)
    artifact = convert(path, OTHER, tmp_path, sources={"other": str(tmp_path / "nowhere")})
    assert list(artifact.directory["provenance"]["sources"]) == ["model"]


def test_members_of_a_group_come_from_several_inputs(tmp_path: Path) -> None:
    path, layers = layered(tmp_path)
    k = weights(64, 192, seed=5)
    recipe = OTHER + assign("layers.0.k", "source = 'other'") + lines("[[group]]", "select = 'layers.0.{k,v}'")
    artifact = convert(path, recipe, tmp_path, sources=second(tmp_path, {"layers.0.k": k}))
    format, shape, data = stored(artifact, "layers.0.k")
    assert (format, shape, data) == ("bf16", [128, 192], k.tobytes() + layers["layers.0.v"].tobytes())
    assert made(artifact, "layers.0.k")["sources"] == ["other", "model"]


def test_a_tensor_is_found_by_the_texts_of_the_stars(tmp_path: Path) -> None:
    path, _ = layered(tmp_path)
    others = {f"blk.{layer}.attn_q": weights(128, 192, seed=layer + 50) for layer in (0, 2, 10)}
    recipe = OTHER + assign("layers.*.q", "source = 'other'", r"tensor = 'blk.\1.attn_q'")
    artifact = convert(path, recipe, tmp_path, sources=second(tmp_path, others))
    for layer in (0, 2, 10):
        assert stored(artifact, f"layers.{layer}.q")[2] == others[f"blk.{layer}.attn_q"].tobytes()
        assert made(artifact, f"layers.{layer}.q")["tensors"] == [f"blk.{layer}.attn_q"]


def test_a_tensor_of_the_checkpoint_itself_can_take_anothers_place(tmp_path: Path) -> None:
    path, layers = layered(tmp_path)
    artifact = convert(path, assign("layers.0.v", "tensor = 'layers.2.k'"), tmp_path)
    assert stored(artifact, "layers.0.v")[2] == layers["layers.2.k"].tobytes()
    assert made(artifact, "layers.0.v") | {"sha256": 0} == {
        "parameters": ["layers.0.v"],
        "tensors": ["layers.2.k"],
        "stored": ["BF16"],
        "method": "cast_direct",
        "sha256": 0,
    }


def test_encoded_words_of_a_second_checkpoint_are_imported(tmp_path: Path) -> None:
    arrays = nvfp4_checkpoint(tmp_path, {"l.0.up": 2.0})
    path = checkpoint(tmp_path / "m.safetensors", {"l.0.up.weight": weights(128, 64)})
    recipe = OTHER + assign("*", "source = 'other'", "format = 'nvfp4'")
    artifact = convert(path, recipe, tmp_path, sources={"other": str(tmp_path / "quantized")})
    alone = convert(tmp_path / "quantized", "import", tmp_path)
    assert stored(artifact, "l.0.up.weight") == stored(alone, "l.0.up.weight")
    assert made(artifact, "l.0.up.weight")["tensors"] == list(arrays)
    scales = {"l.0.up.weight": {"l.0.up.input_global_scale": 3.5}}
    assert artifact.directory["provenance"]["activation_scales"] == scales
    with_use = recipe + lines("[[use]]", "parameter = '*.weight'", "input = '*.in'", "activation_policy = 'AllowA4'")
    artifact = convert(path, with_use, tmp_path, sources={"other": str(tmp_path / "quantized")})
    (use,) = artifact.directory["uses"]
    assert list(use["auxiliaries"]) == ["activation_input_divisor"]
    assert artifact.directory["provenance"]["activation_scales"] == {}


def test_names_of_other_inputs_are_renamed_where_they_match(tmp_path: Path) -> None:
    path, layers = layered(tmp_path)
    recipe = lines("[[rename]]", r"match = 'layers\.(\d+)\.q'", r"to = 'text/\1/query'")
    recipe += OTHER + assign("text/*/query", "source = 'other'")
    others = {name: weights(128, 192, seed=7) for name in layers if name.endswith("q")}
    artifact = convert(path, recipe, tmp_path, sources=second(tmp_path, others))
    assert stored(artifact, "text/2/query")[2] == others["layers.2.q"].tobytes()
    renamed = {name.replace("layers.", "text/").replace(".q", "/query"): array for name, array in others.items()}
    artifact = convert(path, recipe, tmp_path, sources=second(tmp_path, renamed))
    assert stored(artifact, "text/2/query")[2] == others["layers.2.q"].tobytes()
    assert made(artifact, "text/2/query")["tensors"] == ["text/2/query"]


def test_an_architecture_with_names_of_its_own_renames_nothing(tmp_path: Path) -> None:
    small.write(tmp_path / "model", small.KINDS["dense"])
    recipe = lines("[[rename]]", "match = 'x'", "to = 'y'", "optional = true")
    assert messages(refused(tmp_path / "model", recipe, tmp_path)) == [
        "2: [[rename]] is for the generic architecture; qwen3_5 has names of its own"
    ]


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (["source = 'other'"], "6: layers.0.q: source other has no parameter of that name"),
        (
            ["source = 'other'", "tensor = 'x.weigth'"],
            "7: layers.0.q: source other has no tensor 'x.weigth'; did you mean x.weight?",
        ),
        (["tensor = 'nothing'"], "6: layers.0.q: the checkpoint has no tensor 'nothing'"),
        (["source = 'other'", "tensor = 'wide'"], "7: layers.0.q: has shape [4, 300] there, not [128, 192]"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, says: list[str], message: str) -> None:
    path, _ = layered(tmp_path)
    sources = second(tmp_path, {"x.weight": weights(128, 192), "wide": weights(4, 300)})
    (found,) = messages(refused(path, OTHER + assign("layers.0.q", *says), tmp_path, sources=sources))
    assert found.startswith(message)


def test_an_input_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path, _ = layered(tmp_path)
    recipe = OTHER + assign("layers.0.q", "source = 'other'")
    (problem,) = refused(path, recipe, tmp_path, sources={"other": str(tmp_path / "nowhere")}).problems
    assert problem.path == str(tmp_path / "nowhere")
    assert messages(refused(path, recipe, tmp_path)) == ["6: source other is not given: pass --source other=PATH"]
    (problem,) = refused(path, "bf16", tmp_path, sources={"other": str(path)}).problems
    assert problem.message == "--source other is given, and the recipe declares no source of that name"


def test_a_checkpoint_may_take_the_values_of_a_gguf_and_the_other_way_round(tmp_path: Path) -> None:
    _, _, rows = gguf.read(BLOCKS)["blk.0.q4_k.weight"]
    path = checkpoint(tmp_path / "m.safetensors", {"w": weights(6, 512)})
    recipe = OTHER + assign("w", "source = 'other'", "tensor = 'blk.0.q4_k.weight'")
    artifact = convert(path, recipe, tmp_path, sources={"other": str(BLOCKS)})
    assert stored(artifact, "w") == ("gguf_q4_k", [6, 512], rows.tobytes())


# Transposition.


@pytest.mark.parametrize("format", ["bf16", "q5_g64_fp16", "fp8_e4m3fn_row_bf16"])
@pytest.mark.parametrize("shape", [(130, 70), (3, 130, 70), (2, 64, 64)])
def test_transposed_storage_gives_the_bytes_of_the_transposed_array(
    tmp_path: Path, format: str, shape: tuple[int, ...]
) -> None:
    array = weights(*shape)
    path = checkpoint(tmp_path / "m.safetensors", {"w": array})
    artifact = convert(path, assign("w", "transpose = true", f"format = '{format}'"), tmp_path)
    swapped = np.ascontiguousarray(np.swapaxes(array, -1, -2))
    ((id, _, _),) = bound(artifact, "w")
    assert artifact.object_bytes(id) == expected(format, swapped)
    assert made(artifact, "w")["selections"] == ["transposed"]
    logical = list(swapped.shape)
    binding = artifact.directory["bindings"]["w"]
    if format == "bf16" or len(shape) == 2:
        assert (binding, stored(artifact, "w")[1]) == ({"object": id}, logical)
    else:
        transposed = {"source": "model", "tensor": "w"}
        assert artifact.directory["provenance"]["parameters"] == {"w": {"shape": logical, "transposed": transposed}}


def test_transposed_members_join(tmp_path: Path) -> None:
    arrays: dict[str, Array] = {"l.q": weights(64, 8, seed=1), "l.k": weights(64, 4, seed=2)}
    path = checkpoint(tmp_path / "m.safetensors", arrays)
    recipe = assign("*", "transpose = true", "format = 'q8_g32_fp16'") + lines("[[group]]", "select = ['l.q', 'l.k']")
    artifact = convert(path, recipe, tmp_path)
    whole = np.concatenate([np.ascontiguousarray(array.T) for array in arrays.values()])
    assert stored(artifact, "l.k") == ("q8_g32_fp16", [12, 64], expected("q8_g32_fp16", whole))


def test_decoded_values_are_transposed_too(tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "m.safetensors", {"w": weights(512, 6)})
    recipe = OTHER + assign("w", "source = 'other'", "tensor = 'blk.0.q8_0.weight'", "transpose = true")
    recipe += assign("w", "format = 'fp32'")
    artifact = convert(path, recipe, tmp_path, sources={"other": str(BLOCKS)})
    direct = convert(BLOCKS, "fp32", tmp_path)
    values = np.frombuffer(stored(direct, "blk.0.q8_0.weight")[2], "<f4").reshape(6, 512)
    assert stored(artifact, "w") == ("fp32", [512, 6], np.ascontiguousarray(values.T).tobytes())


# base: config and resources of a GGUF.


def test_base_gives_a_gguf_config_and_tokenizer(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 512, "torch_dtype": "bfloat16"}
    (base / "config.json").write_text(json.dumps(config))
    (base / "tokenizer.json").write_text("{}")
    artifact = convert(BLOCKS, "gguf", tmp_path, sources={"base": str(base)})
    text = artifact.directory["components"]["text"]
    assert text["config"] == {"architectures": ["LlamaForCausalLM"], "hidden_size": 512}
    assert list(text["resources"]) == ["tokenizer.json", "gguf_metadata"]
    assert artifact.object_bytes(text["resources"]["tokenizer.json"]) == b"{}"
    digest = hashlib.sha256(b"{}").hexdigest()
    record = artifact.directory["provenance"]["objects"]["resource/text/tokenizer.json"]
    assert record == {"file": "tokenizer.json", "sha256": digest}
    assert planned(BLOCKS, "gguf", tmp_path, sources={"base": str(base)}).model.architecture == "generic"


@pytest.mark.parametrize("name", ["absent", "a file"])
def test_base_is_a_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "a file").write_text("{}")
    (problem,) = refused(BLOCKS, "gguf", tmp_path, sources={"base": str(tmp_path / name)}).problems
    assert problem.path == str(tmp_path / name)
    assert problem.message.startswith("is no folder; --source base gives one with a config.json")
