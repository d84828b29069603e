"""Decisions into objects: offsets, parents, regions, bindings, auxiliaries (recipes.md, Ranks; qwen35.md 4.3 and 6)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.container import Binding, Part, ResourceObject, TensorObject, Use
from ninfer_convert.formats import get_format
from ninfer_convert.layouts import TENSOR_ALIGNMENT, Tensor, get_layout, usual_layout
from ninfer_convert.pipeline.planned import Member, PlannedBytes, PlannedTensor
from ninfer_convert.pipeline.provenance import file_name
from ninfer_convert.sources.views import take_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.architectures import Resource
    from ninfer_convert.layouts import Layout
    from ninfer_convert.recipe import Parent, Piece, Resolution
    from ninfer_convert.values import Source

Objects = tuple[PlannedTensor | PlannedBytes, ...]

COLUMNS = "input_columns"
"""The auxiliary that tells how columns stand."""


@dataclass(frozen=True)
class Placed:
    """Every object with its offset, in payload order, and what parameters and uses make of them."""

    objects: Objects
    bindings: Mapping[str, Binding]
    uses: tuple[Use, ...]


def place(
    resources: Sequence[Resource],
    sources: Mapping[str, Sequence[Source]],
    resolution: Resolution,
    importance: Mapping[tuple[str, int], NDArray[np.float64]],
    columns: Mapping[str, Sequence[int]],
) -> Placed:
    """Resources first, then parents, then the other parameters in the order of the decisions, then auxiliaries.

    `sources` are what each piece of a parameter is a region of; `columns` what uses must be told of parameters whose
    columns stand in another order. The pieces of a cut parameter are consecutive objects.
    """
    payload = _Payload()
    for resource in resources:
        payload.add_resource(resource)
    bindings: dict[str, Binding] = {}
    for parent in resolution.groups:
        members = tuple(_members(parent, sources, resolution, importance))
        record = payload.add_tensor(_stored(parent), members)
        begin = 0
        for member in members:
            end = begin + prod(member.piece.shape)
            parts = (Part(record.id, begin, end),)
            bindings[member.parameter] = _whole(member.source, [record]) or Binding(None, parts)
            begin = end
    alone = cache(_stored)  # pieces are few, however many parameters share them
    for name, pieces in resolution.decisions.items():
        if name not in bindings:
            records = []
            for number, piece in enumerate(pieces):
                stored, source = alone(piece), sources[name][number]
                if piece.rows is not None:
                    source = take_rows(source, *piece.rows)
                member = Member(name, 0, stored.rows, source, piece, importance.get((name, number)))
                records.append(payload.add_tensor(stored, (member,)))
            bindings[name] = _whole(sources[name][0], records) or Binding(
                None, tuple(Part(record.id, 0, record.elements) for record in records)
            )
    if resolution.groups:
        bindings = {name: bindings[name] for name in resolution.decisions}
    bindings |= {alias.name: bindings[alias.target] for alias in resolution.shares}
    uses = []
    for use in resolution.uses:
        auxiliaries = {
            role: bindings[value] if isinstance(value, str) else Binding(payload.add_scalar(value, role))
            for role, value in use.auxiliaries.items()
        }
        if use.parameter in columns and COLUMNS not in auxiliaries:
            auxiliaries[COLUMNS] = Binding(payload.add_columns(columns[use.parameter]))
        uses.append(Use(use.parameter, use.input, use.activation_policy, auxiliaries))
    return Placed(tuple(payload.objects), bindings, tuple(uses))


def _members(
    parent: Parent,
    sources: Mapping[str, Sequence[Source]],
    resolution: Resolution,
    importance: Mapping[tuple[str, int], NDArray[np.float64]],
) -> Iterator[Member]:
    """Those of a parent, each behind the rows of the ones before."""
    first_row = 0
    for name in parent.members:
        piece = resolution.decisions[name][0]
        rows, _ = get_layout(piece.layout).matrix(piece.shape)
        yield Member(name, first_row, rows, sources[name][0], piece, importance.get((name, 0)))
        first_row += rows


def _whole(source: Source, records: Sequence[TensorObject]) -> Binding | None:
    """The binding of a parameter that is the whole of one object of its shape; None where these are not that."""
    record = records[0]
    return Binding(record.id) if len(records) == 1 and record.shape == source.shape else None


@dataclass(frozen=True)
class _Stored:
    """What an object holds, how it is laid out, and its size in rows and bytes."""

    tensor: Tensor
    layout: Layout
    rows: int
    bytes: int


def _stored(object: Parent | Piece) -> _Stored:
    tensor, layout = Tensor(get_format(object.format), object.shape, object.divisors), get_layout(object.layout)
    rows, _ = layout.matrix(object.shape)
    return _Stored(tensor, layout, rows, layout.size(tensor))


@dataclass
class _Payload:
    """Objects one behind the other, each at the next offset that its alignment allows."""

    objects: list[PlannedTensor | PlannedBytes] = field(default_factory=list)
    end: int = 0
    weights: int = 0
    auxiliaries: int = 0
    orders: dict[bytes, str] = field(default_factory=dict)
    """Ids of the auxiliaries that are orders of columns, by their content."""

    def add_resource(self, resource: Resource) -> None:
        id = f"resource/{resource.component}/{resource.role}"
        record = ResourceObject(id, self.end, len(resource.content))
        self._add(PlannedBytes(record, resource.content, {"file": file_name(resource.origin)}))

    def add_scalar(self, value: float, role: str) -> str:
        """A binary32 auxiliary of its own; returns its id."""
        return self._add_auxiliary(role, Tensor(get_format("fp32"), ()), struct.pack("<f", value))

    def add_columns(self, columns: Sequence[int]) -> str:
        """The order of columns as an auxiliary, one for all that have the same; returns its id."""
        content = struct.pack(f"<{len(columns)}i", *columns)
        if content not in self.orders:
            self.orders[content] = self._add_auxiliary(COLUMNS, Tensor(get_format("int32"), (len(columns),)), content)
        return self.orders[content]

    def _add_auxiliary(self, role: str, tensor: Tensor, content: bytes) -> str:
        id = f"auxiliary/{self.auxiliaries:06d}"
        self.auxiliaries += 1
        format = tensor.format.name
        layout = usual_layout(format)
        record = TensorObject(id, tensor.shape, format, layout.name, self._aligned(), layout.size(tensor))
        self._add(PlannedBytes(record, content, {"auxiliary": role}))
        return id

    def add_tensor(self, stored: _Stored, members: tuple[Member, ...]) -> TensorObject:
        """An object that these members fill one behind the other."""
        tensor, layout = stored.tensor, stored.layout
        id = f"weight/{self.weights:06d}"
        self.weights += 1
        record = TensorObject(
            id, tensor.shape, tensor.format.name, layout.name, self._aligned(), stored.bytes, tensor.divisors
        )
        self._add(PlannedTensor(record, tensor, layout, members))
        return record

    def _aligned(self) -> int:
        return -(-self.end // TENSOR_ALIGNMENT) * TENSOR_ALIGNMENT

    def _add(self, planned: PlannedTensor | PlannedBytes) -> None:
        self.objects.append(planned)
        self.end = planned.record.end
