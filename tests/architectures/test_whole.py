"""Whole artifacts of small models: the order of what they hold, what is packed, what is told of the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ninfer_convert import convert
from tests.architectures import small
from tests.oracle import binder, container

ROLES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
FULL = (
    ("attention/query", "attention/key", "attention/gate", "attention/value"),
    ("mlp/gate", "mlp/up"),
)
LINEAR = (
    ("gdn/query", "gdn/key", "gdn/value", "gdn/z"),
    ("gdn/a_projection", "gdn/b_projection"),
    ("mlp/gate", "mlp/up"),
)
"""What is packed of a layer in one format."""


def test_bindings_and_uses_stand_in_the_order_of_the_fact_sheet(tmp_path: Path) -> None:
    for name, kind in (("dense", small.KINDS["dense"]), ("experts", small.KINDS["experts of their own"])):
        small.write(tmp_path / name, kind)
        convert(tmp_path / name, "bf16", tmp_path / f"{name}.ninfer")
        bound = binder.load(tmp_path / f"{name}.ninfer")
        directory = container.read(tmp_path / f"{name}.ninfer").directory
        assert list(directory["bindings"]) == list(bound.parameters)
        assert [(use["parameter"], use["input"]) for use in directory["uses"]] == list(bound.uses)


def members(directory: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(id, parameters in the order of their rows) of each tensor."""
    for record in directory["objects"]:
        if record["kind"] == "tensor":
            bound = []
            for name, binding in directory["bindings"].items():
                for part in binding.get("parts", [{"object": binding.get("object"), "range": [0, 0]}]):
                    if part["object"] == record["id"]:
                        bound.append((part["range"], name))
            yield record["id"], tuple(name for _, name in sorted(bound))


def test_parents_come_layer_by_layer_before_all_single_parameters(tmp_path: Path) -> None:
    small.write(tmp_path, small.KINDS["dense"])
    convert(tmp_path, "bf16", tmp_path / "a.ninfer")
    directory = container.read(tmp_path / "a.ninfer").directory
    ids = [record["id"] for record in directory["objects"]]
    assert ids[:4] == [f"resource/text/{role}" for role in ROLES]
    groups = [
        tuple(f"text/layers/{layer}/{name}" for name in group)
        for layer in range(4)
        for group in (FULL if layer % 2 else LINEAR)
    ]
    grouped = {name for group in groups for name in group}
    singles = [(name,) for name in directory["bindings"] if name not in grouped]
    assert list(members(directory)) == [
        (f"weight/{number:06d}", names) for number, names in enumerate([*groups, *singles])
    ]
    (bank,) = (record for record in directory["objects"] if record["id"] == "weight/000000")
    assert bank["shape"] == [2 * small.NK * small.DK + 2 * small.NV * small.DV, small.H]


def test_experts_are_two_banks_of_a_layer(tmp_path: Path) -> None:
    small.write(tmp_path, small.KINDS["experts in banks"])
    convert(tmp_path, "bf16", tmp_path / "a.ninfer")
    directory = container.read(tmp_path / "a.ninfer").directory
    banks = [names for _, names in members(directory) if len(names) > 1 and "text/layers/3/moe" in names[0]]
    layer = "text/layers/3/moe"
    assert banks == [
        (f"{layer}/router", f"{layer}/shared_score"),
        tuple(f"{layer}/experts/{expert}/{half}" for expert in range(small.E) for half in ("gate", "up")),
        tuple(f"{layer}/experts/{expert}/down" for expert in range(small.E)),
        (f"{layer}/shared/gate", f"{layer}/shared/up"),
    ]


def test_what_is_passed_by_is_recorded(tmp_path: Path) -> None:
    small.write(tmp_path, small.Kind(extra=("mtp.fc.weight", "model.visual.pos_embed.weight")))
    convert(tmp_path, "bf16", tmp_path / "a.ninfer")
    skipped = container.read(tmp_path / "a.ninfer").directory["provenance"]["skipped"]
    assert skipped == [
        {
            "name": "mtp.fc.weight",
            "tensors": ["mtp.fc.weight"],
            "reason": "component mtp is not converted yet",
        },
        {
            "name": "model.visual.pos_embed.weight",
            "tensors": ["model.visual.pos_embed.weight"],
            "reason": "component vision is not converted yet",
        },
    ]


def test_the_config_of_the_component_is_the_reduced_one(tmp_path: Path) -> None:
    small.write(tmp_path, small.KINDS["dense"])
    convert(tmp_path, "bf16", tmp_path / "a.ninfer")
    held = container.read(tmp_path / "a.ninfer").directory["components"]
    assert list(held) == ["text"]
    assert held["text"]["config"]["architectures"] == ["Qwen3_5ForCausalLM"]
    assert "text_config" not in json.dumps(held)
