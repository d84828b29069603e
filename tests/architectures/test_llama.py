"""Llama and Qwen3 under logical names: the smallest user of the tables."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import pytest

from ninfer_convert.architectures import Request, Resource
from tests.architectures.building import build, refusal, write_files, write_headers
from tests.architectures.llamas import CASES, LLAMA, LLAMA_LAYER, QWEN3, QWEN3_LAYER, lines, write


@pytest.mark.parametrize(("config", "layer"), CASES.values(), ids=CASES)
def test_parameters_and_groups(tmp_path: Path, config: dict[str, Any], layer: str) -> None:
    model = build(write(tmp_path, config, layer), "llama")
    found = [
        (p.name, p.shape, p.source.origins[0].tensor, p.uses, p.importance.name if p.importance else None)
        for p in model.parameters
    ]
    assert found == lines(config, layer)
    assert model.groups == tuple(
        tuple(f"text/layers/{number}/{name}" for name in group)
        for number in range(2)
        for group in (("attention/query", "attention/key", "attention/value"), ("mlp/gate", "mlp/up"))
    )


def test_nothing_is_locked_and_stored_words_stay(tmp_path: Path) -> None:
    model = build(write(tmp_path, LLAMA, LLAMA_LAYER, stored="F16"), "llama")
    assert {(p.direct, p.locked, p.stored) for p in model.parameters} == {(None, None, "F16")}
    assert sum(p.source.nbytes for p in model.parameters) == 2 * sum(
        prod(shape) for _, shape, _, _, _ in lines(LLAMA, LLAMA_LAYER)
    )


def test_it_is_marked_as_what_no_engine_binds(tmp_path: Path) -> None:
    model = build(write(tmp_path, LLAMA, LLAMA_LAYER), "llama")
    reason = "no engine binds the artifact today: its parameters have the logical names of Llama and Qwen3"
    assert model.unbindable == reason


def test_the_config_stays_whole_but_for_what_tells_of_storage(tmp_path: Path) -> None:
    (component,) = build(write(tmp_path, LLAMA, LLAMA_LAYER), "llama").components
    assert component.config == {name: value for name, value in LLAMA.items() if name != "torch_dtype"}


def test_the_files_that_there_are_become_resources(tmp_path: Path) -> None:
    write(tmp_path, LLAMA, LLAMA_LAYER)
    write_files(tmp_path, {"tokenizer.json": "{}", "generation_config.json": ""})
    request = Request(resources=(Resource("text", "README.md", b"read", "README.md"),))
    model = build(tmp_path, "llama", request)
    assert [(resource.role, resource.content) for resource in model.resources] == [
        ("tokenizer.json", b"{}"),
        ("README.md", b"read"),
    ]
    assert [problem.code for problem in model.warnings] == ["empty-resource"]


def test_rotary_frequencies_and_the_own_tensor_of_a_tied_head_are_passed_by(tmp_path: Path) -> None:
    frequencies = [f"model.layers.{number}.self_attn.rotary_emb.inv_freq" for number in range(2)]
    model = build(write(tmp_path, QWEN3, QWEN3_LAYER, *frequencies, "lm_head.weight"), "llama")
    assert model.passed_by == {
        "rotary frequencies, which follow from the config": tuple(frequencies),
        "the head reads the embedding (tie_word_embeddings)": ("lm_head.weight",),
    }


@pytest.mark.parametrize(
    ("members", "heads", "keys", "width"),
    [({}, 4, 2, 16), ({"num_key_value_heads": None}, 4, 4, 16), ({"head_dim": 8}, 4, 2, 8)],
)
def test_sizes_that_config_leaves_out(
    tmp_path: Path, members: dict[str, Any], heads: int, keys: int, width: int
) -> None:
    config = {**LLAMA, **members}
    shapes: dict[str, tuple[int, ...]] = {tensor: shape for _, shape, tensor, _, _ in lines(config, LLAMA_LAYER)}
    for number in range(2):
        before = f"model.layers.{number}.self_attn."
        shapes[f"{before}q_proj.weight"] = (heads * width, 64)
        shapes[f"{before}k_proj.weight"] = shapes[f"{before}v_proj.weight"] = (keys * width, 64)
        shapes[f"{before}o_proj.weight"] = (64, heads * width)
    write_headers(tmp_path, shapes)
    write_files(tmp_path, {"config.json": config})
    assert refusal(tmp_path, "llama") == []


def test_what_is_wrong_is_told_together(tmp_path: Path) -> None:
    write(tmp_path / "config", {**LLAMA, "hidden_size": "wide", "mlp_bias": 1}, LLAMA_LAYER)
    assert refusal(tmp_path / "config", "llama") == [
        ("bad-config", 'hidden_size is "wide", where a whole number from 1 to 4294967295 was expected'),
        ("bad-config", "mlp_bias is 1, where true or false was expected"),
    ]
    write(tmp_path / "layers", {**LLAMA, "num_hidden_layers": 10**9}, LLAMA_LAYER)
    message = "num_hidden_layers is 1000000000, where a whole number from 1 to 4096 was expected"
    assert refusal(tmp_path / "layers", "llama") == [("bad-config", message)]
    write(tmp_path / "tensors", LLAMA, LLAMA_LAYER, "model.extra")
    config = {**LLAMA, "intermediate_size": 95, "attention_bias": True}
    write_files(tmp_path / "tensors", {"config.json": config})
    codes = [code for code, _ in refusal(tmp_path / "tensors", "llama")]
    assert codes == [*["wrong-shape"] * 6, *["missing-tensor"] * 8, "unknown-tensor"]
