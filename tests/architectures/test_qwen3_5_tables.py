"""The logical parameters of the two public models, against tables typed from the fact sheet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.architectures.building import build, resources, write_files, write_headers
from tests.architectures.facts import IMPORTANCE, Facts, facts_27b, facts_35b

if TYPE_CHECKING:
    from ninfer_convert.architectures import Model


def model_of(facts: Facts, folder: Path) -> Model:
    write_headers(folder, facts.tensors)
    write_files(folder, {"config.json": facts.config, **resources()})
    return build(folder)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return model_of(facts_27b(), tmp_path_factory.mktemp("27b"))


@pytest.fixture(scope="module", params=["fused", "separate"])
def experts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Facts]:
    facts = facts_35b(fused=request.param == "fused")
    return model_of(facts, tmp_path_factory.mktemp("35b")), facts


def check(model: Model, facts: Facts) -> None:
    assert model.architecture == "qwen3_5"
    assert model.unbindable is None
    assert model.warnings == ()
    assert model.passed_by == {}
    assert [parameter.name for parameter in model.parameters] == [fact.name for fact in facts.parameters]
    for parameter, fact in zip(model.parameters, facts.parameters, strict=True):
        assert parameter.shape == fact.shape, fact.name
        assert parameter.direct == fact.direct, fact.name
        assert parameter.locked == (None if fact.free else f"the engine takes it as {fact.direct} only"), fact.name
        assert parameter.uses == fact.uses, fact.name
        assert [origin.tensor for origin in parameter.source.origins] == [fact.tensor], fact.name
    assert model.groups == facts.groups


def test_the_27b(dense: Model) -> None:
    facts = facts_27b()
    assert len(facts.tensors) == 851
    check(dense, facts)
    assert len(dense.parameters) == 963
    assert sum(len(parameter.uses) for parameter in dense.parameters) == 609


def test_the_35b_a3b(experts: tuple[Model, Facts]) -> None:
    model, facts = experts
    check(model, facts)
    assert len(model.parameters) == 31403
    assert sum(len(parameter.uses) for parameter in model.parameters) == 31181


def test_importances_lie_where_llama_cpp_has_the_same_inputs(dense: Model, experts: tuple[Model, Facts]) -> None:
    known = dict(line.split() for line in IMPORTANCE.strip().splitlines())
    for model, layers in ((dense, (2, 3)), (experts[0], (38, 39))):
        parameters = {parameter.name: parameter for parameter in model.parameters}
        for layer in layers:
            before = f"text/layers/{layer}/"
            found = {}
            for name, parameter in parameters.items():
                place = parameter.importance
                if place is None or not name.startswith(before):
                    assert not parameter.uses or not name.startswith(before)
                    continue
                found[name.removeprefix(before)] = place.name
                expert = name.split("/")[5] if "/experts/" in name else None
                assert place.expert == (None if expert is None else int(expert))
            expected = {
                name: f"blk.{layer}.{entry}.weight" for name, entry in known.items() if before + name in parameters
            }
            assert {name: entry for name, entry in found.items() if name in known} == expected
            assert len(found) == sum(bool(p.uses) for name, p in parameters.items() if name.startswith(before))
        assert parameters["text/output_head"].importance is not None
        assert parameters["text/output_head"].importance.name == "output.weight"


def test_value_heads_of_an_importance_stand_as_hugging_face_has_them(
    dense: Model, experts: tuple[Model, Facts]
) -> None:
    for model, key_heads, value_heads in ((dense, 16, 48), (experts[0], 16, 32)):
        places = {p.name: p.importance for p in model.parameters if p.importance and p.importance.columns}
        assert set(places) == {p.name for p in model.parameters if p.name.endswith("gdn/output")}
        place = places["text/layers/0/gdn/output"]
        assert place is not None
        shared = value_heads // key_heads
        tiled = [key * shared + j for j in range(shared) for key in range(key_heads)]
        columns = [head * 128 + column for head in tiled for column in range(128)]
        assert [columns[column] for begin, end in place.columns for column in range(begin, end)] == list(
            range(value_heads * 128)
        )
