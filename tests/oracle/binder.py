"""An engine's loader as the fact sheet describes it (qwen35.md 1 to 4, 7.1 to 7.3): the component text.

Json, struct and arithmetic; it shares nothing with the converter. What an engine would refuse raises Refused.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.oracle import container
from tests.oracle.engine import Expected, Refused, Shape, check_config, demand, expectations, members, whole

Read = Callable[[str], bytes]
"""The payload bytes of an object."""

RESOURCES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
POLICIES = ("A16Only", "AllowA8", "AllowA4")


@dataclass(frozen=True)
class Piece:
    """Elements [begin, end) of an object."""

    object: dict[str, Any]
    begin: int
    end: int


@dataclass(frozen=True)
class Use:
    """What a projection's input may be computed in, and what is known of it."""

    policy: str
    auxiliaries: dict[str, tuple[Piece, ...]]


@dataclass(frozen=True)
class Bound:
    """What is loaded, in the order in which the engine asks for it."""

    config: dict[str, Any]
    parameters: dict[str, tuple[Piece, ...]]
    shapes: dict[str, Shape]
    uses: dict[tuple[str, str], Use]
    resources: dict[str, bytes]
    tokens: int
    """Number of public tokens."""


def load(entry: Path) -> Bound:
    """Load the artifact at `entry`; AssertionError for its framing, Refused for everything else."""
    held = container.read(entry)
    return bind(held.text, held.object_bytes, len(held.payload))


def bind(text: bytes, read: Read, payload: int) -> Bound:
    """Load from the directory's text, a reader of objects, and the length of the logical payload."""
    directory = _Directory(json.loads(text, object_pairs_hook=_once), payload)
    component = directory.components["text"]
    config = component["config"]
    check_config(config)
    resources = {role: read(id) for role, id in component.get("resources", {}).items()}
    tokens = _check_resources(resources, config["vocab_size"])
    parameters, shapes, uses = {}, {}, {}
    for expected in expectations(config):
        pieces = directory.pieces(expected)
        parameters[expected.name], shapes[expected.name] = pieces, expected.shape
        for input in expected.inputs:
            uses[expected.name, input] = directory.use(expected, input, pieces, read)
    return Bound(config, parameters, shapes, uses, resources, tokens)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    demand(len(members) == len(pairs), "a member is named twice")
    return members


def elements(shape: Sequence[int]) -> int:
    return math.prod(shape)


# The directory (7.1)


class _Directory:
    def __init__(self, root: Any, payload: int) -> None:
        root = members(root, "root", ("components", "objects", "bindings", "uses", "files"), ("metadata", "provenance"))
        self.objects = self._objects(root["objects"], payload)
        self.bindings = {name: self._binding(record, name) for name, record in root["bindings"].items()}
        self.uses: dict[tuple[str, str], dict[str, Any]] = {}
        for record in root["uses"]:
            self._add_use(record)
        self.components = root["components"]
        demand("text" in self.components, "there is no component text")
        for name, component in self.components.items():
            self._check_component(name, component)
        demand(root.get("metadata", {}).get("name", "x") != "", "metadata.name is empty")

    def _objects(self, records: Any, payload: int) -> dict[str, dict[str, Any]]:
        objects: dict[str, dict[str, Any]] = {}
        end = 0
        for record in records:
            where = f"object {record.get('id')!r}"
            if record.get("kind") == "tensor":
                required = ("id", "kind", "shape", "format", "layout", "offset", "bytes")
                members(record, where, required, ("divisors",))
                demand(len(record["shape"]) <= 16, f"{where} has {len(record['shape'])} axes")
                for size in record["shape"]:
                    whole(size, f"{where}: a size")
                demand(record["offset"] % 256 == 0, f"{where} is not aligned")
            else:
                members(record, where, ("id", "kind", "encoding", "offset", "bytes"))
                demand((record["kind"], record["encoding"]) == ("resource", "raw_bytes_v1"), f"{where} is of no kind")
            demand(record["id"] not in objects, f"{where} stands twice")
            demand(whole(record["offset"], where, least=0) >= end, f"{where} overlaps or is out of order")
            end = record["offset"] + whole(record["bytes"], where)
            demand(end <= payload, f"{where} lies beyond the payload")
            objects[record["id"]] = record
        return objects

    def _tensor(self, id: Any, where: str) -> dict[str, Any]:
        record = self.objects.get(id, {})
        demand(record.get("kind") == "tensor", f"{where} binds {id!r}, which is no tensor")
        return record

    def _binding(self, record: Any, where: str) -> tuple[Shape | None, tuple[Piece, ...]]:
        """The shape where the whole object is meant, and the pieces in order."""
        if isinstance(record, dict) and "object" in record:
            members(record, where, ("object",))
            tensor = self._tensor(record["object"], where)
            return tuple(tensor["shape"]), (Piece(tensor, 0, elements(tensor["shape"])),)
        members(record, where, ("parts",))
        demand(isinstance(record["parts"], list) and record["parts"], f"{where} has no parts")
        pieces = []
        for part in record["parts"]:
            members(part, where, ("object", "range"))
            tensor = self._tensor(part["object"], where)
            begin, end = (whole(bound, f"{where}: its range", least=0) for bound in part["range"])
            demand(begin < end <= elements(tensor["shape"]), f"{where} has the range {part['range']}")
            pieces.append(Piece(tensor, begin, end))
        return None, tuple(pieces)

    def _add_use(self, record: Any) -> None:
        members(record, "a use", ("parameter", "input"), ("activation_policy", "auxiliaries"))
        key = record["parameter"], record["input"]
        demand(record["parameter"] in self.bindings, f"use {key} is of an unbound parameter")
        demand(key not in self.uses, f"use {key} stands twice")
        demand(record.get("activation_policy", "A16Only") in POLICIES, f"use {key} has an unknown policy")
        self.uses[key] = record

    def _check_component(self, name: str, component: Any) -> None:
        members(component, f"component {name}", ("config",), ("target", "resources", "proposal"))
        demand(component.get("target", name) in self.components, f"component {name} has a target that is not there")
        for role, id in component.get("resources", {}).items():
            demand(self.objects.get(id, {}).get("kind") == "resource", f"component {name}: {role} is not there")
        if "proposal" in component:
            demand(name == "text", f"component {name} has a proposal")
            domain = component["proposal"].get("domain")
            demand(domain in ("full", "indexed"), f"a proposal of the domain {domain}")
            members(component["proposal"], "proposal", ("domain", "rows") if domain == "indexed" else ("domain",))

    # Parameters and uses (7.3)

    def pieces(self, expected: Expected) -> tuple[Piece, ...]:
        """What a parameter is bound to."""
        demand(expected.name in self.bindings, f"{expected.name} is not bound")
        shape, pieces = self.bindings[expected.name]
        demand(shape in (None, expected.shape), f"{expected.name} has the shape {shape}, not {expected.shape}")
        found = sum(piece.end - piece.begin for piece in pieces)
        demand(found == elements(expected.shape), f"{expected.name} has {found} elements, not {expected.shape}")
        for piece in pieces:
            format = piece.object["format"]
            demand(expected.format in (None, format), f"{expected.name} is {format}, not {expected.format}")
        return pieces

    def use(self, expected: Expected, input: str, pieces: tuple[Piece, ...], read: Read) -> Use:
        """How a parameter's input is used."""
        where = f"use of {expected.name} on {input}"
        record = self.uses.get((expected.name, input))
        demand(record is not None, f"there is no {where}")
        assert record is not None
        demand("activation_policy" in record, f"{where} has no policy")
        auxiliaries = {}
        for role, binding in record.get("auxiliaries", {}).items():
            demand(role in _AUXILIARIES, f"{where} has an auxiliary {role}")
            _, found = self._binding(binding, f"{where}: {role}")
            format, length = _AUXILIARIES[role]
            columns = length(expected.shape)
            total = sum(piece.end - piece.begin for piece in found)
            demand({piece.object["format"] for piece in found} == {format}, f"{where}: {role} is no {format}")
            demand(total == columns, f"{where}: {role} has {total} elements, not {columns}")
            _CHECKS[role](b"".join(_bytes(piece, read) for piece in found), columns, where)
            auxiliaries[role] = found
        nvfp4 = any(piece.object["format"] == "nvfp4" for piece in pieces)
        if nvfp4 and record["activation_policy"] == "AllowA4":
            demand("activation_input_divisor" in auxiliaries, f"{where} lacks an activation_input_divisor")
        if "input_columns" in auxiliaries:
            stored = {piece.object["format"] for piece in pieces}
            demand(all(format.startswith("gguf_") for format in stored), f"{where}: input_columns of {stored}")
        return Use(record["activation_policy"], auxiliaries)


def _columns(shape: Shape) -> int:
    demand(len(shape) == 2, "an auxiliary of what is no matrix")
    return shape[1]


_AUXILIARIES: dict[str, tuple[str, Callable[[Shape], int]]] = {
    "activation_input_divisor": ("fp32", lambda shape: 1),
    "hadamard_signs": ("bf16", _columns),
    "input_columns": ("int32", _columns),
}


def _bytes(piece: Piece, read: Read) -> bytes:
    width = {"bf16": 2, "fp32": 4, "int32": 4}[piece.object["format"]]
    return read(piece.object["id"])[piece.begin * width : piece.end * width]


def _check_divisor(data: bytes, columns: int, where: str) -> None:
    (divisor,) = struct.unpack("<f", data)
    demand(math.isfinite(divisor) and divisor > 0, f"{where}: a divisor of {divisor}")


def _check_signs(data: bytes, columns: int, where: str) -> None:
    demand(columns % 1024 == 0, f"{where}: hadamard_signs of {columns}")
    words = struct.unpack(f"<{columns}H", data)
    demand(set(words) <= {0x3F80, 0xBF80}, f"{where}: hadamard_signs that are no signs")


def _check_permutation(data: bytes, columns: int, where: str) -> None:
    numbers = struct.unpack(f"<{columns}i", data)
    demand(sorted(numbers) == list(range(columns)), f"{where}: input_columns that are no permutation")


_CHECKS: dict[str, Callable[[bytes, int, str], None]] = {
    "activation_input_divisor": _check_divisor,
    "hadamard_signs": _check_signs,
    "input_columns": _check_permutation,
}


# Resources (1.6)


def _check_resources(resources: dict[str, bytes], vocabulary: int) -> int:
    """The number of public tokens."""
    for role in RESOURCES:
        demand(role in resources, f"there is no {role}")
    for role, content in resources.items():
        demand(role in RESOURCES, f"text has no resource {role}")
        demand(content, f"{role} is empty")
        try:
            text = content.decode("utf-8")
            value = json.loads(text) if role.endswith(".json") else {}
        except ValueError as error:
            raise Refused(f"{role} cannot be read") from error
        demand(isinstance(value, dict), f"{role} is no object")
    tokens: dict[int, str] = {}
    ids: dict[str, int] = {}
    for id, token in _tokens(json.loads(resources[RESOURCES[0]]), json.loads(resources[RESOURCES[1]])):
        demand(type(id) is int and 0 <= id < vocabulary, f"the token {token!r} has the id {id!r}")
        demand(tokens.setdefault(id, token) == token, f"the id {id} has two tokens")
        demand(ids.setdefault(token, id) == id, f"the token {token!r} has two ids")
    demand(tokens and set(tokens) == set(range(len(tokens))), "the ids of tokens are not contiguous")
    stops = json.loads(resources[RESOURCES[3]]).get("eos_token_id", [])
    for stop in stops if isinstance(stops, list) else [stops]:
        demand(stop in tokens, f"generation stops at {stop}")
    return len(tokens)


def _tokens(tokenizer: dict[str, Any], config: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    for content, id in tokenizer["model"]["vocab"].items():
        yield id, content
    for token in tokenizer.get("added_tokens", []):
        yield token["id"], token["content"]
    for id, token in config.get("added_tokens_decoder", {}).items():
        yield int(id), token["content"]
