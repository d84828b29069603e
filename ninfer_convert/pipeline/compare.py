"""Hold an artifact against a checkpoint or another artifact: how far its values lie from the ones they stand for.

Both sides are read in pieces, in bounded memory, on as many threads as are wanted; the sums are the same for any
number of them. `counterparts` says what is held against what, `metrics` what is made of the sums.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from ninfer_convert.container import Artifact
from ninfer_convert.errors import Problem, SourceError, UsageError, printable
from ninfer_convert.kernels.metrics import CHUNK, COUNTS, SUMS, sum_pairs
from ninfer_convert.pipeline.counterparts import pair
from ninfer_convert.pipeline.inspect import inspect
from ninfer_convert.pipeline.metrics import MEASURES, Metrics, Sums
from ninfer_convert.pipeline.progress import Meter, Report
from ninfer_convert.pipeline.stored import PIECE_ELEMENTS, OpenArtifact
from ninfer_convert.pipeline.threads import for_each

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.pipeline.counterparts import Counterpart
    from ninfer_convert.pipeline.stored import StoredParameter
    from ninfer_convert.sources import Checkpoint
    from ninfer_convert.values import Shape, Words


@dataclass(frozen=True)
class ParameterComparison:
    """One parameter held against its counterpart, which is the reference.

    `identical` says that every stored word is the same in the same format; of a checkpoint's plain tensor, that it has
    the direct format's type and the same bits. `non_finite` counts pairs with a NaN or an infinity on either side,
    which `metrics` leaves out, `disagreeing` those of them that are not two NaNs or the same infinity.
    """

    name: str
    counterpart: str
    """What it is called in B."""
    shape: Shape
    format: str
    reference: str
    """The format or stored type of B."""
    integral: bool
    """Whether either side holds whole numbers by type; totals leave it out."""
    identical: bool
    metrics: Metrics
    non_finite: int
    disagreeing: int


@dataclass(frozen=True)
class ShapeDifference:
    """A parameter whose shape differs, so that nothing of it is compared."""

    name: str
    a: Shape
    b: Shape


@dataclass(frozen=True)
class Comparison:
    """What `compare` found. `total` is taken over the values of all parameters but those of whole numbers."""

    a: str
    b: str
    parameters: tuple[ParameterComparison, ...]
    """In the artifact's order."""
    total: Metrics
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    shapes: tuple[ShapeDifference, ...]
    skipped: Mapping[str, str]
    """What either artifact's recipe left out: name -> reason."""

    @property
    def identical(self) -> bool:
        """Whether all words of all parameters are the same, and nothing is missing on either side."""
        return not (self.only_in_a or self.only_in_b or self.shapes) and all(p.identical for p in self.parameters)

    def judge(self, thresholds: Mapping[str, float]) -> tuple[Problem, ...]:
        """Why it does not pass: measures (`metrics.MEASURES`) beyond their threshold, and what no number can say.

        Each parameter must pass each threshold. What is missing on one side without having been skipped, a differing
        shape, and a NaN or infinity that the other side does not have pass none. Without thresholds all is well.
        """
        return tuple(self._failures(thresholds)) if thresholds else ()

    def _failures(self, thresholds: Mapping[str, float]) -> Iterator[Problem]:
        for path, names in ((self.a, self.only_in_a), (self.b, self.only_in_b)):
            yield from (Problem("missing", f"{printable(n)}: is only in {printable(path)}", tensor=n) for n in names)
        for shape in self.shapes:
            message = f"{printable(shape.name)}: has the shapes {list(shape.a)} and {list(shape.b)}"
            yield Problem("shape", message, tensor=shape.name)
        for parameter in self.parameters:
            if parameter.disagreeing:
                message = f"{printable(parameter.name)}: {parameter.disagreeing} NaN or infinite values disagree"
                yield Problem("non-finite", message, tensor=parameter.name)
            for measure, threshold in thresholds.items():
                if not parameter.metrics.passes(measure, threshold):
                    value = getattr(parameter.metrics, measure)
                    message = (
                        f"{printable(parameter.name)}: {measure} is {value:.6g}, {MEASURES[measure]} {threshold:g}"
                    )
                    yield Problem(measure, message, tensor=parameter.name)


def compare(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    jobs: int = 1,
    progress: Report | None = None,
) -> Comparison:
    """Hold the artifact `a` against `b`, a checkpoint or an artifact, on `jobs` threads.

    `progress` is called after every piece, from any thread, one call at a time; it counts stored bytes of both sides.
    Raises UsageError where `a` is no artifact, ArtifactError and SourceError for what cannot be read, SourceError too
    where the two have no parameter in common.
    """
    with ExitStack() as stack:
        artifact, other = (_open(path, stack) for path in (a, b))
        if not isinstance(artifact, OpenArtifact):
            message = "is a checkpoint; name the artifact first, then the checkpoint or artifact to hold it against"
            raise UsageError(Problem("not-an-artifact", message, path=os.fspath(a)))
        pairing = pair(artifact, other)
        if not pairing.pairs:
            message = f"holds no parameter of {printable(os.fspath(a))}: they cannot be compared"
            raise SourceError(Problem("nothing-in-common", message, path=os.fspath(b)))
        tallies = [_Tally(*each) for each in pairing.pairs if each[0].shape == each[1].shape]
        _sum_up(tallies, jobs, progress)
        return Comparison(
            a=os.fspath(a),
            b=os.fspath(b),
            parameters=tuple(tally.comparison() for tally in tallies),
            total=reduce(add, (tally.total for tally in tallies if not tally.integral), Sums()).metrics,
            only_in_a=pairing.only_in_a,
            only_in_b=pairing.only_in_b,
            shapes=tuple(
                ShapeDifference(own.name, own.shape, other.shape)
                for own, other in pairing.pairs
                if own.shape != other.shape
            ),
            skipped=pairing.skipped,
        )


def _open(path: str | os.PathLike[str], stack: ExitStack) -> OpenArtifact | Checkpoint:
    opened = inspect(os.fspath(path))
    return stack.enter_context(OpenArtifact(opened)) if isinstance(opened, Artifact) else opened


@dataclass(eq=False)
class _Tally:
    """A parameter and its counterpart, and what is known of them so far."""

    stored: StoredParameter
    counterpart: Counterpart
    identical: bool = True
    total: Sums = field(default_factory=Sums)

    @property
    def integral(self) -> bool:
        return self.stored.integral or self.counterpart.integral

    @property
    def nbytes(self) -> int:
        return self.stored.nbytes + self.counterpart.nbytes

    def comparison(self) -> ParameterComparison:
        return ParameterComparison(
            name=self.stored.name,
            counterpart=self.counterpart.name,
            shape=self.stored.shape,
            format=self.stored.format,
            reference=self.counterpart.format,
            integral=self.integral,
            identical=self.identical,
            metrics=self.total.metrics,
            non_finite=self.total.pairs - self.total.counted,
            disagreeing=self.total.disagreeing,
        )


@dataclass(eq=False)
class _Chunks:
    """The sums of every chunk of a parameter that is being read, and how many of its pieces are to come."""

    tally: _Tally
    left: int
    counts: NDArray[np.int64]
    sums: NDArray[np.float64]


@dataclass(frozen=True)
class _Piece:
    """Elements [begin, end) of a parameter, whole chunks of it."""

    chunks: _Chunks
    begin: int
    end: int


def _pieces(tallies: Iterable[_Tally]) -> Iterator[_Piece]:
    for tally in tallies:
        elements = tally.stored.elements
        step = -(-max(PIECE_ELEMENTS, tally.stored.columns) // CHUNK) * CHUNK
        count = -(-elements // CHUNK)
        counts, sums = np.zeros((count, len(COUNTS)), np.int64), np.zeros((count, len(SUMS)))
        chunks = _Chunks(tally, -(-elements // step), counts, sums)
        for begin in range(0, elements, step):
            yield _Piece(chunks, begin, min(begin + step, elements))


def _sum_up(tallies: Sequence[_Tally], jobs: int, progress: Report | None) -> None:
    """Fill every tally. What a thread sums goes to the places of its chunks, so that its turn does not matter."""
    meter = Meter(sum(tally.nbytes for tally in tallies), progress)

    def work(piece: _Piece) -> None:
        chunks, tally = piece.chunks, piece.chunks.tally
        identical = _sum_piece(piece)
        with meter.lock:
            tally.identical &= identical
            chunks.left -= 1
            if not chunks.left:
                tally.total = Sums.of(tally.stored.elements, chunks.counts, chunks.sums)
            elements = tally.stored.elements
            done = tally.nbytes * piece.end // elements - tally.nbytes * piece.begin // elements
            meter.add(done, tally.stored.name)

    for_each(_pieces(tallies), work, jobs)


def _sum_piece(piece: _Piece) -> bool:
    """Sum the chunks of a piece; whether all its words are identical.

    Where the counterpart has words in the same format, those are what is compared, whatever it decodes them to itself.
    """
    tally = piece.chunks.tally
    values, references = [], []
    identical = True
    at = piece.begin
    for span in tally.stored.cut(piece.begin, piece.end):
        words, others = span.words(), tally.counterpart.words_like(span, at)
        decoded = span.decode(words)
        values.append(decoded)
        if others is None:
            identical = False
            references.append(tally.counterpart.values(at, at + span.elements))
        elif _same(words, others):
            references.append(decoded)
        else:
            identical = False
            references.append(span.decode(others))
        at += span.elements
    chosen = slice(piece.begin // CHUNK, -(-piece.end // CHUNK))
    x, y = _alike(values, references)
    sum_pairs(x, y, piece.chunks.counts[chosen], piece.chunks.sums[chosen])
    return identical


def _same(a: Words, b: Words) -> bool:
    """Whether they are the same bits."""
    return all(
        x is y if x is None or y is None else np.array_equal(x.view(f"u{x.itemsize}"), y.view(f"u{y.itemsize}"))
        for x, y in ((a.codes, b.codes), (a.scales, b.scales), (a.divisors, b.divisors))
    )


def _alike(*sides: Sequence[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Each side as one new array, all float32 if they are that, else all float64.

    New ones even of a single part: a kernel is compiled again for arrays that may not be written.
    """
    single = all(part.dtype == np.float32 for side in sides for part in side)
    return (np.concatenate(side, dtype=np.float32 if single else np.float64) for side in sides)
