"""Look at every byte of an artifact: what opening it leaves unchecked (container.md 3, "verify only").

Rules of words and padding belong to formats and layouts; here every object is walked through in bounded pieces, its
digest and its rows, on as many threads as are wanted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from ninfer_convert.container import (
    AUXILIARIES,
    Artifact,
    AuxiliaryRole,
    Binding,
    Object,
    Part,
    TensorObject,
    open_artifact,
)
from ninfer_convert.errors import ArtifactError, Problem, printable
from ninfer_convert.layouts import TENSOR_ALIGNMENT
from ninfer_convert.pipeline import recorded
from ninfer_convert.pipeline.progress import Meter, Report
from ninfer_convert.pipeline.threads import for_each

if TYPE_CHECKING:
    from ninfer_convert.formats import WordFault

PIECE_BYTES = 2 << 20
"""Stored bytes that are looked at together: what they become stays near the core."""
LISTED_AT_MOST = 10
"""Faults of one object that are listed."""


@dataclass(frozen=True)
class Fault:
    """Something in an artifact that breaks a rule.

    `object` is the id of the object it lies in, None for one of framing or directory. `row` counts the object's rows
    (of a direct format: elements); `column` is an element's for a code, a group's index for a scale.
    """

    code: str
    message: str
    object: str | None = None
    row: int | None = None
    column: int | None = None


@dataclass(frozen=True)
class VerifyReport:
    """What `verify` found.

    `faults` are those of the artifact as a whole, then of each object in order the first LISTED_AT_MOST; `totals`
    counts all faults of each object that has any, `total` all there are. Behind a fault that opening finds nothing
    is looked at; then `artifact_id` is None.
    """

    path: str
    artifact_id: str | None
    faults: tuple[Fault, ...]
    total: int
    totals: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.total


def verify(path: str, *, jobs: int = 1, progress: Report | None = None) -> VerifyReport:
    """Check everything about the artifact at `path`, on `jobs` threads.

    `progress` is called after every piece, from any thread, one call at a time; an object's bytes count for its
    digest and again for its words. Raises SourceError where a file cannot be read; whatever is wrong with the
    artifact is in the report.
    """
    try:
        with open_artifact(path) as artifact:
            return _Verification(artifact, progress).report(jobs)
    except ArtifactError as error:
        faults = tuple(Fault(problem.code, str(problem)) for problem in error.problems)
        return VerifyReport(path, None, faults, len(faults))


@dataclass(frozen=True)
class _Rows:
    """Rows [begin, end) of a tensor object: a piece of work."""

    object: TensorObject
    begin: int
    end: int
    bytes: int


@dataclass(frozen=True)
class _Digest:
    """The digest of an object, to be found equal to the recorded one: a piece of work."""

    object: Object
    recorded: str

    @property
    def bytes(self) -> int:
        return self.object.bytes


@dataclass
class _Found:
    """Faults in the order they were found: the first of them, and how many there are."""

    first: list[Fault] = field(default_factory=list)
    total: int = 0

    def add(self, fault: Fault) -> None:
        self.extend([fault], 1)

    def extend(self, first: list[Fault], total: int) -> None:
        self.first += first[: LISTED_AT_MOST - len(self.first)]
        self.total += total


class _Verification:
    def __init__(self, artifact: Artifact, progress: Report | None) -> None:
        self.artifact = artifact
        self.objects = artifact.directory.objects
        self.progress = progress
        self.broken = artifact.broken_parts()
        self.whole: list[Fault] = []
        self.found = {object.id: _Found() for object in self.objects}

    def report(self, jobs: int) -> VerifyReport:
        self.whole += [Fault(p.code, str(p)) for problems in self.broken.values() for p in problems]
        warnings = [*self.check_id(), *self.unchecked()]
        self.check_gaps()
        self.check_pieces(jobs)
        self.check_auxiliaries()
        totals = {id: found.total for id, found in self.found.items() if found.total}
        return VerifyReport(
            self.artifact.path,
            self.artifact.artifact_id,
            (*self.whole, *(fault for id in totals for fault in self.found[id].first)),
            len(self.whole) + sum(totals.values()),
            totals,
            tuple(Problem(code, message, self.artifact.path) for code, message in warnings),
        )

    def readable(self, offset: int, length: int) -> bool:
        """Whether no byte of the payload there lies in a broken part."""
        if not self.broken:
            return True
        return not any(index in self.broken for index, _, _ in self.artifact.files.extents(offset, length))

    # The artifact as a whole

    def check_id(self) -> Iterator[tuple[str, str]]:
        own, derived = self.artifact.artifact_id, self.artifact.derived_id()
        if own != derived:
            if {"tool", "objects"} & self.artifact.directory.provenance.keys():
                message = f"the artifact_id is {own}, but its directory gives {derived}"
                self.whole.append(Fault("artifact-id", message))
            else:
                yield "foreign-id", "id not derived from the content: another program wrote the artifact"

    def unchecked(self) -> Iterator[tuple[str, str]]:
        """Warnings of what cannot be looked at."""
        unknown = [object for object in self.objects if isinstance(object, TensorObject) and not self.known(object)]
        if unknown:
            kinds = ", ".join(
                sorted({f"{printable(object.format)} in {printable(object.layout)}" for object in unknown})
            )
            count = "one object" if len(unknown) == 1 else f"{len(unknown)} objects"
            yield "unknown-format", f"the words of {count} are unchecked; not known: {kinds}"
        without = sum(recorded.digest(self.artifact.directory, object.id) is None for object in self.objects)
        if without:
            count = f"{without} of {len(self.objects)} objects have no recorded digest"
            yield "no-digest", f"{count}: their payload bytes are covered by the word rules alone"

    def check_gaps(self) -> None:
        """The bytes between objects: only as many as alignment needs, all zero; none behind the last."""
        end = 0
        for index, object in enumerate(self.objects):
            alignment = self.alignment(object)
            if alignment is not None and object.offset - end >= alignment:
                unused = f"{object.offset - end} bytes are unused in front of it; only alignment leaves any"
                self.whole.append(Fault("gap", f"objects[{index}].offset: {object.offset}: {unused}", object.id))
            self.check_zero(end, object.offset)
            end = object.end
        rest = self.artifact.files.payload_bytes - end
        if rest:
            message = f"the payload goes on for {rest} bytes behind its last object, which ends at {end}"
            self.whole.append(Fault("payload-end", message))

    def alignment(self, object: Object) -> int | None:
        """What the offset of `object` is a multiple of; None where its layout is not known."""
        if not isinstance(object, TensorObject):
            return 1
        return TENSOR_ALIGNMENT if self.known(object) else None

    def check_zero(self, begin: int, end: int) -> None:
        for at in range(begin, end, PIECE_BYTES):
            length = min(PIECE_BYTES, end - at)
            data = self.artifact.read(at, length) if self.readable(at, length) else b""
            if any(data):
                first = next(index for index, byte in enumerate(data) if byte)
                message = f"byte {at + first} of the payload, between objects, is 0x{data[first]:02X}; expected zero"
                self.whole.append(Fault("gap", message))

    # Objects, piece by piece

    def known(self, object: Object) -> bool:
        """Whether it is a tensor whose words can be looked at."""
        return isinstance(object, TensorObject) and self.artifact.knows(object)

    def pieces(self) -> Iterator[_Digest | _Rows]:
        """All work, object by object: what was read for the digest is in the system's memory for the words."""
        for object in self.objects:
            if self.readable(object.offset, object.bytes):
                digest = recorded.digest(self.artifact.directory, object.id)
                if digest is not None:
                    yield _Digest(object, digest)
                if isinstance(object, TensorObject) and self.known(object):
                    yield from self.rows(object)

    def rows(self, object: TensorObject) -> Iterator[_Rows]:
        """`object` in pieces that hold rows of one weight divisor."""
        layout, tensor = self.artifact.resolve(object)
        rows, _ = layout.matrix(tensor.shape)
        share, quantum = rows // tensor.divisors, layout.row_quantum
        step = max(quantum, rows * PIECE_BYTES // object.bytes // quantum * quantum)
        for first in range(0, rows, share):
            for begin in range(first, first + share, step):
                end = min(begin + step, first + share)
                yield _Rows(object, begin, end, object.bytes * end // rows - object.bytes * begin // rows)

    def check_pieces(self, jobs: int) -> None:
        pieces = list(self.pieces())
        results = [_Found()] * len(pieces)
        meter = Meter(sum(piece.bytes for piece in pieces), self.progress)

        def work(index: int) -> None:
            piece = pieces[index]
            results[index] = self.digest_fault(piece) if isinstance(piece, _Digest) else self.row_faults(piece)
            meter.add(piece.bytes, piece.object.id)

        for_each(range(len(pieces)), work, jobs)
        for piece, result in zip(pieces, results, strict=True):
            self.found[piece.object.id].extend(result.first, result.total)

    def digest_fault(self, piece: _Digest) -> _Found:
        found = _Found()
        digest = hashlib.sha256()
        object = piece.object
        for begin in range(object.offset, object.end, PIECE_BYTES):
            digest.update(self.artifact.read(begin, min(PIECE_BYTES, object.end - begin)))
        if digest.hexdigest() != piece.recorded:
            message = f"its bytes have the SHA-256 {digest.hexdigest()}; recorded is {printable(piece.recorded[:80])}"
            found.add(_fault("digest", object, message))
        return found

    def row_faults(self, piece: _Rows) -> _Found:
        object = piece.object
        layout, tensor = self.artifact.resolve(object)
        # Words and padding lie in the same bytes, which are read once.
        read = cache(self.artifact.object_reader(object))
        found = _Found()
        words = tensor.format.faults(layout.decode(tensor, piece.begin, piece.end, read), LISTED_AT_MOST)
        repeated = piece.begin % (layout.matrix(tensor.shape)[0] // tensor.divisors) > 0
        listed = [
            _word_fault(object, piece.begin, fault)
            for fault in words.first
            # The divisor of all rows of a share is told with the first of them.
            if not (repeated and fault.part == "divisor")
        ]
        found.extend(listed, words.total - len(words.first) + len(listed))
        for padding in layout.padding_faults(tensor, piece.begin, piece.end, read):
            found.add(_fault("padding", object, f"{padding.message}, at byte {padding.offset} of the object"))
        return found

    # Auxiliaries of uses

    def check_auxiliaries(self) -> None:
        checked: set[tuple[str, Binding]] = set()
        for index, use in enumerate(self.artifact.directory.uses):
            for role, binding in use.auxiliaries.items():
                if (role, binding) not in checked:
                    checked.add((role, binding))
                    self.check_auxiliary(f"uses[{index}].auxiliaries.{role}", AUXILIARIES[role], binding)

    def check_auxiliary(self, where: str, role: AuxiliaryRole, binding: Binding) -> None:
        by_id = self.artifact.directory.by_id
        objects = [by_id[id] for id in binding.objects]
        tensors = [object for object in objects if isinstance(object, TensorObject) and self.known(object)]
        if len(tensors) < len(objects) or not all(self.readable(object.offset, object.bytes) for object in tensors):
            return
        spans = binding.parts or (Part(tensors[0].id, 0, tensors[0].elements),)
        words = (
            self.artifact.words(tensor, span.begin, span.end).codes.tobytes()
            for tensor, span in zip(tensors, spans, strict=True)
        )
        for element, message in role.value_faults(b"".join(words)):
            fault = Fault("auxiliary", f"{where}: element {element} {message}", tensors[0].id, element)
            self.found[tensors[0].id].add(fault)


def _fault(code: str, object: Object, message: str, row: int | None = None, column: int | None = None) -> Fault:
    return Fault(code, f"{printable(object.id)}: {message}", object.id, row, column)


def _word_fault(object: Object, first_row: int, fault: WordFault) -> Fault:
    row = first_row + fault.row
    place = "" if fault.column is None else f", {'column' if fault.part == 'code' else 'group'} {fault.column}"
    return _fault(fault.part, object, f"row {row}{place}: {fault.message}", row, fault.column)
