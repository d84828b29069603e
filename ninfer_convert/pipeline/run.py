"""Carry a plan out in bounded memory, on any number of threads, with the same bytes for any number of them.

A tensor object is cut along its rows into pieces. A thread takes the next piece, reads it, makes words, places them
and writes the bytes at their offset; the one that ends an object takes its digest.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ninfer_convert.container import (
    ArtifactWriter,
    FilePlan,
    check_destination,
    plan_files,
    remove_leftovers,
    without_digests,
)
from ninfer_convert.container.destination import refuse_inputs
from ninfer_convert.errors import Problem, UsageError
from ninfer_convert.pipeline.pieces import Piece, cut, least_piece
from ninfer_convert.pipeline.planned import Plan, PlannedBytes, PlannedTensor
from ninfer_convert.pipeline.preflight import preflight
from ninfer_convert.pipeline.progress import Meter, Report
from ninfer_convert.pipeline.threads import for_each
from ninfer_convert.sources.files import refuse_changed
from ninfer_convert.stages import Stopwatch, measure, stage

PIECE_BYTES = 8 << 20
"""Bytes of values in a piece, where the memory budget allows it: large enough that Python's share is small."""
SMALLEST_PIECE_BYTES = 64 << 10
WORKING_SET = 4
"""Bytes in use for each byte of a piece's values: the values, what they are decoded from, words, placed bytes."""
PROGRAM_BYTES = 150 << 20
"""Memory of the program itself: interpreter, NumPy, Numba, compiled kernels."""


@dataclass(frozen=True)
class Running:
    """How a conversion is carried out; nothing here changes a byte of the payload.

    `jobs` threads; `memory` bytes that their pieces may take together (None: no cap); `force` replaces what stands
    at the destination; `digest` records each object's SHA-256; `max_file_bytes` caps each file; `profile` measures
    the stages.
    """

    jobs: int = 1
    memory: int | None = None
    force: bool = False
    digest: bool = True
    max_file_bytes: int | None = None
    profile: bool = False

    @property
    def piece_bytes(self) -> int:
        """Bytes of values in a piece."""
        return PIECE_BYTES if self.memory is None else min(PIECE_BYTES, self.memory // (self.jobs * WORKING_SET))


@dataclass(frozen=True)
class Result:
    """What a finished conversion has made."""

    path: Path
    artifact_id: str
    files: FilePlan
    seconds: float
    warnings: tuple[Problem, ...]
    stages: Mapping[str, float]
    """Seconds by stage, summed over the threads; empty where they were not measured."""


def file_plan(plan: Plan, destination: Path, running: Running) -> FilePlan:
    """How the artifact is divided into files: names, sizes to the byte, room for the directory."""
    directory = plan.directory if running.digest else without_digests(plan.directory)
    return plan_files(directory, destination, running.max_file_bytes)


def expected_memory(plan: Plan, running: Running) -> int:
    """Bytes of memory that a run takes at most, about: the program itself, and a piece for each thread."""
    largest = max((member.source.nbytes for planned in plan.tensors for member in planned.members), default=0)
    return PROGRAM_BYTES + running.jobs * WORKING_SET * min(running.piece_bytes, largest)


def check_memory(plan: Plan, running: Running) -> None:
    """Raise UsageError where the cap is below what the smallest pieces take, one for each thread."""
    if running.memory is None:
        return
    smallest = max((least_piece(planned) for planned in plan.tensors), default=0)
    least = running.jobs * WORKING_SET * max(SMALLEST_PIECE_BYTES, smallest)
    if running.memory < least:
        threads = "1 thread" if running.jobs == 1 else f"{running.jobs} threads"
        message = f"a cap of {running.memory:,} bytes of memory is too low: {threads} of this conversion take {least:,}"
        raise UsageError(Problem("memory-cap", f"{message}; raise --memory, or lower --jobs"))


def run(plan: Plan, destination: Path, running: Running, progress: Report | None = None) -> Result:
    """Write the artifact at `destination`.

    `progress` is called after every piece, from any thread, one call at a time. Raises NumericError or SourceError
    for the first piece of the plan that cannot be kept, RecipeError for a function of the recipe's own that fails,
    OutputError for the destination, UsageError for a cap of memory or of the files that is too low. Whatever is raised,
    KeyboardInterrupt included, leaves no file of this run behind.
    """
    # Where memory is short, NumPy may end the process while it is loaded: then no file has been made yet.
    import numpy  # noqa: F401

    start = time.monotonic()
    refuse_inputs([destination], plan.read)
    check_memory(plan, running)
    # First of all: parts that a dead run left would give ours other names, and take our room.
    remove_leftovers(destination)
    files = file_plan(plan, destination, running)
    check_destination(destination, sum(files.file_bytes), running.force)
    preflight(plan)
    tally = _Tally(Meter(plan.source_bytes, progress))
    stopwatch = Stopwatch() if running.profile else None
    with measure(stopwatch), ArtifactWriter(destination, files, force=running.force) as writer:

        def finish(planned: PlannedTensor | PlannedBytes) -> None:
            if running.digest:
                with stage("digest"):
                    tally.digests[planned.record.id] = writer.digest(planned.record)
            writer.release(planned.record)

        def write(piece: Piece) -> None:
            planned = piece.planned
            with measure(stopwatch):
                words = piece.words()
                segments = piece.place(words)
                with stage("write"):
                    for segment in segments:
                        writer.write(planned.record.offset + segment.offset, segment.data)
                if tally.add(piece, words.non_finite):
                    finish(planned)

        for planned in plan.objects:
            if isinstance(planned, PlannedBytes):
                writer.write(planned.record.offset, planned.content)
                finish(planned)
        for_each(_pieces(plan, running.piece_bytes, tally), write, running.jobs)
        for file in plan.files:
            refuse_changed(file)
        with stage("flush"):
            artifact_id = writer.finish(tally.digests)
    stages = stopwatch.seconds if stopwatch else {}
    return Result(destination, artifact_id, files, time.monotonic() - start, tally.warnings(), stages)


@dataclass
class _Tally:
    """What the threads of a run add to: progress, pieces left of each object, digests, counts."""

    meter: Meter
    left: Counter[str] = field(default_factory=Counter)
    digests: dict[str, str] = field(default_factory=dict)
    non_finite: Counter[str] = field(default_factory=Counter)

    def add(self, piece: Piece, non_finite: int) -> bool:
        """Count a written piece; whether it was the last of its object."""
        id, last = piece.planned.record.id, piece.members[-1]
        with self.meter.lock:
            self.left[id] -= 1
            if non_finite and last.piece.non_finite == "warn":
                self.non_finite[last.parameter] += non_finite
            self.meter.add(piece.source_bytes, last.parameter)
            return self.left[id] == 0

    def warnings(self) -> tuple[Problem, ...]:
        return tuple(
            Problem("non-finite-kept", f"{name}: {count} NaN or infinite values are kept bit for bit", tensor=name)
            for name, count in sorted(self.non_finite.items())
        )


def _pieces(plan: Plan, piece_bytes: int, tally: _Tally) -> Iterator[Piece]:
    """Every piece of every tensor, in the order of the payload."""
    for planned in plan.tensors:
        pieces = tuple(cut(planned, piece_bytes))
        tally.left[planned.record.id] = len(pieces)
        yield from pieces
