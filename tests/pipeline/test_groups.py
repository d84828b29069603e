"""Groups and shares of a recipe, down to the bytes (recipes.md, Selecting and Share under Skips)."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from ninfer_convert.errors import SourceError
from tests.architectures import small
from tests.oracle import encoded as oracle
from tests.oracle import layouts
from tests.pipeline.converting import (
    LAYERS,
    Array,
    bound,
    checkpoint,
    convert,
    expected,
    ids,
    layered,
    lines,
    made,
    messages,
    nvfp4_checkpoint,
    planned,
    record,
    refused,
    stored,
    weights,
)

Q4 = lines("[[assign]]", "select = '*.{q,k,v}'", "format = 'q4_g64_fp16'")

# Groups.


def test_one_parent_a_layer_in_natural_order_holds_its_members_one_behind_the_other(
    tmp_path: Path,
) -> None:
    path, layers = layered(tmp_path)
    recipe = lines("[[group]]", "select = ['layers.*.q', 'layers.*.k', 'layers.*.v']") + Q4
    artifact = convert(path, recipe, tmp_path)
    assert ids(artifact) == [f"weight/{number:06d}" for number in range(6)]
    for number, layer in enumerate(LAYERS):
        names = [f"layers.{layer}.{kind}" for kind in "qkv"]
        whole = np.concatenate([layers[name] for name in names])
        parent = f"weight/{number:06d}"
        assert record(artifact, parent)["shape"] == [256, 192]
        assert artifact.object_bytes(parent) == expected("q4_g64_fp16", whole)
        begin = 0
        for name in names:
            end = begin + layers[name].size
            assert bound(artifact, name) == [(parent, begin, end)]
            assert artifact.directory["provenance"]["parameters"][name] == {"shape": list(layers[name].shape)}
            begin = end
        origin = artifact.directory["provenance"]["objects"][parent]
        assert (origin["parameters"], origin["tensors"], origin["method"]) == (names, names, "grouped_absmax")
        assert origin["stored"] == ["BF16"] * 3
    # What is left follows in the order of the parameters.
    assert [bound(artifact, f"layers.{layer}.norm")[0][0] for layer in LAYERS] == ids(artifact)[3:]


def test_vectors_join_in_a_direct_format(tmp_path: Path) -> None:
    path, layers = layered(tmp_path)
    artifact = convert(path, lines("[[group]]", "select = 'layers.{0..10}.norm'"), tmp_path)
    whole = np.concatenate([layers[f"layers.{layer}.norm"] for layer in LAYERS])
    assert stored(artifact, "layers.2.norm") == ("bf16", [576], whole.tobytes())
    assert bound(artifact, "layers.2.norm") == [("weight/000000", 192, 384)]


def test_a_group_of_one_comes_first_and_is_bound_whole(tmp_path: Path) -> None:
    path, layers = layered(tmp_path)
    artifact = convert(path, lines("[[group]]", "select = 'layers.10.v'"), tmp_path)
    assert artifact.directory["bindings"]["layers.10.v"] == {"object": "weight/000000"}
    assert stored(artifact, "layers.10.v") == ("bf16", [64, 192], layers["layers.10.v"].tobytes())


def test_an_optional_group_passes_by_the_layers_that_do_not_fit(tmp_path: Path) -> None:
    path, layers = layered(tmp_path)
    group = lines("[[group]]", "select = ['layers.*.q', 'layers.*.k']")
    finer = lines("[[assign]]", "select = 'layers.2.k'", "format = 'q8_g32_fp16'")
    assert messages(refused(path, group + Q4 + finer, tmp_path)) == [
        "3: layers.2.q, layers.2.k: cannot be one object: they differ in format: "
        "layers.2.q has q4_g64_fp16, layers.2.k q8_g32_fp16"
    ]
    artifact = convert(path, group + "optional = true\n" + Q4 + finer, tmp_path)
    assert [bound(artifact, f"layers.{layer}.k")[0][0] for layer in (0, 10)] == ["weight/000000", "weight/000001"]
    assert stored(artifact, "layers.2.k") == (
        "q8_g32_fp16",
        [64, 192],
        expected("q8_g32_fp16", layers["layers.2.k"]),
    )
    assert stored(artifact, "layers.2.q")[:2] == ("q4_g64_fp16", [128, 192])


def test_an_explicit_shape_reshapes_what_its_members_hold(tmp_path: Path) -> None:
    arrays: dict[str, Array] = {"a": weights(4, 256, seed=1), "b": weights(2, 512, seed=2), "s": weights(6, seed=3)}
    path = checkpoint(tmp_path / "m.safetensors", arrays)
    recipe = lines("[[assign]]", "select = ['a', 'b']", "format = 'q5_g64_fp16'", "[[group]]", "select = ['a', 'b']")
    artifact = convert(
        path, recipe + lines("shape = [4, 512]", "[[group]]", "select = 's'", "shape = [2, 3]"), tmp_path
    )
    whole = np.concatenate([arrays["a"].reshape(2, 512), arrays["b"]])
    assert stored(artifact, "a") == ("q5_g64_fp16", [4, 512], expected("q5_g64_fp16", whole))
    assert [bound(artifact, name)[0][1:] for name in "ab"] == [(0, 1024), (1024, 2048)]
    assert stored(artifact, "s") == ("bf16", [2, 3], arrays["s"].tobytes())
    assert artifact.directory["bindings"]["s"] == {"parts": [{"object": "weight/000001", "range": [0, 6]}]}


def test_banks_join_to_the_shape_that_is_said(tmp_path: Path) -> None:
    arrays: dict[str, Array] = {"e.up": weights(3, 5, 130, seed=1), "e.down": weights(3, 2, 130, seed=2)}
    path = checkpoint(tmp_path / "m.safetensors", arrays)
    recipe = lines("[[assign]]", "select = '*'", "format = 'q6_g64_fp16'", "[[group]]", "select = ['e.up', 'e.down']")
    artifact = convert(path, recipe + "shape = [21, 130]\n", tmp_path)
    whole = np.concatenate([array.reshape(-1, 130) for array in arrays.values()])
    assert stored(artifact, "e.down") == ("q6_g64_fp16", [21, 130], expected("q6_g64_fp16", whole))
    assert artifact.directory["provenance"]["parameters"] == {
        "e.up": {"shape": [3, 5, 130]},
        "e.down": {"shape": [3, 2, 130]},
    }


@pytest.mark.parametrize("up", [2.5, 7.0])
def test_a_parent_of_nvfp4_keeps_the_divisors_of_its_members_where_they_differ(tmp_path: Path, up: float) -> None:
    divisors = {"l.0.gate": 2.5, "l.0.up": up}
    arrays = nvfp4_checkpoint(tmp_path, divisors)
    recipe = lines("[[group]]", "select = ['l.*.gate.weight', 'l.*.up.weight']")
    artifact = convert(tmp_path / "quantized", recipe, tmp_path)
    format, shape, data = stored(artifact, "l.0.up.weight")
    assert (format, shape) == ("nvfp4", [256, 64])
    kept = [2.5] if up == 2.5 else [2.5, 7.0]
    words = [struct.unpack("<I", struct.pack("<f", divisor))[0] for divisor in kept]
    codes = np.concatenate([oracle.nibbles(arrays[f"{name}.weight_packed"]) for name in divisors])
    scales = np.concatenate([arrays[f"{name}.weight_scale"] for name in divisors])
    assert data == layouts.encode("nvfp4", (256, 64), layouts.Content(codes.tolist(), scales.tolist(), words))
    assert record(artifact, "weight/000000").get("divisors", 1) == len(kept)


def test_separate_keeps_parameters_out_of_the_architectures_groups(tmp_path: Path) -> None:
    small.write(tmp_path / "model", small.KINDS["dense"])
    pair = [f"text/layers/0/gdn/{name}_projection" for name in "ab"]
    packed = convert(tmp_path / "model", "name = 't'\n", tmp_path)
    assert [bound(packed, name)[0][0] for name in pair] == [bound(packed, pair[0])[0][0]] * 2
    apart = convert(tmp_path / "model", lines("[[separate]]", "select = '*/gdn/a_projection'"), tmp_path)
    for name in pair:
        ((id, begin, end),) = bound(packed, name)
        assert packed.object_bytes(id)[2 * begin : 2 * end] == stored(apart, name)[2]
        assert apart.directory["bindings"][name] == {"object": bound(apart, name)[0][0]}


# Shares.


def test_a_tied_head_is_bound_to_the_embedding(tmp_path: Path) -> None:
    embedding = weights(3, 4, 160)
    path = checkpoint(tmp_path / "m.safetensors", {"embedding": embedding})
    recipe = lines("[[share]]", "parameter = 'head'", "with = 'embedding'")
    quantized = recipe + lines("[[assign]]", "select = '*'", "format = 'q8_g32_fp16'")
    artifact = convert(path, quantized, tmp_path)
    bindings = artifact.directory["bindings"]
    assert bindings["head"] == bindings["embedding"] == {"parts": [{"object": "weight/000000", "range": [0, 1920]}]}
    assert stored(artifact, "head") == ("q8_g32_fp16", [12, 160], expected("q8_g32_fp16", embedding))
    shapes = artifact.directory["provenance"]["parameters"]
    assert shapes["head"] == shapes["embedding"] == {"shape": [3, 4, 160]}
    assert convert(path, recipe, tmp_path).directory["bindings"]["head"] == {"object": "weight/000000"}


def test_a_stored_twin_of_the_same_words_is_stored_once(tmp_path: Path) -> None:
    array = weights(8, 64)
    path = checkpoint(tmp_path / "m.safetensors", {"draft.0.k": array, "draft.0.context_k": array.copy()})
    recipe = lines("[[share]]", "parameter = 'draft.*.context_k'", "with = 'draft.*.k'")
    artifact = convert(path, recipe, tmp_path)
    assert ids(artifact) == ["weight/000000"]
    assert [bound(artifact, name) for name in artifact.directory["bindings"]] == [[("weight/000000", 0, 512)]] * 2
    assert made(artifact, "draft.0.context_k")["parameters"] == ["draft.0.k"]


@pytest.mark.parametrize("difference", ["a word", "the stored type"])
def test_a_stored_twin_of_other_words_is_refused_naming_both(tmp_path: Path, difference: str) -> None:
    array = weights(8, 64)
    if difference == "a word":
        other: Array = array.copy()
        other[7, 63] ^= 1
    else:
        other = (array.astype(np.uint32) << 16).view(np.float32)
    path = checkpoint(tmp_path / "m.safetensors", {"a": array, "b": other})
    recipe = lines("[[share]]", "parameter = 'b'", "with = 'a'")
    planned(path, recipe, tmp_path)
    error = refused(path, recipe, tmp_path)
    assert isinstance(error, SourceError)
    (problem,) = error.problems
    assert (problem.code, problem.path, problem.tensor) == ("not-shared", str(path), "b")
    assert problem.message == "b: its words are not those of a, with which [[share]] would bind it"


def test_an_alias_of_a_member_is_bound_to_its_part(tmp_path: Path) -> None:
    path, _ = layered(tmp_path)
    recipe = lines("[[group]]", "select = ['layers.*.q', 'layers.*.k']")
    recipe += lines("[[share]]", "parameter = 'draft.*.k'", "with = 'layers.*.k'")
    artifact = convert(path, recipe, tmp_path)
    assert bound(artifact, "draft.2.k") == bound(artifact, "layers.2.k") == [("weight/000001", 128 * 192, 192 * 192)]
