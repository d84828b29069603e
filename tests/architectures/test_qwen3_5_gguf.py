"""GGUFs of Qwen3.5 models under logical names: what the exporter did to values, undone (8)."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ninfer_convert import compare, convert
from ninfer_convert.architectures import Request
from ninfer_convert.errors import RecipeError, SourceError
from tests.architectures import llama_cpp, small
from tests.architectures.building import build, refusal
from tests.architectures.small_gguf import arrays, write
from tests.oracle import binder, container

if TYPE_CHECKING:
    from ninfer_convert.architectures import Model

KINDS = {
    "dense": small.Kind(),
    "dense, tied": small.Kind(tied=True),
    "experts": small.Kind(experts=True, fused=True),
}


def model_of(folder: Path) -> Model:
    return build(folder / "m.gguf")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_each_parameter_is_its_part_of_the_model(tmp_path: Path, kind: small.Kind) -> None:
    expected = small.expected(kind, write(tmp_path, kind))
    model = model_of(tmp_path)
    assert model.architecture == "qwen3_5"
    safetensors = tmp_path / "safetensors"
    small.write(safetensors, kind)
    assert [p.name for p in model.parameters] == [p.name for p in build(safetensors).parameters]
    for parameter in model.parameters:
        array = expected[parameter.name]
        assert parameter.shape == array.shape, parameter.name
        values = parameter.source.values(0, prod(array.shape)).array
        if parameter.name.endswith("a_log"):
            assert np.allclose(values, array.reshape(-1), rtol=1e-6, atol=1e-7)
        else:
            assert values.tolist() == array.reshape(-1).tolist(), parameter.name


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_names_uses_groups_and_formats_are_those_of_safetensors(tmp_path: Path, kind: small.Kind) -> None:
    write(tmp_path, kind)
    small.write(tmp_path / "safetensors", kind)
    ours, theirs = model_of(tmp_path), build(tmp_path / "safetensors")
    for a, b in zip(ours.parameters, theirs.parameters, strict=True):
        assert (a.name, a.uses, a.direct, a.locked, a.importance) == (b.name, b.uses, b.direct, b.locked, b.importance)
    assert ours.groups == theirs.groups
    assert ours.components == theirs.components
    assert [resource.role for resource in ours.resources] == [resource.role for resource in theirs.resources]


def test_blocks_are_kept_where_no_assign_speaks(tmp_path: Path) -> None:
    write(tmp_path, KINDS["dense"], blocks=True)
    kept = set()
    for parameter in model_of(tmp_path).parameters:
        if parameter.stored == "Q8_0" and parameter.locked is None:
            assert (parameter.direct, parameter.identical) == (None, "gguf_q8_0")
            kept.add(parameter.name)
        else:
            assert parameter.direct == ("fp32" if parameter.name.endswith(("a_log", "dt_bias")) else "bf16")
    assert "text/layers/0/gdn/output" in kept
    assert "text/layers/0/gdn/a_projection" not in kept


def test_an_artifact_of_a_ggufs_own_blocks(tmp_path: Path) -> None:
    """The output of a linear layer keeps its words, and its use says how the columns stand."""
    for name, kind in (("dense", KINDS["dense"]), ("experts", KINDS["experts"])):
        folder = tmp_path / name
        write(folder, kind, blocks=True)
        convert(folder / "m.gguf", "gguf", folder / "a.ninfer")
        bound = binder.load(folder / "a.ninfer")
        held = container.read(folder / "a.ninfer")
        heads = np.arange(small.NV * small.DV).reshape(small.NK, llama_cpp.R, small.DV)
        stored_order = heads.swapaxes(0, 1).reshape(-1)
        objects = set()
        for (parameter, _), use in bound.uses.items():
            if not parameter.endswith("gdn/output"):
                assert use.auxiliaries == {}
                continue
            (piece,) = use.auxiliaries["input_columns"]
            objects.add(piece.object["id"])
            columns = np.frombuffer(held.object_bytes(piece.object["id"]), "<i4")
            assert columns.tolist() == stored_order.tolist()
        assert len(objects) == 1


def test_another_format_takes_the_columns_in_order(tmp_path: Path) -> None:
    expected = small.expected(KINDS["dense"], write(tmp_path, KINDS["dense"]))
    convert(tmp_path / "m.gguf", "bf16", tmp_path / "a.ninfer")
    bound = binder.load(tmp_path / "a.ninfer")
    held = container.read(tmp_path / "a.ninfer")
    assert all(use.auxiliaries == {} for use in bound.uses.values())
    for name in ("text/layers/0/gdn/output", "text/layers/1/input_norm", "text/layers/2/gdn/convolution"):
        (piece,) = bound.parameters[name]
        words = np.frombuffer(held.object_bytes(piece.object["id"]), "<u2")[piece.begin : piece.end]
        assert (words.astype(np.uint32) << 16).view(np.float32).tolist() == expected[name].reshape(-1).tolist()


def test_a_use_cannot_tell_of_columns_that_differ_from_piece_to_piece(tmp_path: Path) -> None:
    write(tmp_path, KINDS["dense"], blocks=True)
    (tmp_path / "r.toml").write_text(
        'schema = 1\n[[assign]]\nselect = "text/layers/0/gdn/output"\nrows = [0, 64]\nformat = "bf16"\n'
    )
    with pytest.raises(RecipeError) as caught:
        convert(tmp_path / "m.gguf", tmp_path / "r.toml", tmp_path / "a.ninfer")
    assert [(problem.code, problem.line, problem.message) for problem in caught.value.problems] == [
        (
            "cut-columns",
            2,
            "text/layers/0/gdn/output: columns stand otherwise in the pieces that are imported; import all of it, or "
            "none",
        )
    ]


def test_a_recipe_may_tell_of_columns_itself(tmp_path: Path) -> None:
    """What it gives is not replaced; here it is wrong, and refused as every other auxiliary."""
    write(tmp_path, KINDS["dense"], blocks=True)
    (tmp_path / "r.toml").write_text(
        'schema = 1\n[[use]]\nparameter = "text/layers/0/gdn/output"\ninput = "text/layers/0/gdn/gated_output"\n'
        'auxiliaries = { input_columns = "text/final_norm" }\n'
    )
    with pytest.raises(RecipeError, match="input_columns is text/final_norm, stored as bf16; it must be int32"):
        convert(tmp_path / "m.gguf", tmp_path / "r.toml", tmp_path / "a.ninfer")


def test_the_further_block_of_multi_token_prediction_is_passed_by(tmp_path: Path) -> None:
    kind = KINDS["dense"]
    write(tmp_path, kind)
    tensors = llama_cpp.exported(kind, arrays(kind)) | {"blk.4.nextn.enorm.weight": np.zeros(4, np.float32)}
    llama_cpp.write(tmp_path / "m.gguf", llama_cpp.header(kind) | {"qwen35.block_count": 5}, tensors)
    assert model_of(tmp_path).passed_by == {"component mtp is not converted yet": ("blk.4.nextn.enorm.weight",)}


def test_tensors_are_called_by_llama_cpps_names(tmp_path: Path) -> None:
    kind = KINDS["dense"]
    write(tmp_path, kind)
    tensors = llama_cpp.exported(kind, arrays(kind))
    tensors["blk.1.attn_nrom.weight"] = tensors.pop("blk.1.attn_norm.weight")
    tensors["blk.0.ssm_a"] = np.zeros(3, np.float32)
    llama_cpp.write(tmp_path / "m.gguf", llama_cpp.header(kind), tensors)
    assert refusal(tmp_path / "m.gguf") == [
        ("wrong-shape", "blk.0.ssm_a has the shape [3], where config.json makes it [6]"),
        ("missing-tensor", "blk.1.attn_norm.weight is missing; is it blk.1.attn_nrom.weight?"),
        ("unknown-tensor", "blk.1.attn_nrom.weight is no tensor of this model; leave it out with [[skip]]"),
    ]


@pytest.mark.parametrize("key", [key for key in llama_cpp.header(KINDS["experts"]) if not key.startswith("general")])
def test_each_key_value_must_be_that_of_the_config(tmp_path: Path, key: str) -> None:
    kind = KINDS["experts"]
    write(tmp_path, kind)
    header = llama_cpp.header(kind)
    tensors = llama_cpp.exported(kind, arrays(kind))
    llama_cpp.write(tmp_path / "m.gguf", header | {key: 77}, tensors)
    ((code, message),) = refusal(tmp_path / "m.gguf")
    assert (code, message.split(", where")[0]) == ("other-model", f"{key} is 77")
    del header[key]
    llama_cpp.write(tmp_path / "m.gguf", header, tensors)
    ((code, message),) = refusal(tmp_path / "m.gguf")
    assert (code, message.split(", where")[0]) == ("other-model", f"{key} is missing")


def test_without_a_config_it_is_generic(tmp_path: Path) -> None:
    write(tmp_path, KINDS["dense"])
    (tmp_path / "config.json").unlink()
    assert model_of(tmp_path).architecture == "generic"


def test_a_decay_that_has_no_logarithm_is_refused_when_it_is_read(tmp_path: Path) -> None:
    kind = KINDS["dense"]
    write(tmp_path, kind)
    tensors = llama_cpp.exported(kind, arrays(kind)) | {"blk.0.ssm_a": np.ones(small.NV, np.float32)}
    llama_cpp.write(tmp_path / "m.gguf", llama_cpp.header(kind), tensors)
    source = {p.name: p.source for p in model_of(tmp_path).parameters}["text/layers/0/gdn/a_log"]
    with pytest.raises(SourceError, match="has no logarithm of its negative"):
        source.values(0, 6)


def test_it_may_give_parts_beside_another_checkpoint(tmp_path: Path) -> None:
    kind = KINDS["dense"]
    write(tmp_path, kind)
    (tmp_path / "config.json").unlink()
    model = build(tmp_path / "m.gguf", "qwen3_5", Request(main=small.config(kind)))
    assert len(model.parameters) == 59
    assert model.resources == ()


def test_its_artifact_is_compared_word_for_word(tmp_path: Path) -> None:
    write(tmp_path, KINDS["experts"], blocks=True)
    convert(tmp_path / "m.gguf", "gguf", tmp_path / "a.ninfer")
    found = compare(tmp_path / "a.ninfer", tmp_path / "m.gguf")
    assert (found.only_in_a, found.only_in_b, found.shapes) == ((), (), ())
    identical = {parameter.name for parameter in found.parameters if parameter.identical}
    assert {"text/layers/0/gdn/output", "text/layers/0/gdn/value", "text/layers/1/moe/experts/2/up"} <= identical
    assert found.total.sqnr > 70
