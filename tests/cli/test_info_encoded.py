"""`info` of checkpoints with encoded weights: which there are, and what a conversion can make of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.sources.modules import module, numbers
from tests.support import program, write_safetensors

ENCODED = Path(__file__).parent.parent / "golden" / "encoded"


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("ct_nvfp4", ("NVFP4 (compressed-tensors, groups of 16)", "7", "196,608", "110,648", "nvfp4")),
        ("ct_fp8_tensor", ("FP8_TENSOR (weight_scale BF16)", "7", "21,504", "21,532", "fp8_e4m3fn_row_bf16")),
        (
            "ct_fp8_channel_f32",
            (
                "FP8_ROW (weight_scale F32)",
                "7",
                "21,504",
                "22,912",
                "fp8_e4m3fn_row_bf16 where its scales are bfloat16 values, else decoded",
            ),
        ),
        (
            "ct_w4a16",
            ("INT4_PACKED (compressed-tensors, 4-bit integers, group 128)", "1", "4,096", "2,128", "decoded values"),
        ),
    ],
)
def test_encoded_weights_are_counted_with_what_becomes_of_them(
    tmp_path: Path, folder: str, line: tuple[str, ...]
) -> None:
    shutil.copytree(ENCODED / folder, tmp_path / "m", ignore=shutil.ignore_patterns("expected*"))
    result = program("info", tmp_path / "m")
    assert (result.returncode, result.stderr) == (0, "")
    lines = [tuple(text.strip().split("  ")) for text in result.stdout.splitlines()]
    assert line in [tuple(part.strip() for part in parts if part.strip()) for parts in lines]


def test_each_weight_is_listed_with_its_tensors(tmp_path: Path) -> None:
    shutil.copytree(ENCODED / "modelopt_nvfp4", tmp_path / "m", ignore=shutil.ignore_patterns("expected*"))
    document = json.loads(program("info", tmp_path / "m", "--json").stdout)
    weight = next(weight for weight in document["encoded"] if weight["name"].endswith("q_proj.weight"))
    tensors = ["weight", "weight_scale", "weight_scale_2", "input_scale"]
    assert weight == {
        "name": "model.layers.0.self_attn.q_proj.weight",
        "encoding": "NVFP4",
        "details": "ModelOpt, groups of 16",
        "shape": [128, 128],
        "bytes": 128 * 64 + 128 * 8 + 4 + 4,
        "tensors": [f"model.layers.0.self_attn.q_proj.{tensor}" for tensor in tensors],
        "becomes": "nvfp4",
        "fault": None,
    }
    listed = program("info", tmp_path / "m", "--tensors").stdout
    assert "model.layers.0.mlp.down_proj.weight     NVFP4 (ModelOpt, groups of 16)  128 x 256  nvfp4" in listed


def test_one_weight_and_its_tensors(tmp_path: Path) -> None:
    shutil.copytree(ENCODED / "ct_nvfp4", tmp_path / "m", ignore=shutil.ignore_patterns("expected*"))
    name = "model.layers.0.mlp.up_proj"
    weight = program("info", tmp_path / "m", "--parameter", f"{name}.weight").stdout
    assert f"encoded   {name}.weight, NVFP4 (compressed-tensors, groups of 16)" in weight
    assert "of shape  256 x 128" in weight
    tensor = json.loads(program("info", tmp_path / "m", "--parameter", f"{name}.weight_scale", "--json").stdout)
    assert tensor["tensor"]["type"] == "F8_E4M3"
    assert tensor["encoded"]["name"] == f"{name}.weight"
    missing = program("info", tmp_path / "m", "--parameter", f"{name}.weigth")
    assert missing.returncode == 1
    assert f"did you mean '{name}.weight'" in missing.stderr


def test_what_cannot_be_read_is_shown_with_the_reason(tmp_path: Path) -> None:
    tensors = {
        **module("a", W_q=numbers("U8", (2, 4), 0), meta=numbers("U8", (1,), 0)),
        **module("b", weight_packed=numbers("U8", (1, 8), 0), weight_scale=("F8_E4M3", (1, 1), b"\x38")),
    }
    path = write_safetensors(
        tmp_path / "m.safetensors", {name: member for name, member in tensors.items() if len(member) == 3}
    )
    document = json.loads(program("info", path, "--json").stdout)
    assert [(weight["name"], weight["becomes"], weight["fault"]) for weight in document["encoded"]] == [
        ("a.weight", "refused: can be neither imported nor decoded", None),
        ("b.weight", "refused: has no weight_global_scale", "has no weight_global_scale"),
    ]


def test_a_config_that_cannot_be_read_hides_no_tensor(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"a.weight": ("F32", (1,), bytes(4))})
    (tmp_path / "config.json").write_text('{"quantization_config": 3}')
    result = program("info", tmp_path, "--tensors")
    assert result.returncode == 0
    assert "a.weight  F32" in result.stdout
    assert "what it says is no object" in result.stderr
