"""Whole conversions of already quantized checkpoints: words kept, values decoded, what is refused and how to go on."""

from __future__ import annotations

import json
import shutil
import struct
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ninfer_convert.errors import NinferConvertError, SourceError
from ninfer_convert.pipeline.compare import compare
from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.planned import Plan, Shaping
from ninfer_convert.pipeline.run import Running, run
from ninfer_convert.pipeline.verify import verify
from tests.oracle import container, layouts, objects, safetensors
from tests.oracle import encoded as oracle
from tests.oracle.scalars import BF16
from tests.sources.modules import module, numbers
from tests.sources.weights import Array, tensor

GOLDEN = Path(__file__).parent.parent / "golden" / "encoded"
LAYER = "model.layers.0"


def checkpoint(folder: str, into: Path) -> Path:
    """A peer's checkpoint without what the peer decoded it to."""
    return shutil.copytree(GOLDEN / folder, into / folder, ignore=shutil.ignore_patterns("expected*", "ct_div*"))


def written(folder: Path, tensors: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(safetensors.build(tensors))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def recipe(folder: Path, text: str) -> str:
    path = folder / "recipe.toml"
    path.write_text(f'schema = 1\nname = "t"\n{text}', encoding="utf-8")
    return str(path)


def assign(select: str, **says: Any) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in says.items() if key != "parameters"]
    lines += [f"parameters = {{ {says['parameters']} }}"] if "parameters" in says else []
    return "\n".join(["[[assign]]", f'select = "{select}"', *lines, ""])


def planned(input: Path, text: str, folder: Path, **shaping: Any) -> Plan:
    """The plan of `input` by a built-in recipe, or by a recipe of these lines."""
    return make_plan(str(input), text if "\n" not in text else recipe(folder, text), Shaping(**shaping))


def convert(
    input: Path, text: str, folder: Path, name: str = "a.ninfer", running: Running | None = None, **shaping: Any
) -> container.Container:
    run(planned(input, text, folder, **shaping), folder / name, running or Running(force=True))
    assert verify(str(folder / name)).faults == ()
    return container.read(folder / name)


def refused(input: Path, text: str, folder: Path, **shaping: Any) -> NinferConvertError:
    """The error of a plan or conversion; nothing is left behind."""
    with pytest.raises(NinferConvertError) as caught:
        run(planned(input, text, folder, **shaping), folder / "refused.ninfer", Running())
    assert not list(folder.glob("refused*"))
    return caught.value


def bound(artifact: container.Container, name: str) -> tuple[str, bytes]:
    """Format and bytes of the object that a parameter is bound to."""
    id = object_of(artifact, name)
    (record,) = (record for record in artifact.directory["objects"] if record["id"] == id)
    return record["format"], artifact.object_bytes(id)


def object_of(artifact: container.Container, name: str) -> str:
    binding = artifact.directory["bindings"][name]
    id: str = binding["object"] if "object" in binding else binding["parts"][0]["object"]
    return id


def made(artifact: container.Container, name: str) -> dict[str, Any]:
    """The provenance of a parameter's object."""
    record: dict[str, Any] = artifact.directory["provenance"]["objects"][object_of(artifact, name)]
    return record


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


# Formats that an assign gives


@pytest.mark.parametrize(
    ("module", "rule"), [("self_attn.q_proj", "N=64"), ("self_attn.k_proj", "N=192"), ("mlp.down_proj", "K=48")]
)
def test_nvfp4_that_does_not_fit_its_layout_names_the_rule(module: str, rule: str, tmp_path: Path) -> None:
    input = checkpoint("ct_nvfp4_misfit", tmp_path)
    name = f"{LAYER}.{module}.weight"
    text = assign(f"{LAYER}.*_proj.weight", format="bf16") + assign(name, format="nvfp4")
    (problem,) = refused(input, text, tmp_path).problems
    assert (problem.code, problem.tensor) == ("misfit", name)
    assert rule in problem.message
    kept = convert(
        input, assign("*_proj.weight", format="bf16") + assign(name, format="nvfp4", misfit="bf16"), tmp_path
    )
    assert bound(kept, name)[0] == "bf16"


@pytest.mark.parametrize("folder", ["ct_fp8_channel_f32", "modelopt_fp8", "ct_fp8_f16"])
def test_scales_that_are_no_bfloat16_values_are_refused_with_the_ways_out(folder: str, tmp_path: Path) -> None:
    """Field fault R43: never rounded in silence."""
    input = checkpoint(folder, tmp_path)
    text = (
        '[[assign]]\nselect = "*_proj.weight"\nwhere = { dtype = ["FP8_ROW", "FP8_TENSOR"] }\n'
        'format = "fp8_e4m3fn_row_bf16"\nmethod = "import_encoded"\n'
    )
    rest = '[defaults]\nF16 = "fp32"\n'
    problems = refused(input, text + rest, tmp_path).problems
    expected = load_file(GOLDEN / folder / "expected.safetensors")
    assert sorted(str(problem.tensor) for problem in problems) == sorted(expected)
    for problem in problems:
        assert f"{problem.tensor}_scale: scale 0x" in problem.message
        assert "is not representable in BF16" in problem.message
        assert "use decoded values or the rounding method (round_scales = true)" in problem.message
        assert problem.line == 3
    rounded = convert(input, text + "parameters = { round_scales = true }\n" + rest, tmp_path)
    tensors = safetensors.read((input / "model.safetensors").read_bytes())
    for name, values in expected.items():
        _, data = bound(rounded, name)
        kind, _, stored = tensors[f"{name}_scale"]
        words = np.frombuffer(stored, "<u2" if kind == "F16" else "<u4").tolist()
        scales = [oracle.scale(word, kind) for word in words]
        near = [BF16.nearest(scale) for scale in scales]
        each = near if len(near) > 1 else near * values.shape[0]
        codes: Array = np.frombuffer(tensors[name][2], np.uint8).reshape(values.shape)
        assert data == layouts.encode("fp8_e4m3fn_row_bf16", values.shape, layouts.Content(codes.tolist(), each))
        record = made(rounded, name)
        assert record["method_parameters"] == {"round_scales": True}
        change = max(abs(BF16.value(word) - scale) / scale for word, scale in zip(near, scales, strict=True))
        assert record["largest_scale_change"] == f"{float(change):.6e}"


def test_rounding_where_nothing_is_rounded_is_recorded_as_none(tmp_path: Path) -> None:
    input = checkpoint("ct_fp8_channel", tmp_path)
    name = f"{LAYER}.mlp.down_proj.weight"
    says = {"format": "fp8_e4m3fn_row_bf16", "method": "import_encoded", "parameters": "round_scales = true"}
    artifact = convert(input, assign(name, **says), tmp_path)
    assert made(artifact, name)["largest_scale_change"] == "0.000000e+00"
    plain = convert(input, "import", tmp_path)
    assert bound(artifact, name) == bound(plain, name)
    assert "largest_scale_change" not in made(plain, name)


@pytest.mark.parametrize(
    ("folder", "module", "format", "message"),
    [
        ("ct_fp8_block", "mlp.up_proj", "fp8_e4m3fn_row_bf16", "128x128 block FP8 offers decoded values only"),
        ("hf_fp8_block", "self_attn.q_proj", "fp8_e4m3fn_row_fp16", "128x128 block FP8 offers decoded values only"),
        ("ct_w4a16", "self_attn.k_proj", "q8_g32_fp16", "INT4_PACKED offers decoded values only"),
        ("ct_nvfp4", "mlp.up_proj", "t2_g128_fp16", "it can be imported as nvfp4, not as t2_g128_fp16"),
    ],
)
def test_what_no_import_reaches(folder: str, module: str, format: str, message: str, tmp_path: Path) -> None:
    name = f"{LAYER}.{module}.weight"
    text = assign("*_proj.weight", format="bf16") + assign(name, format=format, method="import_encoded")
    (problem,) = refused(checkpoint(folder, tmp_path), text, tmp_path).problems
    assert (problem.code, problem.tensor) == ("cannot-convert", name)
    assert message in problem.message


@pytest.mark.parametrize("folder", ["ct_fp8_block", "hf_fp8_block", "ct_w4a16", "ct_mxfp4", "modelopt_nvfp4"])
def test_quantizing_again_is_asked_for_and_works_on_the_decoded_values(folder: str, tmp_path: Path) -> None:
    """Field faults R25 and R38: the same bytes as from the decoded values in float32."""
    input = checkpoint(folder, tmp_path)
    expected = {
        name: decoded_by_rule(folder, name, values)
        for name, values in load_file(GOLDEN / folder / "expected.safetensors").items()
    }
    text = assign("*_proj.weight", format="q4_g64_fp16")
    problems = refused(input, text, tmp_path).problems
    assert {problem.code for problem in problems} == {"requantize"}
    assert all("requantize" in problem.message for problem in problems)
    artifact = convert(input, text, tmp_path, requantize=True)
    floats = written(tmp_path / "f32", {name: tensor(values) for name, values in expected.items()})
    plain = convert(floats, text, tmp_path)
    for name in expected:
        assert bound(artifact, name) == bound(plain, name)
        assert made(artifact, name)["encodings"] != []
        assert "encodings" not in made(plain, name)


def decoded_by_rule(folder: str, name: str, expected: Array) -> Array:
    """ModelOpt rounds NVFP4 values twice, the rule once."""
    if folder != "modelopt_nvfp4":
        return expected
    tensors = safetensors.read((GOLDEN / folder / "model.safetensors").read_bytes())
    packed, scales = (
        np.frombuffer(tensors[found][2], np.uint8).reshape(len(expected), -1) for found in (name, f"{name}_scale")
    )
    (multiplier,) = struct.unpack("<f", tensors[f"{name}_scale_2"][2])
    return oracle.nvfp4(packed, scales, multiplier, True).view(np.float32)


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


def test_a_word_that_does_not_fit_is_told_by_convert(tmp_path: Path) -> None:
    scales = np.full((128, 4), 0x38, np.uint8)
    scales[100, 3] = 0xFF
    tensors = module(
        "a",
        weight_packed=tensor(np.zeros((128, 32), np.uint8)),
        weight_scale=tensor(scales, "F8_E4M3"),
        weight_global_scale=numbers("F32", (1,), 1.0),
    )
    error = refused(written(tmp_path / "m", tensors), "import", tmp_path)
    assert isinstance(error, SourceError)
    assert error.problems[0].message == "a.weight_scale: block scale word 0xFF at [100,3] is negative or NaN"


def test_exponents_are_never_read_as_scales_of_nvfp4(tmp_path: Path) -> None:
    """ct_mxfp4 with its scale bytes called E4M3, without a global scale and with one."""
    tensors = safetensors.read((GOLDEN / "ct_mxfp4" / "model.safetensors").read_bytes())
    name = f"{LAYER}.self_attn.q_proj.weight"
    taken: dict[str, Any] = module(
        "a", weight_packed=tensors[f"{name}_packed"], weight_scale=("F8_E4M3", (64, 2), tensors[f"{name}_scale"][2])
    )
    for more, says in (
        ({}, "a.weight: has no weight_global_scale"),
        (
            {"a.weight_global_scale": numbers("F32", (1,), 1.0)},
            "a.weight: weight_scale is [64, 2], where [64, 4] was expected",
        ),
    ):
        (problem,) = refused(written(tmp_path / "m", {**taken, **more}), "import", tmp_path).problems
        assert problem.message == says


# Companions, orphans, what cannot be read


def test_activation_scales_go_into_the_provenance_with_one_line(tmp_path: Path) -> None:
    """Field fault R27: no abort, nothing multiplied into the weight."""
    input = checkpoint("ct_fp8_tensor", tmp_path)
    plan = planned(input, "import", tmp_path)
    (warning,) = [warning for warning in plan.warnings if warning.code == "activation-scales"]
    assert warning.message.startswith("7 activation scales kept in the provenance, as no use takes them: ")
    kept = plan.directory.provenance["activation_scales"]
    tensors = safetensors.read((input / "model.safetensors").read_bytes())
    stored = {
        name: float(oracle.scale(int.from_bytes(data, "little"), "BF16"))
        for name, (_, _, data) in tensors.items()
        if name.endswith("input_scale")
    }
    assert {f"{name.removesuffix('input_scale')}weight": {name: value} for name, value in stored.items()} == kept


def test_activation_scales_that_are_no_numbers_are_spelled_out(tmp_path: Path) -> None:
    tensors = module(
        "a",
        weight=("F8_E4M3", (2, 2), b"\x38" * 4),
        weight_scale=numbers("F32", (), 1.0),
        input_scale=numbers("F32", (3,), float("nan"), float("inf"), 0.5),
    )
    artifact = convert(written(tmp_path / "m", tensors), "import", tmp_path)
    assert artifact.directory["provenance"]["activation_scales"] == {"a.weight": {"a.input_scale": ["nan", "inf", 0.5]}}


def test_scales_of_a_key_value_cache_are_left_out_with_one_line(tmp_path: Path) -> None:
    tensors = {
        "l.k_scale": numbers("F32", (), 1.0),
        "l.v_scale": numbers("F32", (), 1.0),
        "l.weight": numbers("F32", (2,), 1.0),
    }
    plan = planned(written(tmp_path / "m", tensors), "import", tmp_path)
    messages = [warning.message for warning in plan.warnings if warning.code == "source-note"]
    assert messages == ["2 tensors left out, scale of a key/value cache: l.k_scale, l.v_scale"]
    skipped = plan.directory.provenance["skipped"]
    assert [entry["name"] for entry in skipped] == ["l.k_scale", "l.v_scale"]


ORPHANS = {
    "a.weight_scale": numbers("F32", (1,), 1.0),
    "b.weight_scale": numbers("F32", (1,), 2.0),
    "c.weight": numbers("F32", (2, 2), 1.0),
}


def test_orphans_are_an_error_unless_the_recipe_names_them(tmp_path: Path) -> None:
    input = written(tmp_path / "m", ORPHANS)
    (problem,) = refused(input, "import", tmp_path).problems
    assert problem.code == "orphan"
    assert "2 weight_scale tensors without a weight to belong to: a.weight_scale, b.weight_scale" in problem.message
    skip = '[[skip]]\nselect = "{}"\nreason = "left over"\n'
    (problem,) = refused(input, skip.format("a.*"), tmp_path).problems
    assert "1 weight_scale tensor without a weight to belong to: b.weight_scale" in problem.message
    both = convert(input, skip.format("?.weight_scale"), tmp_path)
    assert list(both.directory["bindings"]) == ["c.weight"]
    assert [entry["reason"] for entry in both.directory["provenance"]["skipped"]] == ["left over"] * 2
    named = convert(input, skip.format("a.*") + assign("b.weight_scale", format="fp32"), tmp_path)
    assert bound(named, "b.weight_scale") == ("fp32", struct.pack("<f", 2.0))
    (problem,) = refused(input, assign("*.weight_scale", format="fp32"), tmp_path).problems
    assert problem.code == "orphan"


def test_orphans_are_named_as_rename_calls_them(tmp_path: Path) -> None:
    input = written(tmp_path / "m", ORPHANS)
    rename = '[[rename]]\nmatch = "(.)\\\\.weight_scale"\nto = "scales/\\\\1"\n'
    text = rename + '[[skip]]\nselect = "scales/a"\nreason = "x"\n' + assign("scales/b", format="fp32")
    assert list(convert(input, text, tmp_path).directory["bindings"]) == ["c.weight", "scales/b"]


def test_weights_that_cannot_be_read_may_be_skipped(tmp_path: Path) -> None:
    tensors = {
        **module("a", W_q=numbers("U8", (2, 4), 1), zero=numbers("F16", (2, 1), 1)),
        **module("b", weight=("F8_E4M3", (2, 2), bytes(4))),
        **module("c", weight=numbers("F32", (2, 2), 1.0)),
    }
    input = written(tmp_path / "m", tensors)
    problems = refused(input, "import", tmp_path).problems
    assert [(problem.code, problem.tensor) for problem in problems] == [
        ("encoded", "a.weight"),
        ("bad-encoding", "b.weight"),
    ]
    assert problems[1].message == "b.weight: F8_E4M3 weight without a scale"
    artifact = convert(input, '[[skip]]\nselect = "{a,b}.weight"\nreason = "unreadable"\n', tmp_path)
    assert list(artifact.directory["bindings"]) == ["c.weight"]
    assert artifact.directory["provenance"]["skipped"] == [
        {"name": "a.weight", "tensors": ["a.W_q", "a.zero"], "reason": "unreadable"},
        {"name": "b.weight", "tensors": ["b.weight"], "reason": "unreadable"},
    ]


def test_a_bad_scale_of_a_skipped_weight_is_nobodys_concern(tmp_path: Path) -> None:
    tensors = {
        **module(
            "a",
            weight_packed=numbers("U8", (128, 32), 0),
            weight_scale=("F8_E4M3", (128, 4), bytes(512)),
            weight_global_scale=numbers("F32", (1,), 0.0),
        ),
        "b.weight": numbers("F32", (2,), 1.0),
    }
    input = written(tmp_path / "m", tensors)
    (problem,) = refused(input, "import", tmp_path).problems
    assert problem.message == "a.weight_global_scale: global scale must be finite and positive"
    convert(input, '[[skip]]\nselect = "a.*"\nreason = "x"\n', tmp_path)


def test_every_bad_scale_is_told_at_once(tmp_path: Path) -> None:
    tensors: dict[str, Any] = {}
    for name in "abc":
        tensors |= module(name, weight=("F8_E4M3", (2, 2), bytes(4)), weight_scale=numbers("F32", (1,), float("inf")))
    problems = refused(written(tmp_path / "m", tensors), "import", tmp_path).problems
    assert [problem.tensor for problem in problems] == ["a.weight_scale", "b.weight_scale", "c.weight_scale"]


def test_many_types_in_one_file(tmp_path: Path) -> None:
    """Field fault R42: what has no values is named all at once; nothing is taken for plain numbers."""
    tensors: dict[str, Any] = {
        f"{dtype.lower()}.weight": safetensors.tensor(dtype, (2, 4))
        for dtype in ("F8_E4M3", "F8_E5M2", "BF16", "F16", "F32", "F64", "I64", "U8", "BOOL")
    }
    problems = refused(written(tmp_path / "m", tensors), "import", tmp_path).problems
    assert [(problem.code, problem.message) for problem in problems] == [
        ("bad-encoding", f"{dtype.lower()}.weight: {dtype} weight without a scale")
        for dtype in ("F8_E4M3", "F8_E5M2", "U8")
    ]


def test_names_of_encodings_filter(tmp_path: Path) -> None:
    input = checkpoint("ct_fp8_tensor", tmp_path)
    text = (
        '[[assign]]\nselect = "*"\nwhere = { dtype = "FP8_TENSOR" }\nformat = "fp32"\n'
        '[[assign]]\nselect = "*up_proj.weight"\nwhere = { dtype = "encoded", rank = 2 }\nformat = "bf16"\n'
    )
    artifact = convert(input, text, tmp_path)
    formats = Counter(bound(artifact, name)[0] for name in load_file(GOLDEN / "ct_fp8_tensor" / "expected.safetensors"))
    assert formats == {"fp32": 6, "bf16": 1}


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
