"""Positioned reads of checkpoint files: from any thread, into memory that the caller keeps, with few descriptors.

Files are read, not mapped: hundreds of shards cost no address space, and a file that shrinks meanwhile is an
error instead of a signal.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.paths import refuse_irregular, translated
from ninfer_convert.stages import stage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.sources.base import SourceFile

OPEN_AT_MOST = 64
"""Idle descriptors kept; those in use at the moment are never closed, so threads may exceed it."""


MAX_WHOLE = 256 << 20
"""Longest file beside a checkpoint (a config, an index, a tokenizer) that is read, in bytes."""


def read(file: SourceFile, offset: int, count: int) -> NDArray[np.uint8]:
    """Bytes [offset, offset + count) of `file` as a fresh uint8 array [count].

    Raises SourceError where the file cannot be opened or read, is another one by now, or ends before.
    """
    import numpy as np

    array = np.empty(count, dtype=np.uint8)
    rest = array.data
    with stage("read"), translated(file.shown), _POOL.borrow(file) as descriptor:
        while rest:
            got = descriptor.read_into(rest, offset)
            if got == 0:
                found = f"ends at byte {offset}, but was {file.size} bytes long when its header was read"
                raise SourceError(_changed(file, found))
            offset += got
            rest = rest[got:]
    return array


def refuse_changed(file: SourceFile) -> None:
    """Raise SourceError where `file` was written to since its header was read, or, if it is not open, replaced.

    An open file that only lost its name to another one is still read as it was.
    """
    with translated(file.shown), _POOL.borrow(file) as descriptor:
        compare(file, os.fstat(descriptor.number))


def read_whole(path: Path, shown: str, limit: int = MAX_WHOLE) -> bytes | None:
    """The whole content of a regular file of at most `limit` bytes; None where there is no such file.

    Raises SourceError where it is no regular file, is longer, or cannot be read.
    """
    found = read_with_status(path, shown, limit)
    return None if found is None else found[0]


def read_with_status(path: Path, shown: str, limit: int = MAX_WHOLE) -> tuple[bytes, os.stat_result] | None:
    """The same, and the file's status from before it was read."""
    try:
        with translated(shown):
            refuse_irregular(path.stat(), shown)
            with path.open("rb") as stream:
                status = os.fstat(stream.fileno())
                if status.st_size > limit:
                    message = f"is {status.st_size} bytes long, over the limit of {limit} bytes for such a file"
                    raise SourceError(Problem("too-long", message, path=shown))
                return stream.read(status.st_size), status
    except SourceError as error:
        if isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError)):
            return None
        raise


@dataclass(eq=False)
class _Descriptor:
    number: int
    users: int = 0
    seeking: threading.Lock = field(default_factory=threading.Lock)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill the front of `buffer` from `offset` on; the number of bytes, 0 at the end of the file."""
        if hasattr(os, "preadv"):
            return os.preadv(self.number, [buffer], offset)
        with self.seeking, open(self.number, "rb", buffering=0, closefd=False) as stream:
            stream.seek(offset)
            return stream.readinto(buffer) or 0


class _Pool:
    """Open descriptors by file; beyond `limit` the idle ones close, the least recently used first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._open: OrderedDict[int, _Descriptor] = OrderedDict()
        self._forgotten: deque[int] = deque()
        """Files that no longer exist in the program: a finalizer may run anywhere, so it only leaves word here."""

    @contextmanager
    def borrow(self, file: SourceFile) -> Iterator[_Descriptor]:
        key = id(file)
        with self._lock:
            while self._forgotten:
                self._close(self._forgotten.popleft())
            descriptor = self._open.get(key)
            if descriptor is None:
                descriptor = self._open[key] = _open_checked(file)
                weakref.finalize(file, self._forgotten.append, key)
            self._open.move_to_end(key)
            descriptor.users += 1
            idle = [other for other, known in self._open.items() if known.users == 0]
            for other in idle[: max(0, len(self._open) - self._limit)]:
                self._close(other)
        try:
            yield descriptor
        finally:
            with self._lock:
                descriptor.users -= 1

    def _close(self, key: int) -> None:
        descriptor = self._open.pop(key, None)
        if descriptor is not None:
            os.close(descriptor.number)


def _open_checked(file: SourceFile) -> _Descriptor:
    number = os.open(file.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        compare(file, os.fstat(number))
    except SourceError:
        os.close(number)
        raise
    if hasattr(os, "posix_fadvise"):
        # Several threads read one piece each, which the system alone takes for random access and reads ahead little.
        with suppress(OSError):  # it is advice
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    return _Descriptor(number)


def compare(file: SourceFile, now: os.stat_result) -> None:
    """Raise SourceError where `now` is not the status of what the header was read from; the time of access is free."""
    then = file.status
    if now.st_size != then.st_size:
        found = f"is {now.st_size} bytes long, but was {then.st_size} when its header was read"
    elif now.st_mtime_ns != then.st_mtime_ns or not os.path.samestat(now, then):
        found = "was written to, or replaced by another file, after its header was read"
    else:
        return
    raise SourceError(_changed(file, found))


def _changed(file: SourceFile, found: str) -> Problem:
    message = f"{found}; start again once nothing changes it any more"
    return Problem("file-changed", message, path=file.shown)


_POOL = _Pool(OPEN_AT_MOST)
