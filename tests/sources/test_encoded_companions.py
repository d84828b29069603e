"""Tensors that stand beside encoded weights: orphans, activation scales, scales of caches (T2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.encoded import CONVENTIONS
from tests.sources.modules import Member, classified, module, only


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
    lone = found.problems(open_checkpoint(tmp_path), skipped=f"a.{name}".__eq__, claimed=f"b.{name}".__eq__)
    assert (
        f"2 {next(iter(found.orphans))} tensors without a weight to belong to: c.{name}, d.{name};" in lone[0].message
    )
    assert set(tensors) < set(found.sources)


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
    names = "layers.0.self_attn.k_scale, layers.0.self_attn.v_proj.v_scale"
    assert found.notes == (f"2 tensors left out, scale of a key/value cache: {names}",)
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
