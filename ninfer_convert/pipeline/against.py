"""An artifact's payload against what a plan gives: everything is made again, piece by piece, and compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ninfer_convert.errors import ArtifactError, printable
from ninfer_convert.layouts import TENSOR_ALIGNMENT, Segment
from ninfer_convert.pipeline.differences import Difference
from ninfer_convert.pipeline.pieces import Piece, cut
from ninfer_convert.pipeline.planned import PlannedBytes, PlannedTensor
from ninfer_convert.pipeline.progress import Meter, Report
from ninfer_convert.pipeline.run import PIECE_BYTES
from ninfer_convert.pipeline.threads import for_each

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.container import Artifact, Object
    from ninfer_convert.layouts import Read
    from ninfer_convert.pipeline.planned import Plan
    from ninfer_convert.values import Words


@dataclass
class _Found:
    """What differs in an object as far as one member, or several that meet within a piece, fill it."""

    bytes: int = 0
    first: tuple[int, int, int] | None = None
    """Offset from the object's start, byte found, byte expected."""
    rows: tuple[int, int] | None = None
    unreadable: str | None = None

    def add(self, other: _Found) -> None:
        """Take in what another piece found; their order does not matter."""
        self.bytes += other.bytes
        self.first = min(filter(None, (self.first, other.first)), default=None)
        spans = [span for span in (self.rows, other.rows) if span is not None]
        self.rows = (min(begin for begin, _ in spans), max(end for _, end in spans)) if spans else None
        self.unreadable = min(filter(None, (self.unreadable, other.unreadable)), default=None)


def resource_differences(artifact: Artifact, plan: Plan) -> Iterator[Difference]:
    """Resources whose bytes are not those that the plan gives."""
    for planned in plan.objects:
        record = _counterpart(artifact, planned)
        if isinstance(planned, PlannedBytes) and record is not None:
            content = np.frombuffer(planned.content, np.uint8)
            yield from _told(record.id, (), _compared(artifact.object_reader(record), (Segment(0, content),)))


def tensor_differences(
    artifact: Artifact, plan: Plan, jobs: int = 1, progress: Report | None = None
) -> Iterator[Difference]:
    """Tensor objects, and the gaps between objects, whose bytes are not those that converting would write.

    Objects that the artifact does not have, or has otherwise than planned, are passed by: of them the directories
    tell. Raises SourceError and NumericError as a conversion does.
    """
    tensors = {planned.record.id: planned for planned in plan.tensors if _counterpart(artifact, planned) is not None}
    total = sum(member.source.nbytes for planned in tensors.values() for member in planned.members)
    meter = Meter(total, progress)
    found: dict[tuple[str, tuple[str, ...]], _Found] = {}

    def pieces() -> Iterator[tuple[Piece, _Found]]:
        for id, planned in tensors.items():
            for piece in cut(planned, PIECE_BYTES):
                yield piece, found.setdefault((id, piece.parameters), _Found())

    def work(item: tuple[Piece, _Found]) -> None:
        piece, known = item
        record = artifact.directory.by_id[piece.planned.record.id]
        differing = _differing(piece, artifact.object_reader(record))
        with meter.lock:
            known.add(differing)
            meter.add(piece.source_bytes, piece.parameters[-1])

    for_each(pieces(), work, jobs)
    for (id, parameters), differing in found.items():
        yield from _told(id, parameters, differing)
    yield from _gaps(artifact)


def _counterpart(artifact: Artifact, planned: PlannedTensor | PlannedBytes) -> Object | None:
    """The artifact's object that is stored as planned, wherever it lies."""
    record = artifact.directory.by_id.get(planned.record.id)
    if record is None or record._replace(offset=0) != planned.record._replace(offset=0):
        return None
    return record


def _differing(piece: Piece, read: Read) -> _Found:
    words = piece.words()
    found = _compared(read, piece.place(words))
    if found.bytes:
        planned, end = piece.planned, piece.first_row + sum(end - begin for _, begin, end in piece.slices)
        differs = _rows_that_differ(planned.layout.decode(planned.tensor, piece.first_row, end, read), words)
        if len(differs):
            found.rows = piece.first_row + int(differs[0]), piece.first_row + int(differs[-1]) + 1
    return found


def _compared(read: Read, expected: Iterable[Segment]) -> _Found:
    found = _Found()
    try:
        for segment in expected:
            data = np.frombuffer(read(segment.offset, len(segment.data)), np.uint8)
            if not np.array_equal(data, segment.data):
                places = np.flatnonzero(data != segment.data)
                first = int(places[0])
                byte = segment.offset + first, int(data[first]), int(segment.data[first])
                found.add(_Found(len(places), byte))
    except ArtifactError as error:
        return _Found(unreadable=str(error))
    return found


def _rows_that_differ(found: Words, expected: Words) -> NDArray[np.intp]:
    """Rows, counted from the first of both, of which a code, a scale or the divisor differs."""
    pairs = ((found.codes, expected.codes), (found.scales, expected.scales), (found.divisors, expected.divisors))
    rows = len(expected.codes)
    differs = np.zeros(rows, np.bool_)
    for ours, theirs in pairs:
        if ours is not None and theirs is not None:
            # As bytes: a NaN equals itself.
            a, b = (np.ascontiguousarray(words).reshape(rows, -1).view(np.uint8) for words in (ours, theirs))
            differs |= (a != b).any(axis=1)
    return np.flatnonzero(differs)


def _told(id: str, parameters: tuple[str, ...], found: _Found) -> Iterator[Difference]:
    names = ", ".join(parameters)
    shown = printable(f"{id} ({names})" if names else id)
    if found.unreadable is not None:
        yield Difference("unreadable", f"{shown}: cannot be compared: {found.unreadable}", id, names or None)
    if found.first is not None:
        place, byte, expected = found.first
        many = "1 byte differs" if found.bytes == 1 else f"{found.bytes} bytes differ"
        where = ""
        if found.rows is not None:
            where = f" in rows [{found.rows[0]}, {found.rows[1]})"
        elif names:
            where = " in padding alone"
        first = f"the first is byte {place} of the object, 0x{byte:02X} instead of 0x{expected:02X}"
        yield Difference("payload", f"{shown}: {many}{where}; {first}", id, names or None, found.rows, place)


def _gaps(artifact: Artifact) -> Iterator[Difference]:
    """Bytes between objects that are not zero; that a gap is as long as planned shows in the offsets."""
    for before, after in pairwise(artifact.directory.objects):
        try:
            data = artifact.read(before.end, min(after.offset - before.end, TENSOR_ALIGNMENT))
        except ArtifactError:  # told of an object beside it
            continue
        if any(data):
            first = next(index for index, byte in enumerate(data) if byte)
            message = f"byte {before.end + first} of the payload, between objects, is 0x{data[first]:02X} instead of 0"
            yield Difference("gap", message)
