"""Decisions into objects: folding, regions, offsets, bindings (recipes.md, Ranks; qwen35.md 4.3 and 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ninfer_convert.container import Binding, Part, ResourceObject, TensorObject
from ninfer_convert.formats import get_format
from ninfer_convert.layouts import TENSOR_ALIGNMENT, Tensor, get_layout
from ninfer_convert.methods import get_method
from ninfer_convert.methods.base import Job
from ninfer_convert.pipeline.planned import Member, PlannedResource, PlannedTensor
from ninfer_convert.sources.views import take_rows

if TYPE_CHECKING:
    from ninfer_convert.architectures import Parameter, Resource
    from ninfer_convert.recipe import Piece
    from ninfer_convert.values import Shape, Source

Objects = tuple[PlannedTensor | PlannedResource, ...]


def place(
    resources: Sequence[Resource],
    parameters: Mapping[str, Parameter],
    decisions: Mapping[str, Sequence[Piece]],
) -> tuple[Objects, dict[str, Binding]]:
    """Every object with its offset, in payload order, and what each parameter binds to.

    Resources come first, then the parameters in the order of `decisions`; the pieces of a cut parameter are
    consecutive objects.
    """
    objects: list[PlannedTensor | PlannedResource] = []
    bindings: dict[str, Binding] = {}
    end = 0
    for resource in resources:
        record = ResourceObject(f"resource/{resource.component}/{resource.role}", end, len(resource.content))
        objects.append(PlannedResource(record, resource.content, resource.origin))
        end += record.bytes
    number = 0
    for name, pieces in decisions.items():
        source = parameters[name].source
        ids = []
        for piece in pieces:
            offset = -(-end // TENSOR_ALIGNMENT) * TENSOR_ALIGNMENT
            planned = _tensor(f"weight/{number:06d}", offset, name, source, piece)
            objects.append(planned)
            ids.append(planned.record)
            end = offset + planned.record.bytes
            number += 1
        bindings[name] = _bind(source.shape, ids)
    return tuple(objects), bindings


def _tensor(id: str, offset: int, name: str, source: Source, piece: Piece) -> PlannedTensor:
    region = source if piece.rows is None else take_rows(source, *piece.rows)
    format = get_format(piece.format)
    layout = get_layout(piece.layout)
    tensor = Tensor(format, piece.shape, piece.divisors)
    rows, columns = layout.matrix(tensor.shape)
    job = Job(region, format, rows, columns, piece.parameters, piece.non_finite)
    record = TensorObject(id, tensor.shape, format.name, layout.name, offset, layout.size(tensor), tensor.divisors)
    return PlannedTensor(record, tensor, layout, (Member(name, 0, job, get_method(piece.method), piece.rule),))


def _bind(shape: Shape, records: Sequence[TensorObject]) -> Binding:
    if len(records) == 1 and records[0].shape == shape:
        return Binding(object=records[0].id)
    return Binding(None, tuple(Part(record.id, 0, record.elements) for record in records))
