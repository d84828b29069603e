"""What a plan amounts to: sizes, bits per weight, a line for each stored piece; nothing is read or written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ninfer_convert.container import ResourceObject, TensorObject
from ninfer_convert.formats import get_format
from ninfer_convert.formats.stored import may_round

if TYPE_CHECKING:
    from ninfer_convert.container import Object
    from ninfer_convert.pipeline.planned import Member, Plan, PlannedTensor
    from ninfer_convert.recipe.resolution import Rule
    from ninfer_convert.values import Shape


@dataclass(frozen=True)
class Share:
    """What the objects or tensors of one kind take together; `name` is a format's or a stored type's."""

    name: str
    count: int
    elements: int
    bytes: int


class StoredPiece(NamedTuple):
    """A parameter, or rows of one, as it will be stored: a member of an object."""

    planned: PlannedTensor
    member: Member

    @property
    def parameter(self) -> str:
        return self.member.parameter

    @property
    def selection(self) -> str | None:
        """What is taken of the source ("rows 0:128"), None for all of it."""
        return self.member.source.origins[0].selection

    @property
    def stored(self) -> str:
        """The stored type of the source."""
        return self.member.source.stored

    @property
    def object(self) -> str:
        """The id of its object."""
        return self.planned.record.id

    @property
    def shape(self) -> Shape:
        """What it fills of its object, rows x columns for two-dimensional formats."""
        return self.member.piece.shape

    @property
    def format(self) -> str:
        return self.planned.record.format

    @property
    def layout(self) -> str:
        return self.planned.record.layout

    @property
    def method(self) -> str:
        return self.member.method.name

    @property
    def bytes(self) -> int:
        """A member's share of its object's bytes is by its rows."""
        size = self.planned.record.bytes
        rows, _ = self.planned.layout.matrix(self.planned.tensor.shape)
        first = self.member.first_row
        return size * (first + self.member.rows) // rows - size * first // rows

    @property
    def rule(self) -> Rule | None:
        """The assign that decided, None where none did."""
        return self.member.piece.rule

    @property
    def instead_of(self) -> str | None:
        """The format it was given, where its object did not fit that."""
        return self.member.piece.instead_of

    @property
    def lossy(self) -> bool:
        """Whether a cast to a direct format may round."""
        return may_round(self.stored, self.format)


@dataclass(frozen=True)
class Summary:
    """What a plan comes to."""

    pieces: tuple[StoredPiece, ...]
    formats: tuple[Share, ...]
    resource_bytes: int
    artifact_bytes: int

    @property
    def elements(self) -> int:
        """Stored weights."""
        return sum(share.elements for share in self.formats)

    @property
    def stored_bits(self) -> float:
        """Bits per weight of the files, everything in them counted."""
        return 8 * self.artifact_bytes / max(self.elements, 1)

    @property
    def nominal_bits(self) -> float:
        """Bits per weight of codes and scales of full groups alone (formats 6)."""
        bits = sum(share.elements * get_format(share.name).bits_per_weight for share in self.formats)
        return bits / max(self.elements, 1)


def summarise(plan: Plan, file_bytes: Sequence[int]) -> Summary:
    """The summary of `plan`, stored in files of these sizes."""
    records = [planned.record for planned in plan.objects]
    return Summary(
        pieces=tuple(StoredPiece(planned, member) for planned in plan.tensors for member in planned.members),
        formats=format_shares(records),
        resource_bytes=sum(record.bytes for record in records if isinstance(record, ResourceObject)),
        artifact_bytes=sum(file_bytes),
    )


def format_shares(objects: Iterable[Object]) -> tuple[Share, ...]:
    """The tensor objects by format, the largest first."""
    return shares((each.format, each.elements, each.bytes) for each in objects if isinstance(each, TensorObject))


def shares(items: Iterable[tuple[str, int, int]]) -> tuple[Share, ...]:
    """(name, elements, bytes) of each, added up by name; the most bytes first."""
    totals: dict[str, list[int]] = {}
    for name, elements, bytes in items:
        total = totals.setdefault(name, [0, 0, 0])
        total[0] += 1
        total[1] += elements
        total[2] += bytes
    found = (Share(name, *total) for name, total in totals.items())
    return tuple(sorted(found, key=lambda share: (-share.bytes, share.name)))
