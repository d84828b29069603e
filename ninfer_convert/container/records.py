"""The directory of an artifact as values (container.md 2). Nothing here checks a rule: `rules` does.

A directory has hundreds of thousands of objects and bindings: they are named tuples, which are made in a third of the
time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple


class TensorObject(NamedTuple):
    """A tensor's bytes: `bytes` of them at `offset` of the logical payload; format and layout by name."""

    id: str
    shape: tuple[int, ...]
    format: str
    layout: str
    offset: int
    bytes: int
    divisors: int = 1

    @property
    def end(self) -> int:
        """The offset behind its last byte."""
        return self.offset + self.bytes

    @property
    def elements(self) -> int:
        """Logical elements; 1 for a scalar."""
        return math.prod(self.shape)


class ResourceObject(NamedTuple):
    """A file stored verbatim."""

    id: str
    offset: int
    bytes: int

    @property
    def end(self) -> int:
        """The offset behind its last byte."""
        return self.offset + self.bytes


Object = TensorObject | ResourceObject


class Part(NamedTuple):
    """Logical elements [begin, end) of a tensor object, counted in C order."""

    object: str
    begin: int
    end: int


class Binding(NamedTuple):
    """What a parameter is stored as: a whole tensor object, or parts one behind the other.

    `parts` is empty where `object` is given.
    """

    object: str | None
    parts: tuple[Part, ...] = ()

    @property
    def objects(self) -> tuple[str, ...]:
        """The id of every object it reads, in order."""
        return (self.object,) if self.object is not None else tuple(part.object for part in self.parts)


@dataclass(frozen=True)
class Use:
    """One input's product with a parameter: how far activations may be quantized, and what that needs."""

    parameter: str
    input: str
    activation_policy: str | None = None
    auxiliaries: Mapping[str, Binding] = field(default_factory=dict)


@dataclass(frozen=True)
class Proposal:
    """The tokens a text component proposes: all of them, or `rows` indexed ones."""

    rows: int | None = None


@dataclass(frozen=True)
class Component:
    """One model of the artifact. `resources` maps a role to a resource object's id."""

    config: Mapping[str, Any]
    target: str | None = None
    resources: Mapping[str, str] = field(default_factory=dict)
    proposal: Proposal | None = None


@dataclass(frozen=True)
class File:
    """A file of the artifact: its name beside the entry (None for the entry) and its share of the payload."""

    path: str | None
    payload_bytes: int


@dataclass(frozen=True)
class Directory:
    """Everything an artifact says of itself. Optional members that hold nothing are left out when written."""

    components: Mapping[str, Component]
    objects: tuple[Object, ...]
    bindings: Mapping[str, Binding]
    uses: tuple[Use, ...] = ()
    files: tuple[File, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def by_id(self) -> Mapping[str, Object]:
        """Every object by its id."""
        return {object.id: object for object in self.objects}

    @property
    def main(self) -> Component:
        """The main model: the component `text`, the first where there is none of this name."""
        return self.components.get("text") or next(iter(self.components.values()))

    @property
    def tensors(self) -> tuple[TensorObject, ...]:
        """The tensor objects, in the order of their offsets."""
        return tuple(object for object in self.objects if isinstance(object, TensorObject))

    @property
    def resources(self) -> tuple[ResourceObject, ...]:
        """The resource objects, in the order of their offsets."""
        return tuple(object for object in self.objects if isinstance(object, ResourceObject))

    @property
    def payload_bytes(self) -> int:
        """Bytes of the logical payload, up to the end of the last object."""
        return self.objects[-1].end
