"""A planned tensor object in pieces of rows, each of which is read, converted and placed by itself.

Where pieces are cut changes no byte (layouts.md, Rows); what `run` writes and what `against` expects is made here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.formats.stored import STORED_TYPES
from ninfer_convert.methods.callable import CallableMethod
from ninfer_convert.stages import stage
from ninfer_convert.values import joined

if TYPE_CHECKING:
    from ninfer_convert.layouts import Segment
    from ninfer_convert.methods.base import Encode
    from ninfer_convert.pipeline.planned import Member, PlannedTensor
    from ninfer_convert.values import Words


@dataclass(frozen=True)
class Piece:
    """Rows of an object from `first_row` on, as slices of its members: (encoder, begin, end within the member).

    `members` are these, one of a direct format; `source_bytes` is what reading the rows costs.
    """

    planned: PlannedTensor
    first_row: int
    slices: tuple[tuple[Encode, int, int], ...]
    members: tuple[Member, ...]
    source_bytes: int

    @property
    def parameters(self) -> tuple[str, ...]:
        """The members' parameters."""
        return tuple(member.parameter for member in self.members)

    def words(self) -> Words:
        """The words of its rows. Raises NumericError or SourceError where they cannot be had."""
        with stage("encode"):
            return joined([encode(begin, end) for encode, begin, end in self.slices])

    def place(self, words: Words) -> tuple[Segment, ...]:
        """Those words as bytes, at offsets from the object's start."""
        with stage("pack"):
            return self.planned.layout.encode(self.planned.tensor, self.first_row, words)


def cut(planned: PlannedTensor, piece_bytes: int) -> Iterator[Piece]:
    """All of `planned` in pieces of about `piece_bytes` bytes of values, in order of rows."""
    encoders = [member.method.encoder(member.job) for member in planned.members]
    for begin, end in _ranges(planned, piece_bytes):
        slices = []
        members = []
        source_bytes = 0
        for member, encode in zip(planned.members, encoders, strict=True):
            a = max(begin - member.first_row, 0)
            b = min(end - member.first_row, member.rows)
            if a < b:
                slices.append((encode, a, b))
                members.append(member)
                nbytes, rows = member.source.nbytes, member.rows
                source_bytes += nbytes * b // rows - nbytes * a // rows
        yield Piece(planned, begin, tuple(slices), tuple(members), source_bytes)


def least_piece(planned: PlannedTensor) -> int:
    """Bytes of values in the smallest pieces that it can be cut into."""
    quantum = planned.layout.row_quantum
    return max(_value_bytes(member) * min(quantum, member.rows) // member.rows for member in planned.members)


def _ranges(planned: PlannedTensor, piece_bytes: int) -> Iterator[tuple[int, int]]:
    """Row ranges: cut where members meet if the layout can be cut there, else as the piece size says."""
    rows, _ = planned.layout.matrix(planned.tensor.shape)
    quantum = planned.layout.row_quantum
    seams = {member.first_row for member in planned.members if member.first_row % quantum == 0}
    step = min(member.rows * piece_bytes // _value_bytes(member) for member in planned.members)
    step = max(quantum, step // quantum * quantum)
    for seam, next_seam in pairwise(sorted({0, *seams, rows})):
        for begin in range(seam, next_seam, step):
            yield begin, min(begin + step, next_seam)


def _value_bytes(member: Member) -> int:
    """Bytes of all its values in memory: as stored, or as binary32 where they are decoded or given to a function."""
    source = member.source
    if STORED_TYPES[source.stored].quantized or isinstance(member.method, CallableMethod):
        return max(source.nbytes, 4 * prod(member.piece.shape))
    return source.nbytes
