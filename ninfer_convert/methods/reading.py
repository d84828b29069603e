"""A source's elements as the arrays that kernels take, and its pieces in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.methods.base import Job
    from ninfer_convert.values import Values

PIECE_ELEMENTS = 1 << 20


def float_words(values: Values) -> tuple[NDArray[Any], bool]:
    """The words [n] of float values, uint16, uint32 or uint64, and whether they are binary16 (`kernels.stored`)."""
    array = values.array if values.array.flags.c_contiguous else values.array.copy()
    return array.view(f"uint{8 * array.itemsize}"), values.stored == "F16"


def integers(values: Values) -> NDArray[Any]:
    """Integer or bool values [n] as int64, or uint64 where they were that."""
    array = values.array != 0 if values.stored == "BOOL" else values.array
    wide: NDArray[Any] = array.astype("uint64" if values.stored == "U64" else "int64")
    return wide


def pieces(job: Job) -> Iterator[tuple[int, Values]]:
    """All elements of a job's source in bounded runs of whole rows, each with the index of its first element."""
    rows = max(1, PIECE_ELEMENTS // job.columns)
    for begin in range(0, job.rows, rows):
        first = begin * job.columns
        yield first, job.source.values(first, min(begin + rows, job.rows) * job.columns)
