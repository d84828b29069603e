"""GGUFs given back: their artifacts of logical parameters, exported like what they were made from (qwen35.md 8)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest

from ninfer_convert import convert, export
from ninfer_convert.errors import ArtifactError, OutputError
from tests.architectures import llama_cpp, small
from tests.architectures.small_gguf import write as write_gguf
from tests.oracle import container
from tests.pipeline.restored import assembled, checkpoint, decoded, recipe, refused, values

if TYPE_CHECKING:
    from tests.architectures.small import Array


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
