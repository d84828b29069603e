"""What the built-in recipes make of the public models, against tables typed from the fact sheet (qwen35.md 0, 5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ninfer_convert import Shaping, plan
from ninfer_convert.errors import RecipeError
from tests.architectures import small
from tests.architectures.building import resources, write_files, write_headers
from tests.architectures.facts import PARENTS_35B, Facts, facts_27b, facts_35b
from tests.oracle.imatrix import legacy
from tests.support import REPOSITORY

if TYPE_CHECKING:
    from ninfer_convert.pipeline.planned import Plan

FORMATS = {
    "Q4": "q4_g64_fp16",
    "Q5": "q5_g64_fp16",
    "Q6": "q6_g64_fp16",
    "Q8": "q8_g32_fp16",
}
DENSE = """
name              qwen3_6_27b  qwen3_8_27b  qwen3_8_27b_q6  qwen3_8_27b_imatrix
token_embedding   Q6           Q8           Q8              Q4
output_head       Q6           Q8           Q8              Q6
attention/query   Q4           Q4           Q4              Q4
attention/key     Q4           Q4           Q4              Q4
attention/gate    Q5           Q5           Q5              Q5
attention/value   Q5           Q5           Q5              Q5
attention/output  Q5           Q5           Q5              Q5/Q4
gdn/query         Q4           Q4           Q4              Q4
gdn/key           Q4           Q4           Q4              Q4
gdn/value         Q5           Q5           Q5              Q5
gdn/z             Q5           Q5           Q5              Q5
gdn/output        Q5           Q5           Q5              Q5/Q4
mlp/gate          Q4           Q4           Q6              Q4
mlp/up            Q4           Q4           Q6              Q4
mlp/down          Q5           Q5           Q5              Q5/Q4
"""
EXPERTS = """
name                qwen3_6_35b_a3b
token_embedding     Q8
output_head         Q6
attention/query     Q8
attention/key       Q8
attention/gate      Q8
attention/value     Q8
attention/output    Q8
gdn/query           Q8
gdn/key             Q8
gdn/value           Q8
gdn/z               Q8
gdn/output          Q8
moe/experts/E/gate  Q4
moe/experts/E/up    Q4
moe/experts/E/down  Q5/Q6
moe/shared/gate     Q8
moe/shared/up       Q8
moe/shared/down     Q8
"""
"""Formats of projections by their names in a layer, the second in LATER layers; all else is in its direct format."""
LATER = {"qwen3_8_27b_imatrix": range(36, 64), "qwen3_6_35b_a3b": (34, 38, 39)}
RECIPES_27B = DENSE.split()[1:5]

PARENTS_27B = (
    ("attention/query", "attention/key"),
    ("attention/gate", "attention/value"),
    ("gdn/query", "gdn/key"),
    ("gdn/value", "gdn/z"),
    ("mlp/gate", "mlp/up"),
)
"""The objects of a layer that hold several parameters, in their order and in that of their rows."""


def imatrix(folder: Path) -> Path:
    """An older matrix file with one vector, of the queries of layer 3."""
    path = folder / "imatrix.dat"
    path.write_bytes(legacy([("blk.3.attn_q.weight", 1, [1.0] * 5120)]))
    return path


def planned(folder: Path, facts: Facts, *recipes: str) -> dict[str, Plan]:
    write_headers(folder, facts.tensors)
    write_files(folder, {"config.json": facts.config, **resources()})
    given = Shaping(sources={"imatrix": str(imatrix(folder))})
    return {recipe: plan(folder, recipe, given if "imatrix" in recipe else Shaping()) for recipe in recipes}


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plan]:
    return planned(tmp_path_factory.mktemp("27b"), facts_27b(), *RECIPES_27B)


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    (made,) = planned(tmp_path_factory.mktemp("35b"), facts_35b(fused=True), "qwen3_6_35b_a3b").values()
    return made


@pytest.mark.parametrize(
    ("kind", "recipe", "feed_forward"),
    [
        *(("experts in banks", recipe, "mlp/*") for recipe in RECIPES_27B if "imatrix" not in recipe),
        ("dense", "qwen3_6_35b_a3b", "moe/*"),
    ],
)
def test_a_model_of_the_other_kind_is_refused(tmp_path: Path, kind: str, recipe: str, feed_forward: str) -> None:
    """Most of it would stay as it is, as no assign speaks of it."""
    small.write(tmp_path, small.KINDS[kind])
    with pytest.raises(RecipeError) as caught:
        plan(tmp_path, recipe)
    assert f"'text/layers/*/{feed_forward}' matches no parameter" in caught.value.problems[0].message


def expected(recipe: str, facts: Facts) -> dict[str, str]:
    """The format of each parameter."""
    head, *lines = (EXPERTS if "a3b" in recipe else DENSE).strip().splitlines()
    column = head.split().index(recipe)
    cells = {line.split()[0]: line.split()[column] for line in lines}
    found = {}
    for fact in facts.parameters:
        parts = fact.name.split("/")
        name = "/".join(parts[3:] if parts[1] == "layers" else parts[1:])
        first, *later = cells.get(re.sub("experts/[0-9]+", "experts/E", name), fact.direct).split("/")
        short = later[0] if later and int(parts[2]) in LATER[recipe] else first
        assert fact.free == (short in FORMATS), fact.name
        found[fact.name] = FORMATS.get(short, short)
    return found


def members(made: Plan) -> Iterator[tuple[str, ...]]:
    """The parameters of each tensor, in the order of their rows."""
    for tensor in made.tensors:
        yield tuple(member.parameter for member in tensor.members)


def objects(facts: Facts, parents: tuple[tuple[str, ...], ...]) -> list[tuple[str, ...]]:
    """The parameters of all tensors in their order: packed ones layer by layer, then each that is left."""
    names = [fact.name for fact in facts.parameters]
    layers = dict.fromkeys(name.split("/")[2] for name in names if "/layers/" in name)
    packed = [tuple(f"text/layers/{layer}/{name}" for name in parent) for layer in layers for parent in parents]
    packed = [parent for parent in packed if parent[0] in set(names)]
    placed = {name for parent in packed for name in parent}
    return packed + [(name,) for name in names if name not in placed]


@pytest.mark.parametrize("recipe", RECIPES_27B)
def test_every_format_of_the_27b(dense: dict[str, Plan], recipe: str) -> None:
    decisions = dense[recipe].resolution.decisions
    found = {name: piece.format for name, (piece,) in decisions.items()}
    assert found == expected(recipe, facts_27b())


def test_every_format_of_the_35b_a3b(experts: Plan) -> None:
    found = {name: piece.format for name, (piece,) in experts.resolution.decisions.items()}
    assert found == expected("qwen3_6_35b_a3b", facts_35b(fused=True))


@pytest.mark.parametrize("recipe", RECIPES_27B)
def test_every_object_of_the_27b(dense: dict[str, Plan], recipe: str) -> None:
    found = list(members(dense[recipe]))
    assert found == objects(facts_27b(), PARENTS_27B)
    assert len(found) == 771
    assert len(dense[recipe].directory.bindings) == 963


def test_every_object_of_the_35b_a3b(experts: Plan) -> None:
    found = list(members(experts))
    assert found == objects(facts_35b(fused=True), PARENTS_35B)
    assert len(found) == 533
    assert len(experts.directory.bindings) == 31403


def test_every_use_is_in_sixteen_bits(dense: dict[str, Plan], experts: Plan) -> None:
    for made, facts, count in (
        (experts, facts_35b(fused=True), 31181),
        *((p, facts_27b(), 609) for p in dense.values()),
    ):
        uses = made.directory.uses
        assert [(use.parameter, use.input) for use in uses] == [
            (fact.name, input) for fact in facts.parameters for input in fact.uses
        ]
        assert {use.activation_policy for use in uses} == {"A16Only"}
        assert len(uses) == count


def test_what_the_recipes_make_is_what_the_engine_computes_with(dense: dict[str, Plan], experts: Plan) -> None:
    for recipe, made in dense.items():
        assert [problem.code for problem in made.warnings] == (["unweighted"] if "imatrix" in recipe else [])
    assert experts.warnings == ()


def test_methods(dense: dict[str, Plan], experts: Plan) -> None:
    for made in (*dense.values(), experts):
        searched = made.recipe.name == "qwen3_8_27b_imatrix"
        for pieces in made.resolution.decisions.values():
            for piece in pieces:
                if piece.format not in FORMATS.values():
                    assert (piece.method.name, piece.parameters) == ("cast_direct", {})
                elif searched:
                    assert piece.method.name == "grouped_search"
                    assert piece.parameters == {"imatrix": "imatrix", "negative_scales": True}
                else:
                    assert (piece.method.name, piece.parameters) == ("grouped_absmax", {})


def test_the_vector_of_the_matrix_weighs_what_shares_its_input(dense: dict[str, Plan]) -> None:
    weighed = {
        member.parameter
        for tensor in dense["qwen3_8_27b_imatrix"].tensors
        for member in tensor.members
        if member.importance is not None
    }
    assert weighed == {"text/layers/3/attention/query", "text/layers/3/attention/gate"}


def test_the_sizes_on_the_page_are_those_of_the_plans(dense: dict[str, Plan], experts: Plan) -> None:
    page = (REPOSITORY / "docs" / "recipes.md").read_text("utf-8")
    sizes = dict(re.findall(r"^\| `(qwen3_\w+)` \|.*\| ([0-9.]+) GB \|$", page, re.MULTILINE))
    plans = {**dense, "qwen3_6_35b_a3b": experts}
    assert sizes == {recipe: f"{made.payload_bytes / 1e9:.1f}" for recipe, made in plans.items()}
