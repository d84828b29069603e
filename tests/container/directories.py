"""A small directory as JSON, to break in tests, and as records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ninfer_convert.container import Directory, parse_directory
from ninfer_convert.errors import ArtifactError, Problem

PATH = "folder/model.ninfer"


def tensor(id: str, shape: Sequence[int], format: str, layout: str, offset: int, bytes: int, **more: Any) -> Any:
    """A tensor object's record."""
    place = {"offset": offset, "bytes": bytes}
    return {"id": id, "kind": "tensor", "shape": list(shape), "format": format, "layout": layout, **place, **more}


def fp32(id: str, shape: Sequence[int], offset: int) -> Any:
    """The record of a direct tensor."""
    size = 4
    for extent in shape:
        size *= extent
    return tensor(id, shape, "fp32", "contiguous_le_v1", offset, size)


def future(id: str, shape: Sequence[int], offset: int, bytes: int = 1) -> Any:
    """The record of a tensor of which nothing is known but its shape."""
    return tensor(id, shape, "q3_future", "row_future_v1", offset, bytes)


def resource(id: str, offset: int, bytes: int) -> Any:
    """A resource object's record."""
    return {"id": id, "kind": "resource", "encoding": "raw_bytes_v1", "offset": offset, "bytes": bytes}


def whole(id: str) -> Any:
    """A binding to a whole object."""
    return {"object": id}


def parts(*spans: tuple[str, int, int]) -> Any:
    """A binding to ranges of objects."""
    return {"parts": [{"object": id, "range": [begin, end]} for id, begin, end in spans]}


def root(objects: Any = None, **members: Any) -> dict[str, Any]:
    """A directory without a fault, its members replaced by those given; `files` fits the objects."""
    if objects is None:
        objects = [fp32("a", [3, 4], 0), tensor("b", [4, 64], "q4_g64_fp16", "row_split_k128_v1", 256, 272)]
        objects.append(resource("r", 528, 18))
    placed = [object for object in objects if isinstance(object, dict) and "offset" in object]
    end = max((object["offset"] + object["bytes"] for object in placed), default=1)
    base: dict[str, Any] = {
        "components": {"text": {"config": {"model_type": "tiny"}}},
        "objects": objects,
        "bindings": {},
        "uses": [],
        "files": [{"path": None, "payload_bytes": end}],
    }
    return {**base, **members}


def parse(value: Any) -> Directory:
    """The records of a root; ArtifactError as the product raises it."""
    return parse_directory(json.dumps(value).encode(), PATH)


def problems(value: Any) -> tuple[Problem, ...]:
    """What is wrong with a root; nothing where it is accepted."""
    try:
        parse(value)
    except ArtifactError as error:
        return error.problems
    return ()


def faults(value: Any) -> list[tuple[str, str]]:
    """(code, member) of each problem."""
    return [(problem.code, problem.message.split(": ")[0]) for problem in problems(value)]
