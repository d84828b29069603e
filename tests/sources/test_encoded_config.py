"""What a checkpoint says of its quantization decides only what tensors cannot, and is believed less than they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_convert.errors import SourceError
from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.config import read_config
from ninfer_convert.sources.encoded import classify
from tests.sources.modules import (
    FP8_BLOCKS,
    FP8_CHANNEL,
    FP8_TENSOR,
    HF_BLOCKS,
    classified,
    compressed_tensors,
    fp8,
    module,
    only,
)


def targeted(targets: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": targets, "weights": FP8_CHANNEL}}
    return {"quant_method": "compressed-tensors", "config_groups": groups}


def test_ignored_names_are_exact_and_tensors_are_believed(tmp_path: Path) -> None:
    config = compressed_tensors(FP8_CHANNEL, ignore=["model.mlp.experts.0", "lm_head", "re:.*router$"])
    tensors = {**fp8("model.mlp.experts.0.gate_proj"), "lm_head_norm.weight": ("BF16", (4,))}
    assert classified(tmp_path, tensors, config).notes == ()
    found = classified(tmp_path, {**fp8("lm_head", "a.router", "a.router2")}, config)
    assert [one.fault for one in found.modules] == [None] * 3
    assert found.notes == ("2 modules encoded, though the config ignores them: lm_head, a.router",)


def test_modelopt_wildcards_are_stars_alone(tmp_path: Path) -> None:
    config = {"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN", "exclude_modules": ["a.*.b[0]"]}
    found = classified(tmp_path, fp8("a.1.b[0]", "a.1.b0"), config)
    assert found.notes == ("1 module encoded, though the config ignores them: a.1.b[0]",)


def test_the_most_specific_target_decides(tmp_path: Path) -> None:
    groups = {
        "group_0": {"targets": ["Linear"], "weights": FP8_BLOCKS},
        "group_1": {"targets": ["re:.*q_proj$"], "weights": FP8_TENSOR},
        "group_2": {"targets": ["a.q_proj"], "weights": FP8_CHANNEL},
    }
    config = {"quant_method": "compressed-tensors", "config_groups": groups}
    found = {
        one.module: one.fault for one in classified(tmp_path, fp8("a.q_proj", "b.q_proj", "b.o_proj"), config).modules
    }
    assert found["a.q_proj"] is None
    assert found["b.q_proj"] == "config says strategy tensor, but the tensors are FP8_ROW"
    assert found["b.o_proj"] == "config says strategy block, weight_scale has 4 rows"


def test_mixed_precision_names_each_layer(tmp_path: Path) -> None:
    layers = {"a": {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}, "b": {"quant_algo": "NVFP4", "group_size": 16}}
    config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    found = {one.module: one.fault for one in classified(tmp_path, fp8("a", "b", "c"), config).modules}
    assert found == {"a": None, "b": "config says quant_algo NVFP4, but the tensors are FP8_ROW", "c": None}


@pytest.mark.parametrize("method", ["aqlm", "quanto", "torchao", "higgs", "vptq", "nvfp4", "auto-round"])
def test_methods_that_are_never_read(tmp_path: Path, method: str) -> None:
    found = classified(tmp_path, {"a.weight": ("BF16", (4, 4))}, {"quant_method": method})
    (problem,) = found.problems(open_checkpoint(tmp_path))
    assert f"is quantized by {method} (quant_method)" in problem.message


def test_auto_round_in_a_known_packing_is_that_packing(tmp_path: Path) -> None:
    tensors = module("a", qweight=("I32", (8, 16)), qzeros=("I32", (1, 2)), scales=("F16", (1, 16)))
    config = {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4}
    found = classified(tmp_path, tensors, config)
    assert only(found).encoding == "GPTQ"
    assert found.refused_method == ""


def test_a_config_left_behind_by_a_checkpoint_that_was_decoded(tmp_path: Path) -> None:
    found = classified(tmp_path, {"a.weight": ("BF16", (4, 4))}, HF_BLOCKS)
    assert found.plain == ("a.weight",)
    assert found.notes == ("config says quant_method fp8, but no tensor is encoded: all are read as they are",)


def test_a_dense_sparsity_config_changes_nothing(tmp_path: Path) -> None:
    found = classified(tmp_path, fp8("a"), compressed_tensors(FP8_CHANNEL, sparsity_config={"format": "dense"}))
    assert only(found).fault is None


def test_the_config_of_a_models_text_part(tmp_path: Path) -> None:
    classified(tmp_path, fp8("a"))
    (tmp_path / "config.json").write_text(
        json.dumps({"text_config": {"quantization_config": compressed_tensors(FP8_TENSOR)}})
    )
    checkpoint = open_checkpoint(tmp_path)
    assert only(classify(checkpoint, read_config(checkpoint))).fault is not None


@pytest.mark.parametrize(
    "quantization",
    [
        ["fp8"],
        "fp8",
        {"quant_method": "compressed-tensors", "config_groups": [1]},
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": []}},
        targeted([1]),
        targeted("Linear"),
        targeted(["re:("]),
        compressed_tensors({**FP8_BLOCKS, "block_structure": [128]}),
        compressed_tensors({**FP8_BLOCKS, "block_structure": [0, 128]}),
        compressed_tensors({**FP8_BLOCKS, "block_structure": [128, True]}),
        compressed_tensors({**FP8_CHANNEL, "num_bits": "8"}),
        {"quant_method": "fp8", "weight_block_size": "128x128"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": 7}},
    ],
)
def test_a_malformed_config_is_refused_by_file(tmp_path: Path, quantization: Any) -> None:
    with pytest.raises(SourceError) as caught:
        classified(tmp_path, fp8("a"), quantization)
    (problem,) = caught.value.problems
    assert problem.code == "bad-config"
    assert problem.path == str(tmp_path / "config.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 200) | st.sampled_from(["", "re:(", "a", "channel", "FP8", "block"]),
    lambda values: (
        st.lists(values, max_size=2)
        | st.dictionaries(
            st.sampled_from(["a", "weights", "targets", "quant_algo", "strategy", "num_bits"]), values, max_size=3
        )
    ),
    max_leaves=6,
)
KEYS = [
    "config_groups",
    "weight_block_size",
    "ignore",
    "quant_algo",
    "quantized_layers",
    "transform_config",
    "quantization_status",
    "packing_format",
    "bits",
    "group_size",
]
METHODS = st.sampled_from(["compressed-tensors", "modelopt", "fp8", "gptq", "fbgemm_fp8", ""]) | JSON


@given(METHODS, st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_config_is_read_or_refused_never_worse(
    tmp_path_factory: pytest.TempPathFactory, method: Any, values: dict[str, Any]
) -> None:
    codes = {"bad-config"}
    encoding = "FP8_ROW"
    try:
        encoding = only(
            classified(tmp_path_factory.mktemp("any"), fp8("a"), {**values, "quant_method": method})
        ).encoding
    except SourceError as error:
        codes = {problem.code for problem in error.problems}
    assert (codes, encoding) == ({"bad-config"}, "FP8_ROW")
