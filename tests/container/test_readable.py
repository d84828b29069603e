"""A directory is planned where a reader takes what would be written, and refused as the reader would refuse it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_convert.container import (
    Binding,
    Directory,
    File,
    Part,
    ResourceObject,
    TensorObject,
    members,
    parse_directory,
    plan_files,
    serialize,
)
from ninfer_convert.errors import ArtifactError, Problem
from tests.container.directories import PATH, parse, whole
from tests.container.records import full

CHANGES: dict[str, list[Any]] = {
    "id": ["", "a\0b", "n", "tokenizer", "another"],
    "shape": [(), (0,), (256, 64), (128, 128), (1,) * 16, (1,) * 17, (2**33, 2**33), (-2, -8)],
    "format": ["fp32", "nvfp4", "no_format", ""],
    "layout": ["row_scale_v1", "no_layout", ""],
    "offset": [0, -512, 256, 512, 257, 9728, 2**64],
    "bytes": [0, 1, 4, 18, 9224, 2**63, 2**64],
    "divisors": [0, 1, 2],
}
BINDINGS = [
    Binding("n"),
    Binding("tokenizer"),
    Binding("missing"),
    Binding(""),
    Binding("n\0"),
    Binding(None),
    Binding(None, (Part("n", 0, 64), Part("d", 0, 1))),
    Binding(None, (Part("", 0, 64),)),
    Binding(None, (Part("n", 64, 64),)),
    Binding(None, (Part("n", 64, 0),)),
    Binding(None, (Part("n", -1, 64),)),
    Binding(None, (Part("n", 0, 16385),)),
    Binding(None, (Part("n", 0, 2**64),)),
]
NAMES = ["", "w", "a\0b", "new", "größe"]


def said(directory: Directory) -> tuple[Problem, ...]:
    """Why no artifact is planned of it; nothing where one is."""
    try:
        plan_files(directory, PATH)
    except ArtifactError as error:
        return error.problems
    return ()


def read(directory: Directory) -> tuple[Problem, ...]:
    """Why a reader refuses it."""
    whole = replace(directory, files=(File(None, directory.payload_bytes),))
    try:
        parse_directory(serialize(whole), PATH)
    except ArtifactError as error:
        return error.problems
    return ()


@settings(max_examples=1000, deadline=None)
@given(st.data())
def test_what_is_planned_is_what_a_reader_takes(data: st.DataObject) -> None:
    directory = parse(full())
    objects: list[TensorObject | ResourceObject] = list(directory.objects)
    for _ in range(data.draw(st.integers(0, 2))):
        index = data.draw(st.integers(0, len(objects) - 1))
        field = data.draw(st.sampled_from([name for name in objects[index]._fields if name in CHANGES]))
        objects[index] = objects[index]._replace(**{field: data.draw(st.sampled_from(CHANGES[field]))})
    bindings = {**directory.bindings}
    if data.draw(st.booleans()):
        bindings[data.draw(st.sampled_from(NAMES))] = data.draw(st.sampled_from(BINDINGS))
    changed = replace(directory, objects=tuple(objects), bindings=bindings)
    assert said(changed) == read(changed)


@pytest.mark.parametrize(
    "last",
    [
        ResourceObject("r", 9800, 0),
        ResourceObject("r", -1, 9801),
        TensorObject("t", (1,) * 17, "another_format", "another_layout", 10240, 4),
        TensorObject("t", (4, 0), "another_format", "another_layout", 10240, 4),
        TensorObject("t", (-2, -2), "another_format", "another_layout", 10240, 4),
        TensorObject("t", (2**33, 2**33), "another_format", "another_layout", 10240, 4),
        TensorObject("t", (4,), "", "another_layout", 10240, 4),
        TensorObject("t", (4,), "another_format", "a\0b", 10240, 4),
        TensorObject("t", (4,), "another_format", "another_layout", 10240, 4, 2**64),
    ],
)
def test_what_only_the_records_themselves_show_is_refused(last: TensorObject | ResourceObject) -> None:
    directory = parse(full())
    changed = replace(directory, objects=(*directory.objects, last))
    assert said(changed) == read(changed) != ()


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1000, 1001])
def test_large_tables_are_the_json_that_small_ones_are(count: int) -> None:
    """Written in batches, they are still what the standard module makes of the whole."""
    names = [f'"{number}" \N{SNOWMAN}' for number in range(count)]
    directory = Directory(
        parse(full()).components,
        tuple(ResourceObject(name, number, 1) for number, name in enumerate(names)),
        {name: Binding(name) for name in names},
        provenance={"objects": {name: {"parameters": [name], "empty": []} for name in names}, "more": {"list": names}},
    )
    expected = json.dumps(members(directory), ensure_ascii=False, separators=(",", ":"))
    assert serialize(directory).decode() == expected
    assert json.loads(expected)["bindings"] == {name: whole(name) for name in names}
