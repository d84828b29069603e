"""Every encoding of encoded-sources.md 3 is recognised by its tensors, in every form that tools write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ninfer_convert.formats.stored import STORED_TYPES
from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.config import read_config
from ninfer_convert.sources.encoded import classify
from tests.sources.modules import (
    FP8_BLOCKS,
    HF_BLOCKS,
    NVFP4,
    Member,
    classified,
    compressed_tensors,
    module,
    nf4_state,
    numbers,
    nvfp4,
    only,
)

GOLDEN = Path(__file__).parent.parent / "golden" / "encoded"


# Checkpoints that the peers' own tools wrote


@pytest.mark.parametrize(
    ("folder", "encoding", "modules", "shapes"),
    [
        ("ct_nvfp4", "NVFP4", "q k v o gate up down", {"q": (256, 128), "down": (128, 256)}),
        ("ct_nvfp4_misfit", "NVFP4", "q k down", {"q": (64, 128), "k": (192, 128), "down": (128, 48)}),
        ("ct_fp8_f16", "FP8_ROW", "q k v o gate up down", {}),
        ("ct_fp8_channel", "FP8_ROW", "q k v down", {"q": (128, 128), "k": (64, 128), "down": (128, 192)}),
        ("ct_fp8_channel_f32", "FP8_ROW", "q k v o gate up down", {}),
        ("ct_fp8_tensor", "FP8_TENSOR", "q k v o gate up down", {}),
        ("ct_fp8_block", "FP8_BLOCK", "up down", {"up": (144, 128), "down": (128, 144)}),
        ("ct_mxfp4", "MXFP4", "q", {"q": (64, 64)}),
        ("ct_w4a16", "INT4_PACKED", "k", {"k": (32, 128)}),
        ("hf_fp8_block", "FP8_BLOCK", "q down", {"q": (128, 128), "down": (128, 144)}),
        ("modelopt_nvfp4", "NVFP4", "q k v gate up down", {"q": (128, 128), "gate": (256, 128)}),
        ("modelopt_fp8", "FP8_TENSOR", "q k v gate up down", {}),
    ],
)
def test_the_tools_own_checkpoints(
    folder: str, encoding: str, modules: str, shapes: Mapping[str, Sequence[int]]
) -> None:
    checkpoint = open_checkpoint(GOLDEN / folder)
    found = classify(checkpoint, read_config(checkpoint))
    short = {module.module.split(".")[-1].removesuffix("_proj"): module for module in found.modules}
    assert sorted(short) == sorted(modules.split())
    assert encoding in STORED_TYPES
    assert {module.encoding for module in found.modules} == {encoding}
    assert [module.fault for module in found.modules] == [None] * len(found.modules)
    assert all(module.parameter == f"{module.module}.weight" for module in found.modules)
    for name, shape in shapes.items():
        assert short[name].shape == shape
    assert (found.orphans, found.skipped, found.notes) == ({}, {}, ())
    consumed = [name for module in found.modules for name in module.tensors]
    assert sorted([*consumed, *found.plain]) == sorted(checkpoint.tensors)
    assert not any("scale" in name or "packed" in name for name in found.plain)
    assert found.problems(checkpoint) == []
    order = list(checkpoint.tensors)
    first = {module.parameter: min(map(order.index, module.tensors)) for module in found.modules}
    places = [first[name] if name in first else order.index(name) for name in found.sources]
    assert places == sorted(places)
    assert sorted(found.sources) == sorted([*first, *found.plain])


def test_the_corpus_is_whole() -> None:
    assert len(list(GOLDEN.glob("*/model.safetensors"))) == 12


def test_old_modelopt_exports_have_only_their_own_config(tmp_path: Path) -> None:
    for name in ("model.safetensors", "hf_quant_config.json"):
        (tmp_path / name).write_bytes((GOLDEN / "modelopt_fp8" / name).read_bytes())
    checkpoint = open_checkpoint(tmp_path)
    assert {module.encoding for module in classify(checkpoint, None).modules} == {"FP8_TENSOR"}


# One row of the table each


@pytest.mark.parametrize(
    ("members", "quantization", "encoding", "shape"),
    [
        (
            nvfp4(),
            compressed_tensors(NVFP4),
            "NVFP4",
            (4, 32),
        ),
        ({"weight_packed": ("U8", (4, 32)), "weight_scale": ("U8", (4, 2))}, None, "MXFP4", (4, 64)),
        ({"weight_packed": ("U8", (4, 24)), "weight_scale": ("U8", (4, 1))}, None, "compressed-tensors MXFP6", (4, 32)),
        (
            {
                "weight_packed": ("I32", (4, 4)),
                "weight_scale": ("BF16", (4, 1)),
                "weight_shape": numbers("I64", (2,), 4, 32),
            },
            compressed_tensors({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}),
            "INT4_PACKED",
            (4, 32),
        ),
        (
            {
                "weight_packed": ("I32", (5, 4)),
                "weight_scale": ("BF16", (5, 3)),
                "weight_shape": numbers("I64", (2,), 5, 41),
                "weight_zero_point": ("I32", (1, 3)),
                "weight_g_idx": ("I32", (41,)),
            },
            compressed_tensors({"num_bits": 3, "type": "int", "group_size": 16, "symmetric": False}),
            "INT4_PACKED",
            (5, 41),
        ),
        (
            {
                "weight_packed": ("I32", (4, 8)),
                "weight_scale": ("F32", ()),
                "weight_shape": numbers("I64", (2,), 4, 32),
            },
            None,
            "INT4_PACKED",
            (4, 32),
        ),
        (
            {"weight_packed": ("I32", (4, 4)), "scale_packed": ("F16", (1, 4)), "meta": ("I16", (4, 1))},
            None,
            "compressed-tensors marlin-24",
            None,
        ),
        (
            {"weight": ("U8", (4, 16)), "weight_scale": ("F8_E4M3", (4, 2)), "weight_scale_2": ("F32", ())},
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            "NVFP4",
            (4, 32),
        ),
        ({"weight": ("U8", (4, 32)), "weight_scale": ("U8", (4, 2))}, None, "MXFP4", (4, 64)),
        ({"weight": ("U8", (4, 64)), "weight_scale": ("BF16", (8, 2))}, None, "INT4_PACKED", (8, 64)),
        (
            {"weight": ("U8", (4, 64)), "weight_scale": ("BF16", (8, 2)), "pre_quant_scale": ("BF16", (64,))},
            {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"},
            "INT4_PACKED",
            (8, 64),
        ),
        (
            {
                "weight": ("U8", (4, 16)),
                "weight_scale": ("F8_E4M3", (4, 2)),
                "weight_scale_2": ("F32", ()),
                "pre_quant_scale": ("BF16", (32,)),
            },
            {"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ"},
            "NVFP4",
            (4, 32),
        ),
        ({"weight": ("F8_E4M3", (4, 32)), "weight_scale": ("F32", ())}, None, "FP8_TENSOR", (4, 32)),
        ({"weight": ("F8_E4M3", (4, 32)), "weight_scale": ("BF16", (1, 1))}, None, "FP8_TENSOR", (4, 32)),
        ({"weight": ("F8_E4M3", (4, 32)), "weight_scale": ("F32", (4,))}, None, "FP8_ROW", (4, 32)),
        ({"weight": ("F8_E4M3", (4, 32)), "weight_scale": ("F16", (4, 1))}, None, "FP8_ROW", (4, 32)),
        ({"weight": ("F8_E4M3", (130, 300)), "weight_scale": ("BF16", (2, 3))}, None, "FP8_BLOCK", (130, 300)),
        (
            {"weight": ("F8_E4M3", (256, 64)), "weight_scale": ("BF16", (2, 1))},
            compressed_tensors(FP8_BLOCKS),
            "FP8_BLOCK",
            (256, 64),
        ),
        (
            {"weight": ("F8_E4M3", (64, 64)), "weight_scale": ("BF16", (1, 1))},
            compressed_tensors(FP8_BLOCKS),
            "FP8_BLOCK",
            (64, 64),
        ),
        (
            {"weight": ("F8_E4M3", (8, 8)), "weight_scale": ("F32", (4, 1, 2, 1))},
            compressed_tensors({**FP8_BLOCKS, "block_structure": [2, 4]}),
            "FP8_BLOCK",
            (8, 8),
        ),
        ({"weight": ("F8_E4M3", (4, 64)), "weight_scale": ("U8", (4, 2))}, None, "MXFP8", (4, 64)),
        ({"weight": ("F8_E4M3", (4, 64)), "weight_scale": ("F8_E8M0", (4, 2))}, None, "MXFP8", (4, 64)),
        (
            {"weight": ("F8_E4M3", (256, 256)), "weight_scale_inv": ("F32", (2, 2))},
            HF_BLOCKS,
            "FP8_BLOCK",
            (256, 256),
        ),
        (
            {"weight": ("F8_E4M3", (6, 8)), "weight_scale_inv": ("F8_E8M0", (3, 2))},
            {"quant_method": "fp8", "weight_block_size": [2, 4], "scale_fmt": "ue8m0"},
            "FP8_BLOCK",
            (6, 8),
        ),
        (
            {"weight": ("F8_E4M3", (4, 8)), "weight_scale_inv": ("F32", ()), "activation_scale": ("F32", ())},
            {"quant_method": "fp8", "weight_block_size": None},
            "FP8_TENSOR",
            (4, 8),
        ),
        ({"weight": ("F8_E4M3", (300, 300)), "weight_scale_inv": ("F32", (1, 1))}, HF_BLOCKS, "FP8_TENSOR", (300, 300)),
        ({"weight": ("F8_E4M3", (256, 8)), "scale": ("F32", (2, 1))}, None, "FP8_BLOCK", (256, 8)),
        (
            {"weight": ("F8_E4M3", (4, 8)), "qscale_weight": ("BF16", ()), "qscale_act": ("BF16", ())},
            None,
            "FP8_TENSOR",
            (4, 8),
        ),
        ({"weight": ("I8", (4, 8)), "weight_scale": ("BF16", (4, 1))}, None, "INT8", (4, 8)),
        (
            {"weight": ("I8", (4, 8)), "weight_scale": ("F32", (4,))},
            {"quant_method": "modelopt", "quant_algo": "W8A16"},
            "INT8",
            (4, 8),
        ),
        (
            {
                "qweight": ("I32", (8, 16)),
                "qzeros": ("I32", (1, 2)),
                "scales": ("F16", (1, 16)),
                "g_idx": ("I32", (64,)),
            },
            {"quant_method": "gptq", "bits": 4, "group_size": 64},
            "GPTQ",
            (16, 64),
        ),
        ({"qweight": ("I32", (8, 16)), "qzeros": ("I32", (1, 4)), "scales": ("F16", (1, 16))}, None, "GPTQ", (16, 32)),
        (
            {"qweight": ("I32", (64, 2)), "qzeros": ("I32", (1, 2)), "scales": ("F16", (1, 16))},
            {"quant_method": "awq", "bits": 4, "version": "gemm"},
            "AWQ",
            (16, 64),
        ),
        (
            {
                "weight": ("U8", (16, 1)),
                "weight.absmax": ("U8", (1,)),
                "weight.quant_map": ("F32", (16,)),
                "weight.nested_absmax": ("F32", (1,)),
                "weight.nested_quant_map": ("F32", (256,)),
                "weight.quant_state.bitsandbytes__nf4": nf4_state(
                    shape=[4, 8], nested_blocksize=256, nested_dtype="float32", nested_offset=0.5
                ),
            },
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            "BNB_4BIT",
            (4, 8),
        ),
        (
            {"weight": ("I8", (4, 8)), "SCB": ("F32", (4,)), "weight_format": ("U8", ())},
            None,
            "BNB_INT8",
            (4, 8),
        ),
        ({"weight": ("U8", (2, 8)), "weight_scale": ("BF16", (1,))}, {"quant_method": "bitnet"}, "BitNet", (8, 8)),
        (
            {"weight": ("U32", (4, 8)), "scales": ("F16", (4, 1)), "biases": ("F16", (4, 1))},
            {"bits": 4, "group_size": 64},
            "MLX",
            (4, 64),
        ),
        ({"W_q": ("U8", (4, 8)), "scale": ("F16", (4, 1)), "zero": ("F16", (4, 1))}, None, "HQQ", None),
        ({"weight._data": ("I8", (4, 8)), "weight._scale": ("F32", (4, 1))}, None, "quanto", None),
        ({"codes": ("I16", (4, 8)), "codebooks": ("F16", (1, 8)), "scales": ("F16", (4,))}, None, "AQLM", None),
        ({"weight": ("I8", (4, 8)), "weight_scales": ("F16", (8,))}, None, "EETQ", None),
        (
            {"bitmask": ("U8", (4, 1)), "compressed": ("F16", (4,)), "shape": ("I64", (2,))},
            None,
            "compressed-tensors sparse",
            None,
        ),
    ],
)
def test_each_encoding_by_its_tensors(
    tmp_path: Path,
    members: Mapping[str, Member],
    quantization: Mapping[str, Any] | None,
    encoding: str,
    shape: tuple[int, ...] | None,
) -> None:
    tensors = {**module("model.layers.0.q_proj", **members), "model.norm.weight": ("BF16", (8,))}
    found = classified(tmp_path, tensors, quantization)
    one = only(found)
    assert (one.module, one.encoding, one.shape, one.fault) == ("model.layers.0.q_proj", encoding, shape, None)
    assert one.parameter == "model.layers.0.q_proj.weight"
    assert sorted(one.tensors) == sorted(name for name in tensors if "q_proj" in name)
    assert found.plain == ("model.norm.weight",)
    assert (found.orphans, found.skipped) == ({}, {})


def test_blocks_and_scales_of_a_bank_are_one_parameter_each(tmp_path: Path) -> None:
    tensors = {
        "mlp.experts.gate_up_proj_blocks": ("U8", (3, 8, 2, 16)),
        "mlp.experts.gate_up_proj_scales": ("U8", (3, 8, 2)),
        "mlp.experts.gate_up_proj_bias": ("BF16", (3, 8)),
        "mlp.experts.down_proj_blocks": ("U8", (3, 4, 1, 16)),
        "mlp.experts.down_proj_scales": ("U8", (3, 4, 1)),
    }
    found = classified(tmp_path, tensors, {"quant_method": "mxfp4"})
    assert [(one.parameter, one.encoding, one.shape) for one in found.modules] == [
        ("mlp.experts.gate_up_proj", "MXFP4", (3, 8, 64)),
        ("mlp.experts.down_proj", "MXFP4", (3, 4, 32)),
    ]
    assert found.plain == ("mlp.experts.gate_up_proj_bias",)


@pytest.mark.parametrize(
    ("scale", "encoding"),
    [
        ((3,), "FP8_TENSOR"),
        ((3, 1, 1), "FP8_TENSOR"),
        ((3, 256), "FP8_ROW"),
        ((3, 256, 1), "FP8_ROW"),
        ((3, 2, 1), "FP8_BLOCK"),
    ],
)
def test_banks_of_fp8_experts(tmp_path: Path, scale: Sequence[int], encoding: str) -> None:
    tensors = {
        "experts.gate_up_proj": ("F8_E4M3", (3, 256, 16)),
        "experts.gate_up_proj_scale_inv": ("F32", scale),
        "experts.down_proj": ("BF16", (3, 16, 16)),
    }
    one = only(classified(tmp_path, tensors))
    assert (one.parameter, one.encoding, one.shape, one.fault) == ("experts.gate_up_proj", encoding, (3, 256, 16), None)


def test_experts_each_with_its_own_scale(tmp_path: Path) -> None:
    tensors: dict[str, Member] = {}
    for expert in range(3):
        tensors |= module(
            f"experts.{expert}.up_proj",
            weight=("U8", (4, 8)),
            weight_scale=("F8_E4M3", (4, 1)),
            weight_scale_2=("F32", ()),
            input_scale=("F32", ()),
        )
    found = classified(tmp_path, tensors)
    assert [one.encoding for one in found.modules] == ["NVFP4"] * 3
    assert all(len(one.tensors) == 4 for one in found.modules)


def test_a_module_without_a_prefix(tmp_path: Path) -> None:
    found = classified(tmp_path, {"weight": ("F8_E4M3", (4, 8)), "weight_scale": ("F32", ())})
    assert (only(found).module, only(found).parameter) == ("", "weight")


def test_mixed_encodings_in_one_checkpoint(tmp_path: Path) -> None:
    tensors = {
        **module("a", weight=("F8_E4M3", (4, 8)), weight_scale=("F32", (4,)), bias=("BF16", (4,))),
        **module("b", qweight=("I32", (8, 16)), qzeros=("I32", (1, 2)), scales=("F16", (1, 16))),
        **module("c", weight=("BF16", (4, 8))),
    }
    found = classified(tmp_path, tensors)
    assert [(one.module, one.encoding) for one in found.modules] == [("a", "FP8_ROW"), ("b", "GPTQ")]
    assert found.plain == ("a.bias", "c.weight")
    assert list(found.sources) == ["a.weight", "a.bias", "b.weight", "c.weight"]


def test_encodings_that_nobody_decodes_are_refused_all_modules_together(tmp_path: Path) -> None:
    tensors: dict[str, Member] = module("norm", weight=("BF16", (8,)))
    for layer in "abcde":
        tensors |= module(layer, W_q=("U8", (4, 8)), scale=("F16", (4, 1)), zero=("F16", (4, 1)))
    tensors |= module("f", weight=("U8", (2, 8)), weight_scale=("BF16", (1,)))
    found = classified(tmp_path, tensors)
    checkpoint = open_checkpoint(tmp_path)
    messages = [problem.message for problem in found.problems(checkpoint)]
    assert messages == [
        "5 weights stored as HQQ cannot be imported or decoded: a.weight, b.weight, c.weight and 2 more; "
        "take a checkpoint of the model that is not quantized",
        "1 weight stored as BitNet (four rows to a byte) cannot be imported or decoded: f.weight; "
        "take a checkpoint of the model that is not quantized",
    ]
    assert found.problems(checkpoint, skipped=lambda name: name != "f.weight")[0].message == messages[1]
    assert [source.shape for source in found.sources.values()] == [(8,), *[()] * 5, (8, 8)]
