"""A second checkpoint of the same model, which gives some of the parameters (qwen35.md 2; recipes.md, Sources)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ninfer_convert import Shaping, convert
from ninfer_convert.architectures import Request
from tests.architectures import small
from tests.architectures.building import build, refusal, write_files
from tests.oracle import binder, container
from tests.support import bf16, write_safetensors

if TYPE_CHECKING:
    from ninfer_convert.architectures import Model

KIND = small.KINDS["dense"]
BESIDE = Request(main=small.config(KIND))
RECIPE = """\
schema = 1
name = "two"
[sources]
other = "a second checkpoint"
[[assign]]
select = "text/layers/1/attention/*"
source = "other"
format = "bf16"
"""


def write(folder: Path, kind: small.Kind, only: str = "", config: dict[str, Any] | None = None) -> Path:
    """A checkpoint of threes: the tensors whose names hold `only`, beside a config or none."""
    folder.mkdir()
    threes = {name: np.full(shape, 3.0) for name, shape in small.shapes(kind).items() if only in name}
    write_safetensors(folder / "model.safetensors", {n: ("BF16", a.shape, bf16(a)) for n, a in threes.items()})
    if config is not None:
        write_files(folder, {"config.json": config})
    return folder


def names(model: Model) -> set[str]:
    return {parameter.name for parameter in model.parameters}


def test_it_may_hold_a_part_and_needs_no_resources(tmp_path: Path) -> None:
    model = build(write(tmp_path / "o", KIND, "layers.1.mlp", small.config(KIND)), request=BESIDE)
    assert names(model) == {f"text/layers/1/mlp/{part}" for part in ("gate", "up", "down")}
    assert model.resources == ()


def test_without_a_config_it_is_read_by_that_of_the_main_input(tmp_path: Path) -> None:
    model = build(write(tmp_path / "o", KIND, "layers.3.self_attn"), "qwen3_5", BESIDE)
    assert names(model) == {
        f"text/layers/3/attention/{part}"
        for part in ("query", "gate", "key", "value", "query_norm", "key_norm", "output")
    }


def test_its_own_config_decides_the_prefix(tmp_path: Path) -> None:
    other = small.KINDS["dense, text only"]
    model = build(write(tmp_path / "o", other, "", small.config(other)), request=BESIDE)
    assert len(model.parameters) == 59


@pytest.mark.parametrize(
    ("member", "value", "stored"),
    [("num_attention_heads", 6, "3"), ("tie_word_embeddings", True, "false"), ("linear_num_key_heads", 1, "2")],
)
def test_what_no_shape_would_show_is_compared(tmp_path: Path, member: str, value: Any, stored: str) -> None:
    config = small.config(KIND)
    config["text_config"][member] = value
    folder = write(tmp_path / "o", KIND, "norm", config)
    assert refusal(folder, request=BESIDE) == [
        ("other-model", f"{member} is {json.dumps(value)}, but {stored} in the main input")
    ]


def test_tensors_of_another_shape_are_refused(tmp_path: Path) -> None:
    config = small.config(KIND)
    config["text_config"]["intermediate_size"] = 99
    codes = {code for code, _ in refusal(write(tmp_path / "o", KIND, "layers.1.mlp", config), request=BESIDE)}
    assert codes == {"wrong-shape"}


@pytest.mark.parametrize("other", [KIND, small.KINDS["dense, text only"]], ids=["nested", "text only"])
def test_an_assign_takes_its_parameters_from_there(tmp_path: Path, other: small.Kind) -> None:
    small.write(tmp_path / "main", KIND)
    write(tmp_path / "other", other, "", small.config(other))
    (tmp_path / "r.toml").write_text(RECIPE)
    shaping = Shaping(sources={"other": str(tmp_path / "other")})
    convert(tmp_path / "main", tmp_path / "r.toml", tmp_path / "a.ninfer", shaping=shaping)
    bound = binder.load(tmp_path / "a.ninfer")
    held = container.read(tmp_path / "a.ninfer")
    threes = set()
    for name, pieces in bound.parameters.items():
        data = b"".join(held.object_bytes(p.object["id"])[2 * p.begin : 2 * p.end] for p in pieces)
        if set(data[::2]) == {0x40} and set(data[1::2]) == {0x40}:
            threes.add(name)
    assert threes == {f"text/layers/1/attention/{part}" for part in ("query", "gate", "key", "value", "output")}
