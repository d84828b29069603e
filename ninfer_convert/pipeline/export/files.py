"""The files of an export, written in bounded memory by any number of threads.

Both formats are a header, which is made whole, and tensors at known offsets: their bytes are made piece by piece as
they are written, which no library of either format does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ninfer_convert.container.destination import output_errors, reserve
from ninfer_convert.container.positioned import BINARY, FilePool, write_at
from ninfer_convert.pipeline.progress import Meter, Report
from ninfer_convert.pipeline.threads import for_each

if TYPE_CHECKING:
    from numpy.typing import NDArray

Make = Callable[[int, int], "bytes | NDArray[Any]"]
"""`make(a, b)`: units [a, b) as bytes or a contiguous array of them. Safe on several threads."""


@dataclass(frozen=True)
class Region:
    """Bytes of a file from `offset` on that are made as they are written: `count` units of `unit` bytes, `step` of
    them at a time; `owner` is the parameter or file that they are of."""

    owner: str
    offset: int
    unit: int
    count: int
    step: int
    make: Make

    @property
    def nbytes(self) -> int:
        return self.unit * self.count

    @property
    def end(self) -> int:
        """The offset behind its last byte."""
        return self.offset + self.nbytes


@dataclass(frozen=True)
class File:
    """A file of `size` bytes: it begins with `head`; what no region covers behind that is zero."""

    name: str
    size: int
    head: bytes = b""
    regions: tuple[Region, ...] = ()


def write_files(files: Sequence[File], folder: str, jobs: int = 1, progress: Report | None = None) -> None:
    """Make every file in `folder`, complete and flushed to the device.

    `progress` is called after every piece, from any thread, one call at a time. Raises OutputError where the system
    refuses, and whatever making the bytes raises.
    """
    needed = sum(file.size for file in files)
    meter = Meter(sum(region.nbytes for file in files for region in file.regions), progress)

    def path(index: int) -> str:
        return os.path.join(folder, files[index].name)

    def pieces() -> Iterator[tuple[int, Region, int, int]]:
        for index, file in enumerate(files):
            for region in file.regions:
                for begin in range(0, region.count, region.step):
                    yield index, region, begin, min(begin + region.step, region.count)

    def work(piece: tuple[int, Region, int, int]) -> None:
        index, region, begin, end = piece
        made = region.make(begin, end)
        data = memoryview(made).cast("B")  # type: ignore[arg-type]  # numpy's types lack the buffer before Python 3.12
        with pool.borrow(index) as descriptor, output_errors(path(index), needed):
            write_at(descriptor, data, region.offset + begin * region.unit)
        meter.add(len(data), region.owner)

    for index, file in enumerate(files):
        with output_errors(path(index), needed):
            descriptor = os.open(path(index), os.O_RDWR | os.O_CREAT | os.O_EXCL | BINARY, 0o666)
            try:
                reserve(descriptor, file.size)
                write_at(descriptor, memoryview(file.head), 0)
            finally:
                os.close(descriptor)
    pool = FilePool(lambda index: os.open(path(index), os.O_RDWR | BINARY))
    try:
        for_each(pieces(), work, jobs)
        for index in range(len(files)):
            with pool.borrow(index) as descriptor, output_errors(path(index), needed):
                os.fsync(descriptor)
    finally:
        pool.close()
