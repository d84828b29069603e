"""What compare holds against what: names, parents, banks and rows cut otherwise, and what has no counterpart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ninfer_convert.container import Binding, Part
from ninfer_convert.errors import SourceError
from ninfer_convert.pipeline.compare import compare
from ninfer_convert.pipeline.conversion import convert
from tests.oracle import gguf
from tests.pipeline import artifacts
from tests.pipeline.comparing import agrees, artifact, checkpoint, only
from tests.support import gaussian


def test_what_has_no_counterpart_is_named(tmp_path: Path) -> None:
    objects = {name: artifacts.floats("fp32", gaussian((4, 6))) for name in ("mlp.up[0].weight", "bent", "ours")}
    provenance = {"skipped": [{"name": "left out", "reason": "not wanted"}, {"name": "gone", "reason": "x"}, 7, {}]}
    path = artifact(tmp_path, objects, provenance=provenance)
    arrays = {"mlp.up[0].weight": gaussian((4, 6)), "bent": gaussian((6, 4)), "theirs": gaussian((2,))}
    found = compare(path, checkpoint(tmp_path, {**arrays, "left out": gaussian((2,))}))
    assert [parameter.name for parameter in found.parameters] == ["mlp.up[0].weight"]
    assert (found.only_in_a, found.only_in_b) == (("ours",), ("theirs",))
    assert [(each.name, each.a, each.b) for each in found.shapes] == [("bent", (4, 6), (6, 4))]
    assert found.skipped == {"left out": "not wanted", "gone": "x"}
    assert not found.identical
    problems = found.judge({"max": 1.0})
    assert [(problem.code, problem.tensor) for problem in problems] == [
        ("missing", "ours"),
        ("missing", "theirs"),
        ("shape", "bent"),
    ]
    assert "[4, 6] and [6, 4]" in problems[-1].message


def test_artifacts_may_lack_what_the_other_has(tmp_path: Path) -> None:
    one = {name: artifacts.floats("fp32", gaussian((4,), seed)) for seed, name in enumerate("abc")}
    two = {name: one[name] for name in "bc"} | {"d": one["a"]}
    skips = {"skipped": [{"name": "a", "reason": "cut"}]}
    found = compare(artifact(tmp_path, one), artifact(tmp_path, two, "b", provenance=skips))
    assert [parameter.name for parameter in found.parameters] == ["b", "c"]
    assert (found.only_in_a, found.only_in_b, dict(found.skipped)) == ((), ("d",), {"a": "cut"})
    assert all(parameter.identical for parameter in found.parameters)
    assert not found.identical


def test_nothing_in_common_is_refused(tmp_path: Path) -> None:
    path = artifact(tmp_path, {"w": artifacts.floats("fp32", gaussian((4,)))})
    with pytest.raises(SourceError, match=r"holds no parameter of .*a\.ninfer"):
        compare(path, checkpoint(tmp_path, {"v": gaussian((4,))}))


def test_renamed_parameters_are_found(tmp_path: Path) -> None:
    """Names that change places are held against the tensors they were made from."""
    arrays = {"first": gaussian((8, 64), 1), "second": gaussian((8, 64), 2), "h.0.w": gaussian((4,), 3)}
    recipe = tmp_path / "r.toml"
    rename = '[[rename]]\nmatch = "{}"\nto = "{}"\n'
    pairs = [("first", "second"), ("second", "first"), (r"h\\.(\\d+)\\.w", r"layers.\\1.weight")]
    recipe.write_text('schema = 1\nname = "r"\n' + "".join(rename.format(*pair) for pair in pairs))
    source = checkpoint(tmp_path, arrays)
    convert(source, recipe, tmp_path / "a.ninfer")
    found = compare(tmp_path / "a.ninfer", source)
    assert {parameter.name: parameter.counterpart for parameter in found.parameters} == {
        "second": "first",
        "first": "second",
        "layers.0.weight": "h.0.w",
    }
    assert found.identical


def test_a_group_is_found_by_the_order_of_its_members(tmp_path: Path) -> None:
    arrays = {name: gaussian((4, 64), seed) for seed, name in enumerate(("q", "k", "v"))}
    parent = artifacts.floats("fp32", np.concatenate(list(arrays.values())))
    bindings = {f"new {name}": Binding(None, (Part("qkv", i * 256, (i + 1) * 256),)) for i, name in enumerate(arrays)}
    made = {"qkv": {"parameters": list(bindings), "tensors": list(arrays)}}
    path = artifact(tmp_path, {"qkv": parent}, bindings=bindings, provenance={"objects": made})
    found = compare(path, checkpoint(tmp_path, arrays))
    assert [parameter.counterpart for parameter in found.parameters] == ["q", "k", "v"]
    assert found.identical


def test_an_alias_is_held_against_what_it_shares(tmp_path: Path) -> None:
    """A tied head is bound though the checkpoint has none."""
    embedding = gaussian((6, 64))
    bindings = {"head": Binding("w"), "embedding": Binding("w"), "lonely": Binding("v")}
    objects = {"w": artifacts.floats("fp32", embedding), "v": artifacts.floats("fp32", gaussian((3,)))}
    path = artifact(tmp_path, objects, bindings=bindings)
    found = compare(path, checkpoint(tmp_path, {"embedding": embedding}))
    assert [(p.name, p.counterpart) for p in found.parameters] == [("head", "embedding"), ("embedding", "embedding")]
    assert found.only_in_a == ("lonely",)


@pytest.mark.parametrize(
    "objects",
    [
        7,
        [],
        {"w": None},
        {"w": {"parameters": "w", "tensors": ["v"]}},
        {"w": {"parameters": ["w"], "tensors": [["v"], 3]}},
        {"w": {"parameters": ["w", "w"], "tensors": ["v"]}},
        {"w": {"parameters": ["w"], "tensors": ["nowhere"]}},
        {"w": {"parameters": ["w"]}},
    ],
)
def test_provenance_of_any_kind_is_no_reason_to_fail(objects: Any, tmp_path: Path) -> None:
    weights = gaussian((4,))
    provenance = {"objects": objects, "skipped": objects}
    path = artifact(tmp_path, {"w": artifacts.floats("fp32", weights)}, provenance=provenance)
    found = compare(path, checkpoint(tmp_path, {"w": weights, "v": weights + 1}))
    assert [(p.name, p.counterpart, p.identical) for p in found.parameters] == [("w", "w", True)]
    assert found.only_in_b == ("v",)


def test_regions_fused_parents_and_banks(tmp_path: Path) -> None:
    """Bindings that begin in the middle of objects and of rows, against a checkpoint and against other cuts."""
    whole = gaussian((12, 65))
    bank = whole.reshape(3, 4, 65)
    one = {"w": artifacts.floats("fp32", whole), "bank": artifacts.floats("fp32", whole)}
    bindings = {"w": Binding("w"), "bank": Binding(None, (Part("bank", 0, 780),))}
    shapes = {"parameters": {"bank": {"shape": [3, 4, 65]}}}
    other = {"head": artifacts.floats("fp32", whole[:5]), "tail": artifacts.floats("bf16", whole[5:])}
    cuts = (Part("head", 0, 325), Part("tail", 0, 455))
    pieces = (Part("w", 0, 100), Part("w", 100, 780))
    a = artifact(tmp_path, one, bindings=bindings, provenance=shapes)
    mixed = {"w": Binding(None, cuts), "bank": Binding(None, cuts)}
    b = artifact(tmp_path, other, "b", bindings=mixed, provenance=shapes)
    c = artifact(
        tmp_path, one, "c", bindings={"w": Binding(None, pieces)}, provenance={"parameters": {"w": {"shape": [12, 65]}}}
    )
    source = checkpoint(tmp_path, {"w": whole, "bank": bank})
    assert compare(a, source).identical
    assert only(compare(c, a)).identical
    cut_values = np.concatenate([other["head"].values, other["tail"].values])
    for found in (compare(b, source), compare(b, a)):
        for parameter in found.parameters:
            assert parameter.format == "fp32+bf16"
            assert not parameter.identical
            agrees(parameter, cut_values, whole)


def test_words_in_rows_cut_otherwise(tmp_path: Path) -> None:
    """The same codes, bound from the middle of a row on, are compared by value: no rows hold the same words."""
    q8 = artifacts.stored("q8_g32_fp16", 4, 64)
    shapes = {"parameters": {"w": {"shape": [128]}}}
    a = artifact(tmp_path, {"q": q8}, bindings={"w": Binding(None, (Part("q", 0, 128),))}, provenance=shapes)
    b = artifact(tmp_path, {"q": q8}, "b", bindings={"w": Binding(None, (Part("q", 32, 160),))}, provenance=shapes)
    parameter = only(compare(a, b))
    assert not parameter.identical
    flat = q8.values.reshape(-1)
    agrees(parameter, flat[:128], flat[32:160])


def test_blocks_in_rows_cut_otherwise(tmp_path: Path) -> None:
    codes = np.arange(256, dtype=np.uint8).view(np.int8).reshape(8, 32)
    blocks = np.concatenate([np.full((8, 1), 0x3C00, np.uint16).view(np.int8), codes], axis=1).view(np.uint8)
    (tmp_path / "m.gguf").write_bytes(gguf.File([gguf.Tensor("w", 8, (2, 64), blocks[:4].tobytes())]).build())
    values = codes.astype(np.float32)
    stored = artifacts.Stored("gguf_q8_0", (4, 64), blocks.tobytes(), blocks.reshape(4, 68), None, values)
    bindings = {"w": Binding(None, (Part("q", 32, 160),))}
    shapes = {"parameters": {"w": {"shape": [2, 64]}}}
    path = artifact(tmp_path, {"q": stored}, bindings=bindings, provenance=shapes)
    parameter = only(compare(path, tmp_path / "m.gguf"))
    assert not parameter.identical
    agrees(parameter, values.reshape(-1)[32:160], values.reshape(-1)[:128])
