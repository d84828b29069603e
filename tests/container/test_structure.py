"""Members and types of every record of the directory (container.md 2)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_convert.container import (
    Binding,
    Component,
    Directory,
    File,
    Part,
    Proposal,
    ResourceObject,
    TensorObject,
    Use,
    parse_directory,
    serialize,
    with_digests,
)
from ninfer_convert.errors import ArtifactError
from tests.container.directories import (
    PATH,
    faults,
    fp32,
    future,
    parse,
    parts,
    problems,
    resource,
    root,
    tensor,
    whole,
)

U64 = 2**64 - 1


def full() -> dict[str, Any]:
    """A directory in which every record and every optional member occurs."""
    return root(
        [
            resource("tokenizer", 0, 18),
            tensor("n", [256, 64], "nvfp4", "block_scale_k16_m128x4_v1", 256, 9224, divisors=2),
            tensor("d", [], "fp32", "contiguous_le_v1", 9728, 4),
        ],
        components={
            "text": {
                "config": {"anything": [1, {"at": None}]},
                "resources": {"tokenizer.json": "tokenizer"},
                "proposal": {"domain": "indexed", "rows": 7},
            },
            "mtp": {"config": {}, "target": "text"},
        },
        bindings={"w": whole("n"), "v": parts(("n", 0, 64), ("n", 128, 192)), "divisor": whole("d")},
        uses=[
            {
                "parameter": "w",
                "input": "x",
                "activation_policy": "AllowA4",
                "auxiliaries": {"activation_input_divisor": whole("d")},
            },
            {"parameter": "w", "input": "y"},
        ],
        metadata={"name": "tiny", "more": {}},
        provenance={"tool": {"name": "other"}},
    )


def test_every_record_is_read() -> None:
    assert parse(full()) == Directory(
        components={
            "text": Component({"anything": [1, {"at": None}]}, None, {"tokenizer.json": "tokenizer"}, Proposal(7)),
            "mtp": Component({}, "text"),
        },
        objects=(
            ResourceObject("tokenizer", 0, 18),
            TensorObject("n", (256, 64), "nvfp4", "block_scale_k16_m128x4_v1", 256, 9224, 2),
            TensorObject("d", (), "fp32", "contiguous_le_v1", 9728, 4),
        ),
        bindings={
            "w": Binding("n"),
            "v": Binding(None, (Part("n", 0, 64), Part("n", 128, 192))),
            "divisor": Binding("d"),
        },
        uses=(Use("w", "x", "AllowA4", {"activation_input_divisor": Binding("d")}), Use("w", "y")),
        files=(File(None, 9732),),
        metadata={"name": "tiny", "more": {}},
        provenance={"tool": {"name": "other"}},
    )


def test_a_directory_is_written_compactly_in_the_order_of_the_specification() -> None:
    text = serialize(parse(full())).decode()
    assert text == json.dumps(full(), separators=(",", ":"))
    shuffled = dict(reversed(full().items()))
    assert serialize(parse(shuffled)).decode() == text


def test_optional_members_are_written_only_where_they_hold_something() -> None:
    assert serialize(parse(root([fp32("a", [3, 4], 0)]))) == (
        b'{"components":{"text":{"config":{"model_type":"tiny"}}},"objects":[{"id":"a","kind":"tensor","shape":[3,4],'
        b'"format":"fp32","layout":"contiguous_le_v1","offset":0,"bytes":48}],"bindings":{},"uses":[],'
        b'"files":[{"path":null,"payload_bytes":48}]}'
    )


def test_nothing_is_escaped_that_json_does_not_ask_for() -> None:
    names = {"größe/層\u2028\U0001f600": whole("a"), 'a"\\\n\x01\x7f': whole("a")}
    text = serialize(parse(root(bindings=names)))
    assert "größe/層\u2028\U0001f600".encode() in text
    assert rb'"a\"\\\n\u0001' + b'\x7f"' in text
    assert set(parse_directory(text, PATH).bindings) == set(names)


def test_what_json_cannot_hold_is_not_written() -> None:
    for config in ({"x": float("nan")}, {"x": float("inf")}, {"x": "\ud800"}):
        directory = Directory({"text": Component(config)}, (ResourceObject("r", 0, 1),), {})
        with pytest.raises(ValueError, match=r"JSON|surrogates"):
            serialize(directory)


def test_digests_are_put_into_provenance() -> None:
    directory = parse(root(provenance={"tool": 1, "objects": {"a": {"method": "m", "sha256": "0" * 64}, "b": {}}}))
    digested = with_digests(directory, {"a": "1" * 64, "r": "2" * 64})
    assert digested.provenance == {
        "tool": 1,
        "objects": {"a": {"method": "m", "sha256": "1" * 64}, "b": {}, "r": {"sha256": "2" * 64}},
    }
    assert list(digested.provenance["objects"]["a"]) == ["method", "sha256"]
    assert directory.provenance["objects"]["a"]["sha256"] == "0" * 64
    assert len(serialize(with_digests(digested, {"a": "f" * 64}))) == len(serialize(digested))


def records(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The way to every object of a JSON value that is closed: none inside config, metadata, provenance."""
    found = [at] if isinstance(value, dict) else []
    steps: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        steps = list(value.items())
    elif isinstance(value, list):
        steps = list(enumerate(value))
    for step, item in steps:
        if step not in ("config", "metadata", "provenance"):
            found += records(item, (*at, step))
    return found


def put(value: Any, at: tuple[str | int, ...], name: str, member: Any) -> Any:
    """A copy of `value` whose record at `at` has another member."""
    changed = copy.deepcopy(value)
    member_of(changed, at)[name] = member
    return changed


def drop(value: Any, at: tuple[str | int, ...], name: str) -> Any:
    """A copy of `value` whose record at `at` lacks a member."""
    changed = copy.deepcopy(value)
    del member_of(changed, at)[name]
    return changed


def member_of(value: Any, at: tuple[str | int, ...]) -> Any:
    """What stands at `at`."""
    for step in at:
        value = value[step]
    return value


MAPS = {"components", "bindings", "resources", "auxiliaries"}
CLOSED = [at for at in records(full()) if not at or at[-1] not in MAPS]


def test_closed_records_are_all_kinds() -> None:
    assert len(CLOSED) == 1 + 2 + 1 + 3 + 3 + 2 + 2 + 1 + 1


@pytest.mark.parametrize("at", CLOSED, ids=str)
def test_no_other_member_is_allowed_in_any_record(at: tuple[str | int, ...]) -> None:
    (problem,) = problems(put(full(), at, "extra", 1))
    assert problem.code == "unknown-member"
    assert problem.message.endswith("extra: no such member")


def test_a_misspelt_member_names_the_nearest() -> None:
    value = full()
    value["objects"][1]["byts"] = value["objects"][1].pop("bytes")
    unknown, missing = problems(value)
    assert unknown.message == "objects[1].byts: no such member; did you mean bytes?"
    assert missing.message == "objects[1].bytes: is missing"


def test_config_metadata_and_provenance_are_open() -> None:
    value = full()
    for record in (value["components"]["text"]["config"], value["metadata"], value["provenance"]):
        record["extra"] = {"deep": [1.5, True, None, "x"]}
    assert faults(value) == []


OPTIONAL = {"target", "resources", "proposal", "divisors", "activation_policy", "auxiliaries", "metadata", "provenance"}


@pytest.mark.parametrize("at", [at for at in CLOSED if at != ("bindings", "v")], ids=str)
def test_every_required_member_is_required(at: tuple[str | int, ...]) -> None:
    required = set(member_of(full(), at)) - OPTIONAL
    assert required
    for name in required:
        missing = [member for code, member in faults(drop(full(), at, name)) if code == "missing-member"]
        assert [member.rpartition(".")[2] for member in missing] == [name]


def test_every_optional_member_may_be_left_out() -> None:
    for at in CLOSED:
        for name in set(member_of(full(), at)) & OPTIONAL - {"divisors"}:
            assert faults(drop(full(), at, name)) == []


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


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_is_at_most_64_deep() -> None:
    # The root and provenance are the two outermost.
    assert faults(root(provenance={"x": nested(62)})) == []
    assert faults(root(provenance={"x": nested(63)}))[0][0] == "json"


def test_white_space_behind_the_directory_is_json() -> None:
    text = json.dumps(root()).encode()
    assert parse_directory(text + b" \n\t\r" * 100, PATH) == parse(root())
    with pytest.raises(ArtifactError):
        parse_directory(text + b"\0", PATH)


def test_problems_are_told_all_in_the_order_of_the_directory() -> None:
    value = {
        "files": [{"path": None, "payload_bytes": 0}],
        "uses": [{"parameter": "w", "input": ""}, {"parameter": "nope", "input": "x"}],
        "extra": 1,
        "objects": [
            {**fp32("a", [3, 4], 0), "bytes": 44},
            {**fp32("b", [3, 4], 256), "shape": [0]},
            {**resource("r", 512, 1), "offset": -1},
        ],
        "bindings": {
            "w": whole("a"),
            "v": {"parts": [{"object": "a", "range": [12, 13]}, {"object": "x", "range": [0, 1]}]},
        },
        "components": {"text": {"config": 1}, "mtp": {"config": {}, "target": "txt"}},
    }
    assert faults(value) == [
        ("integer", "files[0].payload_bytes"),
        ("id", "uses[0].input"),
        ("reference", "uses[1].parameter"),
        ("unknown-member", "extra"),
        ("size", "objects[0].bytes"),
        ("shape", "objects[1].shape"),
        ("integer", "objects[2].offset"),
        ("range", "bindings.v.parts[0].range"),
        ("reference", "bindings.v.parts[1].object"),
        ("type", "components.text.config"),
        ("reference", "components.mtp.target"),
    ]
    assert {problem.path for problem in problems(value)} == {PATH}
    assert problems(value)[4].tensor == "a"


def test_members_are_named_so_that_they_can_be_found() -> None:
    value = root(bindings={'model.layers.0."x"\n': {"parts": [{"object": "nope", "range": [0, 1]}]}})
    assert problems(value)[0].message.startswith(r'bindings["model.layers.0."x"\n"].parts[0].object: ')


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    ),
    st.sampled_from(CLOSED),
    st.data(),
)
def test_no_value_in_any_place_escapes_the_checks(value: Any, at: tuple[str | int, ...], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(member_of(full(), at))))
    changed = put(full(), at, name, value)
    if not problems(changed):
        directory = parse(changed)
        assert parse_directory(serialize(directory), PATH) == directory
