"""Numbers, names, shapes and words that members of the directory may have (container.md 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ninfer_convert.container import Proposal
from tests.container.directories import faults, fp32, future, parse, parts, problems, resource, root, tensor, whole
from tests.container.records import full, put

U64 = 2**64 - 1
INTEGERS = [
    (("objects", 0), "offset", 0),
    (("objects", 1), "offset", 0),
    (("objects", 0), "bytes", 1),
    (("objects", 1), "bytes", 1),
    (("objects", 1), "divisors", 1),
    (("components", "text", "proposal"), "rows", 1),
    (("files", 0), "payload_bytes", 1),
]


@pytest.mark.parametrize(("at", "name", "least"), INTEGERS, ids=str)
def test_sizes_are_exact_integers_of_64_bits(at: tuple[str | int, ...], name: str, least: int) -> None:
    values: list[Any] = [least - 1, U64 + 1, 1.0, 1e3, "1", True, None, [1], {}]
    for wrong in values:
        (problem, *_) = problems(put(full(), at, name, wrong))
        assert problem.code == "integer"
        assert f"expected an integer from {least} to 2^64 - 1" in problem.message
    for right in (least, U64):
        assert "integer" not in {code for code, _ in faults(put(full(), at, name, right))}


NAMES: list[tuple[str, Callable[[Any], dict[str, Any]]]] = [
    ("objects[0].id", lambda name: root([resource(name, 0, 1)])),
    ("objects[0].format", lambda name: root([tensor("a", [1], name, "contiguous_le_v1", 0, 4)])),
    ("objects[0].layout", lambda name: root([tensor("a", [1], "fp32", name, 0, 4)])),
    ("components.text.target", lambda name: root(components={"text": {"config": {}, "target": name}})),
    ("components.text.resources.x", lambda name: root(components={"text": {"config": {}, "resources": {"x": name}}})),
    ("bindings.w.object", lambda name: root(bindings={"w": whole(name)})),
    ("bindings.w.parts[0].object", lambda name: root(bindings={"w": parts((name, 0, 1))})),
    ("uses[0].parameter", lambda name: root(uses=[{"parameter": name, "input": "x"}])),
    ("uses[0].input", lambda name: root(bindings={"w": whole("a")}, uses=[{"parameter": "w", "input": name}])),
]


@pytest.mark.parametrize(("member", "make"), NAMES, ids=[member for member, _ in NAMES])
def test_names_are_non_empty_strings_without_nul(member: str, make: Callable[[Any], dict[str, Any]]) -> None:
    for wrong in ("", "a\0", 1, None, ["a"]):
        assert ("id", member) in faults(make(wrong))
    assert "id" not in {code for code, _ in faults(make("é 層\n/\\"))}


KEYS: list[Callable[[str], dict[str, Any]]] = [
    lambda name: root(components={name: {"config": {}}}),
    lambda name: root(components={"text": {"config": {}, "resources": {name: "r"}}}),
    lambda name: root(bindings={name: whole("a")}),
]


@pytest.mark.parametrize("make", KEYS)
def test_names_of_components_roles_and_parameters_obey_the_same_rule(make: Callable[[str], dict[str, Any]]) -> None:
    for wrong in ("", "a\0b"):
        assert [code for code, _ in faults(make(wrong))] == ["id"]
    assert faults(make("é 層\n/\\")) == []


def test_names_are_compared_exactly() -> None:
    names = ["é", "e\u0301", "É", "é "]
    assert faults(root([resource(name, place, 1) for place, name in enumerate(names)])) == []


@pytest.mark.parametrize("shape", [[], [1], [1] * 16, [2**63, 1], [2**32, 2**31], [U64]])
def test_legal_shapes(shape: list[int]) -> None:
    assert faults(root([future("a", shape, 0)])) == []


@pytest.mark.parametrize(
    "shape",
    [
        [1] * 17,
        [0],
        [4, 0],
        [-1],
        [1.0],
        [True],
        ["1"],
        [None],
        [[1]],
        [2**32, 2**32],
        [U64, 2],
        [2**64],
        None,
        4,
        {},
        "4",
    ],
)
def test_illegal_shapes(shape: Any) -> None:
    value = future("a", [], 0)
    value["shape"] = shape
    assert faults(root([value])) == [("shape", "objects[0].shape")]


@pytest.mark.parametrize(
    "span", [[0, 0], [2, 1], [-1, 1], [0, 1.0], [False, 1], [0, "1"], [0], [0, 1, 2], None, {}, 3, [0, 2**64]]
)
def test_illegal_ranges(span: Any) -> None:
    value = root(bindings={"w": {"parts": [{"object": "a", "range": span}]}})
    assert faults(value) == [("range", "bindings.w.parts[0].range")]


@pytest.mark.parametrize(
    ("member", "wrong"),
    [
        ("components", [None, [], 1, "x", {}]),
        ("objects", [None, {}, 1, "x", []]),
        ("bindings", [None, [], 1, "x"]),
        ("uses", [None, {}, 1, "x"]),
        ("files", [None, {}, 1, "x", []]),
        ("metadata", [None, [], 1, "x"]),
        ("provenance", [None, [], 1, "x"]),
    ],
)
def test_root_members_of_another_type(member: str, wrong: list[Any]) -> None:
    for value in wrong:
        assert faults({**root(), member: value}) == [("type", member)]


@pytest.mark.parametrize("value", [None, [], 1, "x", True])
def test_records_of_another_type(value: Any) -> None:
    assert faults(root(components={"text": value})) == [("type", "components.text")]
    assert faults(root(components={"text": {"config": value}})) == [("type", "components.text.config")]
    assert faults(root(components={"text": {"config": {}, "proposal": value}})) == [
        ("type", "components.text.proposal")
    ]
    assert faults(root([*root()["objects"], value], files=root()["files"])) == [("type", "objects[3]")]
    assert faults(root(bindings={"w": value})) == [("type", "bindings.w")]
    assert faults(root(bindings={"w": {"parts": [value]}})) == [("type", "bindings.w.parts[0]")]
    assert faults(root(uses=[value])) == [("type", "uses[0]")]
    assert faults(root(files=[value])) == [("type", "files[0]")]
    assert [code for code, _ in faults(value)] == ["type"]


def test_parts_are_never_empty() -> None:
    assert faults(root(bindings={"w": {"parts": []}})) == [("type", "bindings.w.parts")]
    assert faults(root(bindings={"w": {}})) == [("missing-member", "bindings.w.object")]


def test_kinds_and_encodings_are_known_words() -> None:
    kinds: list[Any] = ["Tensor", "", 1, None]
    for kind in kinds:
        assert ("value", "objects[0].kind") in faults(root([{**resource("r", 0, 1), "kind": kind}]))
    for encoding in ("raw", "raw_bytes_v2", None):
        assert faults(root([{**resource("r", 0, 1), "encoding": encoding}])) == [("value", "objects[0].encoding")]
    mixed = {**fp32("a", [1], 0), "encoding": "raw_bytes_v1"}
    assert faults(root([mixed])) == [("unknown-member", "objects[0].encoding")]


def test_policies_are_known_words() -> None:
    use = {"parameter": "w", "input": "x"}
    for policy in ("A16Only", "AllowA8", "AllowA4"):
        value = root(bindings={"w": whole("a")}, uses=[{**use, "activation_policy": policy}])
        assert parse(value).uses[0].activation_policy == policy
    wrong: list[Any] = ["a16only", "", 4, None]
    for policy in wrong:
        value = root(bindings={"w": whole("a")}, uses=[{**use, "activation_policy": policy}])
        assert faults(value) == [("value", "uses[0].activation_policy")]


def test_proposals() -> None:
    def proposing(proposal: Any, component: str = "text") -> dict[str, Any]:
        return root(components={component: {"config": {}, "proposal": proposal}})

    assert parse(proposing({"domain": "full"})).components["text"].proposal == Proposal()
    assert parse(proposing({"domain": "indexed", "rows": 5})).components["text"].proposal == Proposal(5)
    assert faults(proposing({"domain": "half"})) == [("value", "components.text.proposal.domain")]
    assert faults(proposing({"domain": "indexed", "rows": 0})) == [("integer", "components.text.proposal.rows")]
    assert faults(proposing({"rows": 5})) == [
        ("unknown-member", "components.text.proposal.rows"),
        ("missing-member", "components.text.proposal.domain"),
    ]
    assert faults(proposing({"domain": "full"}, "vision")) == [("proposal", "components.vision.proposal")]


def test_the_public_name_is_a_non_empty_string() -> None:
    assert faults(root(metadata={})) == []
    for name in ("", None, 1, ["x"]):
        assert faults(root(metadata={"name": name})) == [("name", "metadata.name")]
