"""Conversions of encoded checkpoints that are refused: the ways out that are named, and that they are ways out."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ninfer_convert.errors import SourceError
from tests.oracle import encoded as oracle
from tests.oracle import layouts, safetensors
from tests.oracle.scalars import BF16
from tests.pipeline.encoded import GOLDEN, LAYER, assign, bound, checkpoint, convert, made, refused, written
from tests.sources.modules import module, numbers
from tests.sources.weights import Array, tensor


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
