"""Members and types of every record of the directory (container.md 2)."""

from __future__ import annotations

import copy
import json
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
    without_digests,
)
from ninfer_convert.container.directory import serialized
from ninfer_convert.errors import ArtifactError
from tests.container.directories import PATH, faults, fp32, parse, problems, resource, root, whole
from tests.container.records import full, member_of, put


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
    recorded = {"a": {"method": "m", "sha256": "0" * 64, "more": 1}, "b": {}, "c": {"sha256": "3" * 64}}
    directory = parse(root(provenance={"tool": 1, "objects": recorded}))
    text = b"".join(serialized(directory, {"a": "1" * 64, "b": "2" * 64}))
    digested = parse_directory(text, PATH).provenance
    expected = {"a": {"method": "m", "sha256": "1" * 64, "more": 1}, "b": {"sha256": "2" * 64}, "c": recorded["c"]}
    assert digested == {"tool": 1, "objects": expected}
    assert list(digested["objects"]["a"]) == ["method", "sha256", "more"]


def test_digests_are_left_out_of_provenance() -> None:
    recorded = {"a": {"method": "m", "sha256": "0" * 64}, "b": {}, "c": {"sha256": "3" * 64}}
    plain = without_digests(parse(root(provenance={"tool": {"sha256": 1}, "objects": recorded}))).provenance
    assert plain == {"tool": {"sha256": 1}, "objects": {"a": {"method": "m"}, "b": {}, "c": {}}}


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


def drop(value: Any, at: tuple[str | int, ...], name: str) -> Any:
    """A copy of `value` whose record at `at` lacks a member."""
    changed = copy.deepcopy(value)
    del member_of(changed, at)[name]
    return changed


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
