"""Checkpoints whose tensors are not those of their config: all that is missing and too much, in one report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ninfer_convert.architectures import Request
from tests.architectures import small
from tests.architectures.building import build, refusal, resources, write_files, write_headers
from tests.architectures.facts import facts_27b, facts_35b

KIND = small.KINDS["dense"]
TOP = "model.language_model."


def with_names(folder: Path, change: Callable[[str], str | None], kind: small.Kind = KIND) -> Path:
    """A checkpoint whose tensors are renamed, or left out for None."""
    named = ((change(name), shape) for name, shape in small.shapes(kind).items())
    write_headers(folder, {name: shape for name, shape in named if name is not None})
    write_files(folder, {"config.json": small.config(kind), **resources()})
    return folder


def test_a_renamed_norm_and_a_lost_one_with_the_names_next_to_them(tmp_path: Path) -> None:
    renamed = {
        f"{TOP}layers.1.input_layernorm.weight": f"{TOP}layers.1.input_norm.weight",
        f"{TOP}layers.3.self_attn.k_norm.weight": None,
    }
    assert refusal(with_names(tmp_path, lambda name: renamed.get(name, name))) == [
        (
            "missing-tensor",
            f"{TOP}layers.1.input_layernorm.weight is missing; is it {TOP}layers.1.input_norm.weight?",
        ),
        ("missing-tensor", f"{TOP}layers.3.self_attn.k_norm.weight is missing"),
        (
            "unknown-tensor",
            f"{TOP}layers.1.input_norm.weight is no tensor of this model; leave it out with [[skip]]",
        ),
    ]


@pytest.mark.parametrize("kind", [KIND, small.KINDS["dense, text only"]], ids=["nested", "text only"])
def test_a_prefix_before_all_names(tmp_path: Path, kind: small.Kind) -> None:
    problems = refusal(with_names(tmp_path, lambda name: f"module.{name}", kind))
    count = len(small.shapes(kind)) - 1
    example = f"{kind.prefix}embed_tokens.weight"
    assert problems == [
        (
            "other-prefix",
            f"the names of {count} tensors begin with 'module.{kind.prefix}' where '{kind.prefix}' was expected, as in "
            f'module.{example} for {example}; rename them, or say architecture = "generic"',
        ),
        ("missing-tensor", "lm_head.weight is missing; is it module.lm_head.weight?"),
        ("unknown-tensor", "module.lm_head.weight is no tensor of this model; leave it out with [[skip]]"),
    ]


def test_the_prefix_that_a_text_config_decides(tmp_path: Path) -> None:
    ((code, message),) = refusal(with_names(tmp_path, lambda name: name.replace(TOP, "model.")))
    assert code == "other-prefix"
    assert f"begin with 'model.' where '{TOP}' was expected" in message


def test_names_without_any_prefix(tmp_path: Path) -> None:
    ((code, message),) = refusal(with_names(tmp_path, lambda name: name.removeprefix(TOP)))
    assert code == "other-prefix"
    assert f"have no prefix where '{TOP}' was expected" in message


def test_a_few_names_under_another_prefix_are_no_prefix(tmp_path: Path) -> None:
    problems = refusal(with_names(tmp_path, lambda name: None if "layers.2" in name else name))
    assert {code for code, _ in problems} == {"missing-tensor"}
    assert len(problems) == 14


@pytest.mark.parametrize(
    ("kind", "tensor", "shape"),
    [
        (KIND, "layers.1.self_attn.q_proj.weight", (128, 288)),
        (KIND, "layers.0.linear_attn.conv1d.weight", (4, 1, 256)),
        (KIND, "layers.0.linear_attn.conv1d.weight", (256, 4)),
        (small.KINDS["experts in banks"], "layers.0.mlp.experts.gate_up_proj", (3, 128, 256)),
        (small.KINDS["experts in banks"], "layers.0.mlp.experts.down_proj", (3, 128, 127)),
    ],
)
def test_a_shape_that_config_does_not_make(
    tmp_path: Path, kind: small.Kind, tensor: str, shape: tuple[int, ...]
) -> None:
    shapes = small.shapes(kind)
    name = kind.prefix + tensor
    write_headers(tmp_path, {**shapes, name: shape})
    write_files(tmp_path, {"config.json": small.config(kind), **resources()})
    message = f"{name} has the shape {list(shape)}, where config.json makes it {list(shapes[name])}"
    assert refusal(tmp_path) == [("wrong-shape", message)]


def test_experts_are_judged_by_how_their_layer_stores_them(tmp_path: Path) -> None:
    lost = f"{TOP}layers.2.mlp.experts.1.up_proj.weight"
    problems = refusal(
        with_names(tmp_path / "own", lambda name: name if name != lost else None, small.Kind(experts=True))
    )
    assert problems == [("missing-tensor", f"{lost} is missing")]
    lost = f"{TOP}layers.2.mlp.experts.down_proj"
    kind = small.KINDS["experts in banks"]
    assert refusal(with_names(tmp_path / "banks", lambda name: name if name != lost else None, kind)) == [
        ("missing-tensor", f"{lost} is missing")
    ]


def test_a_recipe_may_leave_out_what_is_too_much(tmp_path: Path) -> None:
    small.write(tmp_path, small.Kind(extra=("head.scale", "head.zero")))
    assert [code for code, _ in refusal(tmp_path)] == ["unknown-tensor"] * 2
    model = build(tmp_path, request=Request(skips=lambda name: "not needed" if name.startswith("head.") else None))
    assert model.passed_by == {"not needed": ("head.scale", "head.zero")}


def test_a_checkpoint_of_another_model_is_told_once(tmp_path: Path) -> None:
    config = facts_35b(fused=False).config
    write_headers(tmp_path, {f"x{number}.weight": (1,) for number in range(5000)})
    text = {**config["text_config"], "num_hidden_layers": 4}
    write_files(tmp_path, {"config.json": {**config, "text_config": text}, **resources()})
    count = 3 + 3 * (14 - 3 + 5 + 768) + (11 - 3 + 5 + 768)
    message = (
        f"lacks {count} of the {count} tensors of the model that {tmp_path}/config.json describes, "
        "model.language_model.embed_tokens.weight the first: this is another model, or not all of it"
    )
    assert refusal(tmp_path) == [("another-model", message)]


def test_other_tensors_than_config_says_by_their_layers(tmp_path: Path) -> None:
    facts = facts_27b()
    write_headers(tmp_path, facts.tensors)
    config = {**facts.config, "text_config": {**facts.config["text_config"], "num_hidden_layers": 63}}
    write_files(tmp_path, {"config.json": config, **resources()})
    problems = refusal(tmp_path)
    assert {code for code, _ in problems} == {"unknown-tensor"}
    assert len(problems) == 11
