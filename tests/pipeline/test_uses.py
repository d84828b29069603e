"""Uses of a recipe in the directory: policies, auxiliaries, divisors (recipes.md, Use under Skips)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ninfer_convert.errors import RecipeError
from tests.architectures import small
from tests.oracle import gguf
from tests.pipeline.converting import (
    Array,
    checkpoint,
    convert,
    ids,
    layered,
    lines,
    messages,
    nvfp4_checkpoint,
    planned,
    record,
    refused,
    weights,
)

if TYPE_CHECKING:
    from tests.oracle.container import Container


def use_of(artifact: Container, parameter: str) -> dict[str, object]:
    found: dict[str, object]
    (found,) = (use for use in artifact.directory["uses"] if use["parameter"] == parameter)
    return found


def test_the_policy_is_always_written(tmp_path: Path) -> None:
    recipe = lines("[[use]]", "parameter = 'layers.*.{q,k}'", "input = 'layers.*.in'")
    recipe += lines("[[assign]]", "select = 'layers.{2,10}.q'", "activation_policy = 'AllowA8'")
    recipe += lines("[[use]]", "parameter = 'layers.10.q'", "input = 'layers.10.in'", "activation_policy = 'AllowA4'")
    artifact = convert(layered(tmp_path)[0], recipe, tmp_path)
    assert artifact.directory["uses"] == [
        {"parameter": f"layers.{layer}.{kind}", "input": f"layers.{layer}.in", "activation_policy": policy}
        for layer, kind, policy in (
            (0, "k", "A16Only"),
            (0, "q", "A16Only"),
            (2, "k", "A16Only"),
            (2, "q", "AllowA8"),
            (10, "k", "A16Only"),
            (10, "q", "AllowA4"),
        )
    ]


def test_a_policy_applies_to_the_architectures_uses(tmp_path: Path) -> None:
    small.write(tmp_path / "model", small.KINDS["dense"])
    recipe = lines("[[assign]]", "select = ['text/layers/*/mlp/*', '*norm']", "activation_policy = 'AllowA8'")
    recipe += lines("[[use]]", "parameter = 'text/output_head'", "input = 'text/draft'")
    artifact = convert(tmp_path / "model", recipe, tmp_path)
    uses = artifact.directory["uses"]
    allowed = {use["parameter"] for use in uses if use["activation_policy"] == "AllowA8"}
    assert allowed == {f"text/layers/{layer}/mlp/{name}" for layer in range(4) for name in ("gate", "up", "down")}
    assert uses[-1] == {"parameter": "text/output_head", "input": "text/draft", "activation_policy": "A16Only"}
    assert len(uses) > 30


def test_a_number_becomes_a_scalar_of_its_own_behind_all_weights(tmp_path: Path) -> None:
    recipe = lines("[[use]]", "parameter = 'layers.*.q'", "input = 'layers.*.in'", "activation_policy = 'AllowA4'")
    recipe += "auxiliaries = { activation_input_divisor = 0.1 }\n"
    artifact = convert(layered(tmp_path)[0], recipe, tmp_path)
    assert ids(artifact)[-3:] == [f"auxiliary/{number:06d}" for number in range(3)]
    assert use_of(artifact, "layers.2.q")["auxiliaries"] == {"activation_input_divisor": {"object": "auxiliary/000001"}}
    for id in ids(artifact)[-3:]:
        assert (record(artifact, id)["format"], record(artifact, id)["shape"]) == ("fp32", [])
        assert artifact.object_bytes(id) == struct.pack("<f", 0.1)
        assert artifact.directory["provenance"]["objects"][id]["auxiliary"] == "activation_input_divisor"


def signs(columns: int) -> Array:
    return np.where(np.arange(columns) % 3, 0x3F80, 0xBF80).astype(np.uint16)


def test_a_name_becomes_the_parameters_own_binding(tmp_path: Path) -> None:
    arrays: dict[str, Array] = {"l.0.down": weights(4, 2048), "signs.0": signs(2048), "signs.1": signs(2048)}
    path = checkpoint(tmp_path / "m.safetensors", arrays)
    use = lines("[[use]]", "parameter = 'l.*.down'", "input = 'l.*.mlp'", "auxiliaries.hadamard_signs = 'signs.*'")
    grouped = lines("[[group]]", "select = 'signs.?'")
    artifact = convert(path, use + grouped, tmp_path)
    assert use_of(artifact, "l.0.down")["auxiliaries"] == {
        "hadamard_signs": {"parts": [{"object": "weight/000000", "range": [0, 2048]}]}
    }
    shared = lines("[[share]]", "parameter = 'mine'", "with = 'signs.1'")
    artifact = convert(path, use.replace("signs.*", "mine") + shared, tmp_path)
    assert use_of(artifact, "l.0.down")["auxiliaries"] == {"hadamard_signs": artifact.directory["bindings"]["signs.1"]}


BLOCKS = Path(__file__).parent.parent / "golden" / "gguf" / "blocks.gguf"


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ("signs = 'ok'", "2: w: unknown auxiliary role 'signs'; did you mean hadamard_signs?"),
        ("hadamard_signs = 'wide'", "2: w: hadamard_signs is wide, stored as fp32; it must be bf16"),
        ("hadamard_signs = 'alias'", "2: w: hadamard_signs is alias, stored as fp32; it must be bf16"),
        ("hadamard_signs = 'odd'", "2: w: hadamard_signs is odd, which has 1000 elements; expected a multiple of 1024"),
        (
            "hadamard_signs = 'short'",
            "2: w: hadamard_signs is short, which has 1024 elements; expected 2048, one for each column",
        ),
        ("activation_input_divisor = 'wide'", "2: w: activation_input_divisor is wide, which has 2048 elements"),
        ("input_columns = 'columns'", "2: w: input_columns is for gguf formats, and it is stored as bf16"),
        ("hadamard_signs = 2.0", "2: w: hadamard_signs is a number; it must be the name of a parameter"),
    ],
)
def test_an_auxiliary_that_its_role_does_not_allow_is_refused_by_the_plan(
    tmp_path: Path, says: str, message: str
) -> None:
    arrays: dict[str, Array] = {
        "w": weights(4, 2048),
        "ok": signs(2048),
        "odd": signs(1000),
        "short": signs(1024),
        "wide": np.ones(2048, np.float32),
        "columns": np.arange(2048, dtype=np.int32),
    }
    path = checkpoint(tmp_path / "m.safetensors", arrays)
    recipe = lines("[[use]]", "parameter = 'w'", "input = 'in'", f"auxiliaries = {{ {says} }}")
    recipe += lines("[[share]]", "parameter = 'alias'", "with = 'wide'")
    with pytest.raises(RecipeError) as caught:
        planned(path, recipe, tmp_path)
    (found,) = messages(caught.value)
    assert found.startswith(message)


@pytest.mark.parametrize(
    ("role", "words", "fault"),
    [
        ("hadamard_signs", np.full(1024, 0x3F81, np.uint16), "element 0 is the bf16 word 0x3F81; expected +1"),
        (
            "activation_input_divisor",
            np.array(-1.0, np.float32),
            "element 0 is -1.0; expected a positive",
        ),
    ],
)
def test_illegal_words_of_an_auxiliary_are_refused_before_anything_is_written(
    tmp_path: Path, role: str, words: Array, fault: str
) -> None:
    path = checkpoint(tmp_path / "m.safetensors", {"w": weights(4, 1024), "aux": words})
    recipe = lines("[[use]]", "parameter = 'w'", "input = 'in'", f"auxiliaries = {{ {role} = 'aux' }}")
    planned(path, recipe, tmp_path)
    (problem,) = refused(path, recipe, tmp_path).problems
    assert problem.message.startswith(f"w: {role} is aux, whose {fault}")


def test_a_permutation_of_the_columns_goes_with_blocks(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(512).astype("<i4")
    _, _, rows = gguf.read(BLOCKS)["blk.0.q4_k.weight"]
    path = tmp_path / "m.gguf"
    tensors = [
        gguf.Tensor("blk.0.ffn_down.weight", 12, (6, 512), rows.tobytes()),
        gguf.Tensor("order", 26, (512,), order.tobytes()),
    ]
    path.write_bytes(gguf.File(tensors, [gguf.string("general.architecture", "llama")]).build())
    recipe = lines("[[use]]", "parameter = 'blk.*.ffn_down.weight'", "input = 'blk.*.mlp'")
    recipe += "auxiliaries = { input_columns = 'order' }\n"
    artifact = convert(path, recipe, tmp_path)
    assert use_of(artifact, "blk.0.ffn_down.weight")["auxiliaries"] == {
        "input_columns": artifact.directory["bindings"]["order"]
    }
    tensors[1] = gguf.Tensor("order", 26, (512,), np.zeros(512, "<i4").tobytes())
    path.write_bytes(gguf.File(tensors, [gguf.string("general.architecture", "llama")]).build())
    (problem,) = refused(path, recipe, tmp_path).problems
    assert "whose element 1 is 0 again; expected every column once" in problem.message


def test_four_bit_activations_of_nvfp4_take_the_divisor_of_the_checkpoint(tmp_path: Path) -> None:
    nvfp4_checkpoint(tmp_path, {"l.0.gate": 2.5, "l.0.up": 7.0})
    recipe = lines(
        "[[use]]", "parameter = 'l.*.{gate,up}.weight'", "input = 'l.*.mlp'", "activation_policy = 'AllowA4'"
    )
    artifact = convert(tmp_path / "quantized", recipe, tmp_path)
    for name, divisor in (("gate", 3.5), ("up", 2.5)):
        auxiliaries = use_of(artifact, f"l.0.{name}.weight")["auxiliaries"]
        assert isinstance(auxiliaries, dict)
        assert artifact.object_bytes(auxiliaries["activation_input_divisor"]["object"]) == struct.pack("<f", divisor)
    grouped = recipe + lines("[[group]]", "select = ['l.*.gate.weight', 'l.*.up.weight']")
    artifact = convert(tmp_path / "quantized", grouped, tmp_path)
    assert [artifact.object_bytes(id) for id in ids(artifact)[1:]] == [struct.pack("<f", 2.5)] * 2


def test_four_bit_activations_of_nvfp4_without_a_divisor_are_refused(tmp_path: Path) -> None:
    nvfp4_checkpoint(tmp_path, {"l.0.gate": 2.5}, inputs=False)
    recipe = lines("[[use]]", "parameter = 'l.*.gate.weight'", "input = 'l.*.mlp'", "activation_policy = 'AllowA4'")
    assert messages(refused(tmp_path / "quantized", recipe, tmp_path)) == [
        "2: l.0.gate.weight: AllowA4 of nvfp4 needs an activation_input_divisor for l.0.mlp: give it in a [[use]]"
    ]
    given = recipe + "auxiliaries = { activation_input_divisor = 8 }\n"
    assert ids(convert(tmp_path / "quantized", given, tmp_path)) == ["weight/000000", "auxiliary/000000"]
