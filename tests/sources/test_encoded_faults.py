"""Damaged modules, orphans and companions: nothing encoded is plain, nothing is dropped in silence (T2)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.encoded import CONVENTIONS
from tests.sources.modules import (
    FP8_BLOCKS,
    FP8_CHANNEL,
    FP8_TENSOR,
    HF_BLOCKS,
    NVFP4,
    Member,
    classified,
    compressed_tensors,
    module,
    nvfp4,
    only,
)

# Damage, contradictions, changed meanings


@pytest.mark.parametrize(
    ("members", "quantization", "expected"),
    [
        # A transposed grid is told, not turned round.
        (
            {"weight": ("F8_E4M3", (256, 128)), "weight_scale_inv": ("F32", (1, 2))},
            HF_BLOCKS,
            "weight_scale_inv is [1, 2], where [2, 1] was expected",
        ),
        (
            {"weight": ("F8_E4M3", (256, 64)), "weight_scale": ("BF16", (256, 1))},
            compressed_tensors(FP8_BLOCKS),
            "config says strategy block, weight_scale has 256 rows",
        ),
        (
            {"weight": ("F8_E4M3", (256, 64)), "weight_scale": ("BF16", (2, 1))},
            compressed_tensors(FP8_CHANNEL),
            "config says strategy channel, but the tensors are FP8_BLOCK",
        ),
        (
            {"weight": ("F8_E4M3", (4, 64)), "weight_scale": ("BF16", (4, 1))},
            compressed_tensors(FP8_TENSOR),
            "config says strategy tensor, but the tensors are FP8_ROW",
        ),
        (
            {"weight": ("F8_E4M3", (4, 64)), "weight_scale": ("BF16", (4, 1))},
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            "config says quant_algo NVFP4, but the tensors are FP8_ROW",
        ),
        ({"weight": ("F8_E4M3", (4, 64)), "weight_scale": ("F64", (4, 1))}, None, "weight_scale is F64"),
        ({"weight": ("F8_E4M3", (4, 64)), "weight_scale": ("BF16", (3, 1))}, None, "weight_scale is [3, 1]"),
        (
            {"weight": ("F8_E4M3", (4, 64)), "weight_scale": ("U8", (4, 4))},
            None,
            "weight_scale is [4, 4], where [4, 2]",
        ),
        ({"weight": ("F8_E4M3", (4,)), "weight_scale": ("F32", ())}, None, "is [4], where a matrix was expected"),
        ({"weight_packed": ("U8", (4, 16)), "weight_scale": ("F8_E4M3", (4, 2))}, None, "has no weight_global_scale"),
        (
            nvfp4(scales=(4, 4)),
            None,
            "weight_scale is [4, 4], where [4, 2] was expected",
        ),
        (
            nvfp4(codes=(4, 12)),
            None,
            "weight_scale is [4, 2]",
        ),
        (
            nvfp4(),
            compressed_tensors({**NVFP4, "group_size": 32}),
            "config says group_size 32",
        ),
        (
            nvfp4(),
            compressed_tensors({**NVFP4, "symmetric": False}),
            "symmetric False",
        ),
        (
            {"weight_packed": ("U8", (4, 32)), "weight_scale": ("U8", (4, 4))},
            None,
            "weight_scale is [4, 4], where [4, 2]",
        ),
        ({"weight": ("U8", (4, 16)), "weight_scale": ("F8_E4M3", (4, 2))}, None, "has no weight_scale_2"),
        (
            {"weight": ("U8", (2, 16, 8)), "weight_scale": ("F8_E4M3", (2, 2, 8)), "weight_scale_2": ("F32", ())},
            None,
            "the last axis must be the packed one",
        ),
        (
            {"weight": ("U8", (4, 64)), "weight_scale": ("BF16", (5, 2))},
            None,
            "weight_scale is [5, 2], no scales of [4, 64]",
        ),
        ({"weight": ("I8", (4, 8)), "weight_scale": ("BF16", (2, 8))}, None, "weight_scale is BF16 [2, 8]"),
        (
            {"qweight": ("I32", (7, 5)), "qzeros": ("I32", (1, 2)), "scales": ("F16", (1, 16))},
            None,
            "fit neither GPTQ nor AWQ",
        ),
        # Companions without which the codes are another weight.
        *(
            (
                {"weight": ("F8_E4M3", (4, 64)), "weight_scale": ("BF16", (4, 1)), name: ("BF16", (4, 1))},
                None,
                f"{name} changes the weight's meaning and is not supported",
            )
            for name in ("weight_zero_point", "weight_g_idx", "pre_quant_scale", "svdquant_lora_a", "svdquant_lora_b")
        ),
        *(
            (
                {"weight": ("F8_E4M3", (4, 64)), "weight_scale": ("BF16", (4, 1))},
                compressed_tensors(FP8_CHANNEL, **{name: value}),
                f"{name} {expected}",
            )
            for name, value, expected in (
                ("transform_config", {"config_groups": {"u": {}}}, "changes the weight's meaning"),
                ("sparsity_config", {"format": "sparse-24-bitmask"}, "changes the weight's meaning"),
                ("quantization_status", "frozen", "frozen: only compressed checkpoints"),
            )
        ),
        # Two conventions for one weight.
        (
            {
                "weight_packed": ("U8", (4, 16)),
                "weight_scale": ("F8_E4M3", (4, 2)),
                "weight_global_scale": ("F32", (1,)),
                "weight": ("BF16", (4, 32)),
            },
            None,
            "is stored twice, as weight_packed, weight_scale, weight_global_scale and as weight",
        ),
        # Words without a scale.
        ({"weight": ("F8_E4M3", (4, 64))}, None, "F8_E4M3 weight without a scale"),
        ({"weight": ("U8", (4, 64))}, None, "U8 weight without a scale"),
        ({"weight": ("F8_E5M2", (4, 64))}, None, "F8_E5M2 weight without a scale"),
        ({"weight": ("F8_E4M3FNUZ", (4, 64)), "bias": ("BF16", (4,))}, None, "F8_E4M3FNUZ weight without a scale"),
        ({"weight": ("F4", (4, 64))}, None, "F4 weight without a scale"),
    ],
)
def test_what_is_wrong_with_a_module_is_told(
    tmp_path: Path,
    members: Mapping[str, Member],
    quantization: Mapping[str, Any] | None,
    expected: str,
) -> None:
    found = classified(tmp_path, module("a.proj", **members), quantization)
    one = next(one for one in found.modules if one.fault is not None)
    assert one.fault is not None
    assert expected in one.fault
    (problem,) = [problem for problem in found.problems(open_checkpoint(tmp_path)) if problem.code == "bad-encoding"]
    assert problem.message.startswith("a.proj.weight: ")
    assert "a.proj.weight" not in found.plain


def test_scales_that_may_be_swizzled(tmp_path: Path) -> None:
    members = module("a", weight=("U8", (4, 16)), weight_scale=("F8_E4M3", (4, 2)), weight_scale_2=("F32", ()))
    one = only(classified(tmp_path, members, metadata={"_quantization_metadata": "{}"}))
    assert one.fault is not None
    assert "_quantization_metadata" in one.fault


def test_both_dialects_for_one_weight_leave_an_orphan(tmp_path: Path) -> None:
    members = module(
        "a",
        weight_packed=("U8", (4, 16)),
        weight_scale=("F8_E4M3", (4, 2)),
        weight_global_scale=("F32", (1,)),
        weight_scale_2=("F32", ()),
    )
    found = classified(tmp_path, members)
    assert found.orphans == {"weight_scale_2": ("a.weight_scale_2",)}


def test_many_modules_of_one_fault_are_one_problem(tmp_path: Path) -> None:
    tensors = {f"layers.{number}.proj.weight": ("F8_E4M3", (2, 2)) for number in range(50)}
    found = classified(tmp_path, tensors)
    (problem,) = found.problems(open_checkpoint(tmp_path))
    assert problem.message == (
        "layers.0.proj.weight, layers.1.proj.weight, layers.2.proj.weight and 47 more: F8_E4M3 weight without a scale"
    )


# Orphans, and what belongs to no weight


@pytest.mark.parametrize(
    "name",
    [
        "weight_scale",
        "weight_scale_inv",
        "weight_scale_2",
        "weight_global_scale",
        "weight_zero_point",
        "weight_g_idx",
        "weight_packed",
        "weight_shape",
        "pre_quant_scale",
        "qweight",
        "qzeros",
        "g_idx",
        "SCB",
        "weight.absmax",
        "weight.quant_map",
        "weight.quant_state.bitsandbytes__nf4",
        "gate_up_proj_scale_inv",
    ],
)
def test_companions_of_nothing_are_orphans(tmp_path: Path, name: str) -> None:
    tensors: dict[str, Member] = {f"{module}.{name}": ("BF16", (2,)) for module in "abcd"}
    found = classified(tmp_path, {**tensors, "a.weight": ("BF16", (2, 2))})
    assert found.modules == ()
    assert list(found.orphans.values()) == [tuple(tensors)]
    assert found.plain == ("a.weight",)
    (problem,) = found.problems(open_checkpoint(tmp_path))
    assert problem.code == "orphan"
    assert f"a.{name}, b.{name}, c.{name} and 1 more" in problem.message
    assert "[[skip]]" in problem.message


def test_conventions_have_names_of_their_own() -> None:
    assert len({convention.name for convention in CONVENTIONS}) == len(CONVENTIONS)


def test_scales_of_a_key_value_cache_are_skipped(tmp_path: Path) -> None:
    tensors = {
        "layers.0.self_attn.k_scale": ("F32", ()),
        "layers.0.self_attn.v_proj.v_scale": ("F32", ()),
        "layers.0.self_attn.v_proj.weight": ("BF16", (2, 2)),
    }
    found = classified(tmp_path, tensors)
    assert found.skipped == {"scale of a key/value cache": tuple(tensors)[:2]}
    assert found.plain == ("layers.0.self_attn.v_proj.weight",)
    assert found.problems(open_checkpoint(tmp_path)) == []


def test_activation_scales_never_abort(tmp_path: Path) -> None:
    tensors = {
        **module("a", weight=("F8_E4M3", (4, 8)), weight_scale=("F32", ()), input_scale=("F32", ())),
        **module("b", weight=("BF16", (4, 8)), input_scale=("F32", ())),
    }
    found = classified(tmp_path, tensors)
    assert only(found).tensors == ("a.weight", "a.weight_scale", "a.input_scale")
    assert found.skipped == {"activation scale of a weight that is not encoded": ("b.input_scale",)}
    assert found.plain == ("b.weight",)


def test_activation_scales_of_fused_experts_go_with_their_own_weight(tmp_path: Path) -> None:
    tensors: dict[str, Member] = {}
    for name in ("gate_up_proj", "down_proj"):
        tensors[f"experts.{name}"] = ("F8_E4M3", (2, 4, 8))
        tensors[f"experts.{name}_scale"] = ("F32", (2,))
        tensors[f"experts.{name}_input_scale"] = ("F32", (2,))
    found = classified(tmp_path, {**tensors, "experts.router_input_scale": ("F32", (2,))})
    assert [one.tensors for one in found.modules] == [tuple(tensors)[:3], tuple(tensors)[3:]]
    assert list(found.skipped.values()) == [("experts.router_input_scale",)]


def test_a_model_that_is_not_quantized_keeps_parameters_of_such_names(tmp_path: Path) -> None:
    tensors = {"block.input_scale": ("F32", (4,)), "block.scales": ("F32", (4,)), "block.scale": ("F32", (4,))}
    assert classified(tmp_path, tensors).plain == tuple(tensors)


def test_plain_integers_are_plain(tmp_path: Path) -> None:
    tensors = {
        "position_ids": ("I64", (1, 8)),
        "attn.relative_position_index": ("U8", (4, 4)),
        "mask": ("BOOL", (4,)),
        "table.weight": ("I32", (4, 4)),
    }
    found = classified(tmp_path, tensors)
    assert found.plain == tuple(tensors)
    assert found.problems(open_checkpoint(tmp_path)) == []
