"""Whole conversions of already quantized checkpoints: words kept and values decoded."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ninfer_convert.pipeline.compare import compare
from ninfer_convert.pipeline.run import Running
from tests.oracle import container, layouts, objects, safetensors
from tests.oracle import encoded as oracle
from tests.pipeline.encoded import (
    GOLDEN,
    LAYER,
    assign,
    bound,
    checkpoint,
    convert,
    made,
    object_of,
    planned,
    refused,
    written,
)
from tests.sources.modules import module, numbers
from tests.sources.weights import Array, tensor


def nvfp4_object(packed: Array, scales: Array, divisors: list[int]) -> bytes:
    codes = oracle.nibbles(packed)
    content = layouts.Content(codes.tolist(), scales.tolist(), divisors)
    return layouts.encode("nvfp4", (codes.shape[0], codes.shape[1]), content)


# The recipe import


@pytest.mark.parametrize(
    ("folder", "formats"),
    [
        ("ct_nvfp4", {"nvfp4": 7}),
        ("ct_nvfp4_misfit", {"bf16": 3}),
        ("ct_fp8_channel", {"fp8_e4m3fn_row_bf16": 4}),
        ("ct_fp8_tensor", {"fp8_e4m3fn_row_bf16": 7}),
        ("ct_fp8_f16", {"fp8_e4m3fn_row_fp16": 7}),
        ("ct_fp8_channel_f32", {"bf16": 7}),
        ("ct_fp8_block", {"bf16": 2}),
        ("ct_mxfp4", {"bf16": 1}),
        ("ct_w4a16", {"bf16": 1}),
        ("hf_fp8_block", {"bf16": 2}),
        ("modelopt_nvfp4", {"nvfp4": 6}),
        ("modelopt_fp8", {"bf16": 6}),
    ],
)
def test_import_keeps_words_where_that_is_exact_and_values_elsewhere(
    folder: str, formats: Mapping[str, int], tmp_path: Path
) -> None:
    input = checkpoint(folder, tmp_path)
    artifact = convert(input, "import", tmp_path)
    expected = load_file(GOLDEN / folder / "expected.safetensors")
    assert Counter(bound(artifact, name)[0] for name in expected) == formats
    plan = planned(input, "import", tmp_path)
    decoded = formats.get("bf16", 0)
    encoded = {name: count for name, count in plan.resolution.defaults_applied.items() if name != "F16"}
    assert sum(encoded.values()) == decoded
    tensors = safetensors.read((input / "model.safetensors").read_bytes())
    for name, values in expected.items():
        format, data = bound(artifact, name)
        record = made(artifact, name)
        assert record["method"] == ("cast_direct" if format == "bf16" else "import_encoded")
        assert set(record["tensors"]) == {
            tensor for tensor in tensors if tensor.startswith(name.removesuffix("weight"))
        }
        if format == "bf16":
            assert data == objects.bf16(values), name
        elif format == "nvfp4":
            packed, scales = (
                np.frombuffer(tensors[found][2], np.uint8).reshape(values.shape[0], -1)
                for found in (name if folder == "modelopt_nvfp4" else f"{name}_packed", f"{name}_scale")
            )
            assert data == nvfp4_object(packed, scales, [divisor_word(tensors, name)]), name
        else:
            assert data[: values.size] == tensors[name][2] or format.endswith("fp16")
    plain = [name for name in artifact.directory["bindings"] if name not in expected]
    assert all(made(artifact, name)["method"] == "cast_direct" for name in plain)


def divisor_word(tensors: Mapping[str, safetensors.Tensor], name: str) -> int:
    if f"{name}_global_scale" in tensors:
        return int.from_bytes(tensors[f"{name}_global_scale"][2], "little")
    (multiplier,) = struct.unpack("<f", tensors[f"{name}_scale_2"][2])
    return int.from_bytes(struct.pack("<f", 1 / multiplier), "little")


@pytest.mark.parametrize("folder", ["ct_nvfp4", "ct_fp8_channel", "ct_fp8_tensor", "ct_fp8_f16", "modelopt_nvfp4"])
def test_an_import_compares_as_identical_words(folder: str, tmp_path: Path) -> None:
    input = checkpoint(folder, tmp_path)
    convert(input, "import", tmp_path)
    result = compare(tmp_path / "a.ninfer", input, jobs=2)
    assert (result.only_in_a, result.only_in_b, result.shapes) == ((), (), ())
    encoded = [each for each in result.parameters if each.reference in ("NVFP4", "FP8_ROW", "FP8_TENSOR")]
    assert len(encoded) in (4, 6, 7)
    assert all(each.identical and each.metrics.max == 0 for each in encoded)
    assert result.identical == (folder != "ct_fp8_f16")


def test_the_bytes_do_not_depend_on_pieces_or_threads(tmp_path: Path) -> None:
    for folder in ("ct_nvfp4", "ct_w4a16", "hf_fp8_block"):
        input = checkpoint(folder, tmp_path)
        whole = convert(input, "import", tmp_path)
        small = convert(input, "import", tmp_path, running=Running(jobs=3, memory=3 << 19, force=True))
        assert (small.payload, small.artifact_id) == (whole.payload, whole.artifact_id)


def test_both_dialects_give_artifacts_that_compare_as_identical(tmp_path: Path) -> None:
    """Field fault R31: a multiplier in one, a divisor in the other."""
    rng = np.random.default_rng(0)
    codes, scales = rng.integers(0, 256, (128, 64), np.uint8), rng.integers(0, 0x7F, (128, 8), np.uint8)
    scale = tensor(scales, "F8_E4M3")
    modelopt = module("a", weight=tensor(codes), weight_scale=scale, weight_scale_2=numbers("F32", (), 2.0**-9))
    packed = module("a", weight_packed=tensor(codes), weight_scale=scale, weight_global_scale=numbers("F32", (1,), 512))
    for name, tensors in (("m", modelopt), ("c", packed)):
        convert(written(tmp_path / name, tensors), "import", tmp_path, f"{name}.ninfer")
    assert compare(tmp_path / "m.ninfer", tmp_path / "c.ninfer").identical
    assert compare(tmp_path / "m.ninfer", tmp_path / "c").identical
    one, other = (container.read(tmp_path / f"{name}.ninfer") for name in "mc")
    assert one.payload == other.payload == nvfp4_object(codes, scales, [0x44000000])


def test_rounding_where_nothing_is_rounded_is_recorded_as_none(tmp_path: Path) -> None:
    input = checkpoint("ct_fp8_channel", tmp_path)
    name = f"{LAYER}.mlp.down_proj.weight"
    says = {"format": "fp8_e4m3fn_row_bf16", "method": "import_encoded", "parameters": "round_scales = true"}
    artifact = convert(input, assign(name, **says), tmp_path)
    assert made(artifact, name)["largest_scale_change"] == "0.000000e+00"
    plain = convert(input, "import", tmp_path)
    assert bound(artifact, name) == bound(plain, name)
    assert "largest_scale_change" not in made(plain, name)


def test_the_encoding_is_part_of_the_provenance(tmp_path: Path) -> None:
    """Field fault R25: a block of 128 x 128 is told; a rounded reciprocal too (encoded-sources.md 5.1)."""
    blocks = convert(checkpoint("hf_fp8_block", tmp_path), "import", tmp_path)
    record = made(blocks, f"{LAYER}.self_attn.q_proj.weight")
    assert record["encodings"] == ["FP8_BLOCK: weight_scale_inv F32, blocks of [128, 128]"]
    assert record["stored"] == ["F8_E4M3", "F32"]
    modelopt = convert(checkpoint("modelopt_nvfp4", tmp_path), "import", tmp_path)
    name = f"{LAYER}.mlp.up_proj.weight"
    assert made(modelopt, name)["notes"] == [f"divisors are reciprocals of {name}_scale_2, within 2^-24"]


def test_rows_of_a_weight_keep_their_divisor(tmp_path: Path) -> None:
    input = checkpoint("ct_nvfp4", tmp_path)
    name = f"{LAYER}.mlp.up_proj.weight"
    text = '[[assign]]\nselect = "*up_proj.weight"\nrows = [0, 128]\nformat = "bf16"\n'
    artifact = convert(input, text, tmp_path)
    first, second = artifact.directory["bindings"][name]["parts"]
    tensors = safetensors.read((input / "model.safetensors").read_bytes())
    packed, scales = (np.frombuffer(tensors[f"{name}_{part}"][2], np.uint8) for part in ("packed", "scale"))
    expected = nvfp4_object(packed.reshape(256, -1)[128:], scales.reshape(256, -1)[128:], [divisor_word(tensors, name)])
    assert artifact.object_bytes(second["object"]) == expected
    values = oracle.nvfp4(packed.reshape(256, -1)[:2], scales.reshape(256, -1)[:2], divisor(tensors, name), False)
    assert artifact.object_bytes(first["object"])[: 2 * values.size] == objects.bf16(values.view(np.float32))


def divisor(tensors: Mapping[str, safetensors.Tensor], name: str) -> float:
    (number,) = struct.unpack("<f", tensors[f"{name}_global_scale"][2])
    return float(number)


def test_a_bank_keeps_the_divisor_of_each_matrix(tmp_path: Path) -> None:
    """Field fault R33: three experts with scales 1e-3, 1 and 1e3 in one tensor."""
    rng = np.random.default_rng(2)
    codes, scales = rng.integers(0, 256, (3, 128, 32), np.uint8), rng.integers(0, 0x7F, (3, 128, 4), np.uint8)
    factors = np.array([1e-3, 1.0, 1e3], np.float32)
    tensors = {
        "experts.up_proj": tensor(codes),
        "experts.up_proj_weight_scale": tensor(scales, "F8_E4M3"),
        "experts.up_proj_weight_scale_2": tensor(factors),
    }
    input = written(tmp_path / "m", tensors)
    artifact = convert(input, "import", tmp_path)
    words = [int.from_bytes(struct.pack("<f", 1 / float(factor)), "little") for factor in factors]
    (record,) = artifact.directory["objects"]
    assert (record["divisors"], record["shape"]) == (3, [384, 64])
    assert bound(artifact, "experts.up_proj")[1] == nvfp4_object(codes.reshape(384, -1), scales.reshape(384, -1), words)
    assert compare(tmp_path / "a.ninfer", input).identical


def test_mxfp4_of_whole_tiles_becomes_nvfp4_exactly(tmp_path: Path) -> None:
    """encoded-sources.md 9.4, end to end: the fixture's 64 rows twice."""
    tensors = safetensors.read((GOLDEN / "ct_mxfp4" / "model.safetensors").read_bytes())
    name = f"{LAYER}.self_attn.q_proj.weight"
    packed, scales = (np.frombuffer(tensors[f"{name}_{part}"][2], np.uint8) for part in ("packed", "scale"))
    twice = [np.concatenate([part.reshape(64, -1)] * 2) for part in (packed, scales)]
    input = written(tmp_path / "m", module("a", weight_packed=tensor(twice[0]), weight_scale=tensor(twice[1])))
    artifact = convert(input, "import", tmp_path)
    assert bound(artifact, "a.weight")[0] == "nvfp4"
    result = compare(tmp_path / "a.ninfer", input)
    assert result.identical
    assert result.parameters[0].metrics.max == 0
    floats = convert(input, assign("*", format="fp32"), tmp_path, "f.ninfer")
    expected = np.concatenate([load_file(GOLDEN / "ct_mxfp4" / "expected.safetensors")[name]] * 2)
    assert bound(floats, "a.weight")[1] == expected.tobytes()
    assert compare(tmp_path / "a.ninfer", tmp_path / "f.ninfer").total.max == 0


# Parents and uses (qwen35.md 3 and 4.3)


def group(*members: str) -> str:
    return f"[[group]]\nselect = {json.dumps([f'{LAYER}.{member}.weight' for member in members])}\n"


def use(member: str, policy: str = "AllowA4") -> str:
    name = f"{LAYER}.{member}.weight"
    return f'[[use]]\nparameter = "{name}"\ninput = "x/{member}"\nactivation_policy = "{policy}"\n'


def test_a_parent_of_matrices_quantized_apart_keeps_both_divisors(tmp_path: Path) -> None:
    input = checkpoint("ct_nvfp4", tmp_path)
    text = (
        group("mlp.gate_proj", "mlp.up_proj")
        + group("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
        + use("mlp.gate_proj")
        + use("mlp.up_proj")
        + use("self_attn.o_proj")
    )
    artifact = convert(input, text, tmp_path)
    records = {record["id"]: record for record in artifact.directory["objects"]}
    parents = {
        name: records[object_of(artifact, f"{LAYER}.{name}.weight")] for name in ("mlp.gate_proj", "self_attn.q_proj")
    }
    assert (parents["mlp.gate_proj"]["shape"], parents["mlp.gate_proj"]["divisors"]) == ([512, 128], 2)
    assert (parents["self_attn.q_proj"]["shape"], parents["self_attn.q_proj"].get("divisors", 1)) == ([512, 128], 1)
    # Both matrices decode to their sources, word for word.
    assert compare(tmp_path / "a.ninfer", input).identical
    taken = {
        each["parameter"].split(".")[-2]: struct.unpack("<f", artifact.object_bytes(divisor["object"]))[0]
        for each in artifact.directory["uses"]
        for divisor in [each["auxiliaries"]["activation_input_divisor"]]
    }
    tensors = safetensors.read((input / "model.safetensors").read_bytes())
    stored = {
        name.split(".")[-2]: struct.unpack("<f", data)[0]
        for name, (_, _, data) in tensors.items()
        if name.endswith("input_global_scale")
    }
    smallest = min(stored["gate_proj"], stored["up_proj"])
    assert stored["gate_proj"] != stored["up_proj"]
    assert taken == {"gate_proj": smallest, "up_proj": smallest, "o_proj": stored["o_proj"]}
    # What a use takes is not kept in the provenance as well.
    kept = artifact.directory["provenance"]["activation_scales"]
    assert sorted(name.split(".")[-2] for name in kept) == ["down_proj", "k_proj", "q_proj", "v_proj"]


def test_a_four_bit_use_of_a_weight_without_a_divisor_is_an_error(tmp_path: Path) -> None:
    tensors = module(
        "model.layers.0.mlp.up_proj",
        weight_packed=numbers("U8", (128, 32), 0),
        weight_scale=("F8_E4M3", (128, 4), bytes(512)),
        weight_global_scale=numbers("F32", (1,), 1.0),
    )
    input = written(tmp_path / "m", tensors)
    (problem,) = refused(input, use("mlp.up_proj"), tmp_path).problems
    assert "divisor" in problem.message
    convert(input, use("mlp.up_proj", "AllowA8"), tmp_path)
