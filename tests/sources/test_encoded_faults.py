"""Damaged modules, orphans and companions: nothing encoded is plain, nothing is dropped in silence (T2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ninfer_convert.sources import open_checkpoint
from tests.sources.modules import (
    AWQ,
    FP8_BLOCKS,
    FP8_CHANNEL,
    FP8_TENSOR,
    GPTQ,
    HF_BLOCKS,
    MODELOPT,
    NF4,
    NVFP4,
    PACKED,
    STATE,
    Member,
    classified,
    compressed_tensors,
    module,
    nf4_state,
    numbers,
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
        # A global scale of another type or number.
        (
            {**nvfp4(), "weight_global_scale": ("F32", (2,))},
            None,
            "weight_global_scale is F32 [2], where F32 of 1 or 1 was expected",
        ),
        (
            {"weight": ("U8", (3, 4, 8)), "weight_scale": ("F8_E4M3", (3, 4, 1)), "weight_scale_2": ("BF16", (3,))},
            None,
            "weight_scale_2 is BF16 [3], where F32 of 3 or 1 was expected",
        ),
        # ModelOpt: channel factors, a second rounding.
        (
            {**MODELOPT, "pre_quant_scale": ("BF16", (4,))},
            None,
            "pre_quant_scale is BF16 [4], where a float for each of 32 columns was expected",
        ),
        (
            {"weight": ("U8", (4, 64)), "weight_scale": ("BF16", (8, 2)), "weight_scale_2": ("F32", ())},
            {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"},
            "has weight_scale_2, by which values are rounded once more (W4A8), which is not decoded",
        ),
        (
            {**MODELOPT, "pre_quant_scale": ("BF16", (32,)), "svdquant_lora_a": ("BF16", (8, 32))},
            {"quant_method": "modelopt", "quant_algo": "NVFP4_SVD"},
            "svdquant_lora_a changes the weight's meaning and is not supported by import_encoded",
        ),
        # Packed integers.
        (
            {"weight_packed": ("I32", (4, 4)), "weight_scale": ("BF16", (4, 1))},
            compressed_tensors({"num_bits": 4, "type": "int"}),
            "has no weight_shape",
        ),
        (
            {**PACKED, "weight_shape": numbers("I64", (2,), 4, 40)},
            compressed_tensors({"num_bits": 4, "type": "int"}),
            "weight_packed is [4, 4], no [4, 40] codes of 4 bits",
        ),
        (
            {**PACKED, "weight_scale": ("BF16", (4, 3))},
            compressed_tensors({"num_bits": 4, "type": "int", "group_size": 16}),
            "weight_scale is [4, 3], where [4, 2] was expected",
        ),
        (
            {**PACKED, "weight_scale": ("F64", (4, 1))},
            None,
            "weight_scale is F64, where F32, BF16, F16 was expected",
        ),
        (
            {**PACKED, "weight_zero_point": ("I8", (4, 1))},
            compressed_tensors({"num_bits": 4, "type": "int", "symmetric": False}),
            "weight_zero_point is I8 beside weight_scale [4, 1]",
        ),
        (
            {**PACKED, "weight_zero_point": ("I32", (2, 1))},
            compressed_tensors({"num_bits": 4, "type": "int", "symmetric": False}),
            "weight_zero_point is [2, 1], where [1, 1] was expected",
        ),
        (
            {**PACKED, "weight_g_idx": ("I32", (31,))},
            compressed_tensors({"num_bits": 4, "type": "int", "actorder": "group"}),
            "weight_g_idx is I32 [31], where I32 [32] was expected",
        ),
        # GPTQ and AWQ: what the files do not tell.
        (
            GPTQ,
            {"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": False},
            "config says sym false: v1 stores zero points less one, v2 as they are, and files do not tell which",
        ),
        (GPTQ, {"quant_method": "gptq", "bits": 4, "desc_act": True}, "config says desc_act, but there is no g_idx"),
        ({**GPTQ, "g_idx": ("I32", (63,))}, None, "g_idx is I32 [63], for 64 columns"),
        ({**GPTQ, "qzeros": ("I32", (2, 2))}, None, "qzeros is [2, 2], where [1, 2] was expected, of I32"),
        ({**GPTQ, "scales": ("F64", (1, 16))}, None, "scales is F64, where F16 was expected"),
        (AWQ, {"quant_method": "awq", "bits": 4, "version": "gemv"}, "config says version gemv; only gemm is decoded"),
        (AWQ, {"quant_method": "awq", "bits": 4, "zero_point": False}, "only AWQ with zero points is decoded"),
        (
            {name: member for name, member in AWQ.items() if name != "qzeros"},
            {"quant_method": "awq", "bits": 4},
            "has no zero points",
        ),
        # bitsandbytes (field fault R40).
        (
            {"weight": ("I8", (4, 8)), "SCB": ("F32", (5,))},
            None,
            "weight is I8 [4, 8] and SCB F32 [5], where I8 [N, K] and F32 [N] were expected",
        ),
        (
            {"weight": ("U8", (16, 1)), "weight.absmax": ("F32", (1,)), "weight.quant_map": ("F32", (16,))},
            None,
            "has 0 states (weight.quant_state.bitsandbytes__*), where one was expected",
        ),
        ({**NF4, STATE: ("U8", (3,), b"{]}")}, None, "weight.quant_state.bitsandbytes__nf4"),
        ({**NF4, STATE: ("U8", (2,), b"[]")}, None, "is no JSON object"),
        ({**NF4, STATE: nf4_state(shape=[4, True])}, None, "tells no shape and block sizes"),
        ({**NF4, STATE: nf4_state(shape=[4, 8], blocksize=0)}, None, "tells no shape and block sizes"),
        (
            {**NF4, "weight.nested_absmax": ("F32", (1,)), STATE: nf4_state(shape=[4, 8], nested_blocksize=256)},
            None,
            "tells no nested_offset",
        ),
        ({**NF4, STATE: nf4_state(shape=[4, 9])}, None, "weight is U8 of 16, where U8 of 18 was expected"),
        ({**NF4, STATE: nf4_state(shape=[4, 8], blocksize=8)}, None, "weight.absmax is F32 of 1, where F32 of 4"),
        ({**NF4, "weight": ("BF16", (8, 1))}, None, "weight is BF16 of 8, where U8 of 16 was expected"),
        (
            {name: member for name, member in NF4.items() if name != "weight.quant_map"},
            None,
            "has no weight.quant_map",
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


@pytest.mark.parametrize("bits", [3, 5])
def test_gptq_whose_codes_cross_words_is_named(tmp_path: Path, bits: int) -> None:
    members = {"qweight": ("I32", (bits, 32)), "qzeros": ("I32", (1, bits)), "scales": ("F16", (1, 32))}
    found = classified(tmp_path, module("a", **members), {"quant_method": "gptq", "bits": bits})
    (problem,) = found.problems(open_checkpoint(tmp_path))
    assert problem.message.startswith(
        f"1 weight stored as GPTQ ({bits} bits, group 32) cannot be imported or decoded: a.weight"
    )


def data_problem(folder: Path, members: Mapping[str, Member], quantization: Mapping[str, Any] | None = None) -> str:
    """What scales say that headers do not."""
    found = classified(folder, module("a", **members), quantization)
    assert only(found).fault is None
    (problem,) = found.problems(open_checkpoint(folder))
    return problem.message


@pytest.mark.parametrize(
    ("zeros", "says"),
    [((0x77777778,), "7, 8"), ((0x66666666,), "6"), ((-0x66666667,), "9"), ((0x76543210,), "0, 1, 2, 3, ...")],
)
def test_zero_points_that_neither_version_stores(tmp_path: Path, zeros: Sequence[int], says: str) -> None:
    """v1 and v2 cannot be told apart from the config (encoded-sources.md 8.1)."""
    members = {**GPTQ, "scales": numbers("F16", (1, 16), 1.0), "qzeros": numbers("I32", (1, 2), zeros[0], zeros[0])}
    config = {"quant_method": "gptq", "bits": 4, "group_size": 64, "checkpoint_format": "gptq_v2"}
    assert data_problem(tmp_path, members, config) == (
        f"a.qzeros: stores the zero points {says}, where symmetric GPTQ has 7 (v1) or 8 (v2) alone; "
        "others cannot be told apart and are not decoded"
    )


def test_a_column_of_no_group(tmp_path: Path) -> None:
    index = [0] * 63 + [1]
    members = {**GPTQ, "qzeros": numbers("I32", (1, 2), 0x77777777), "g_idx": numbers("I32", (64,), *index)}
    assert data_problem(tmp_path, members) == "a.g_idx: puts column 63 into group 1 of 1"
    packed = {**PACKED, "weight_g_idx": numbers("I32", (32,), *[0] * 30, -1, 0)}
    assert data_problem(tmp_path, packed) == "a.weight_g_idx: puts column 30 into group -1 of 1"


def test_codes_that_are_tiled_for_a_graphics_card(tmp_path: Path) -> None:
    members: dict[str, Member] = {
        "weight": ("I8", (4, 8)),
        "SCB": numbers("F32", (4,), 1.0),
        "weight_format": numbers("U8", (), 2),
    }
    says = "a.weight_format: is 2: codes tiled for a graphics card; only rows are read"
    assert data_problem(tmp_path, members) == says


def test_many_modules_of_one_fault_are_one_problem(tmp_path: Path) -> None:
    tensors = {f"layers.{number}.proj.weight": ("F8_E4M3", (2, 2)) for number in range(50)}
    found = classified(tmp_path, tensors)
    (problem,) = found.problems(open_checkpoint(tmp_path))
    assert problem.message == (
        "layers.0.proj.weight, layers.1.proj.weight, layers.2.proj.weight and 47 more: F8_E4M3 weight without a scale"
    )
