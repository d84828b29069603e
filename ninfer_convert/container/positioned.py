"""Reads and writes at given offsets of files, on any thread, with few files open at a time.

The system's positioned calls are used where it has them; elsewhere a seek and a plain call, one at a time.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

OPEN_AT_MOST = 64
CALL_BYTES = 1 << 30
"""More is not asked of one call: some systems refuse 2 GiB."""
BINARY = getattr(os, "O_BINARY", 0)
_seeking = threading.Lock()


def read_at(descriptor: int, length: int, offset: int) -> bytes:
    """Up to `length` bytes from `offset` on; fewer only where the file ends."""
    found = _read_once(descriptor, length, offset)
    if len(found) == length or not found:
        return found
    pieces = [found]
    got = len(found)
    while got < length and (piece := _read_once(descriptor, length - got, offset + got)):
        pieces.append(piece)
        got += len(piece)
    return b"".join(pieces)


def write_at(descriptor: int, data: memoryview, offset: int) -> None:
    """All of `data` at `offset`."""
    while data:
        written = _write_once(descriptor, data, offset)
        data, offset = data[written:], offset + written


def release(descriptor: int, length: int, offset: int) -> None:
    """Tell the system, where it listens, that these bytes are not needed in memory; does not wait.

    Linux begins to write what the device does not have yet, and forgets what it has.
    """
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):  # it is advice
            os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


def _read_once(descriptor: int, length: int, offset: int) -> bytes:
    length = min(length, CALL_BYTES)
    if hasattr(os, "pread"):
        return os.pread(descriptor, length, offset)
    with _seeking:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, length)


def _write_once(descriptor: int, data: memoryview, offset: int) -> int:
    data = data[:CALL_BYTES]
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, offset)
    with _seeking:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, data)


@dataclass
class _Opened:
    descriptor: int
    users: int = 0


class FilePool:
    """Files known by index, opened when first borrowed; beyond OPEN_AT_MOST the idle ones close, oldest first.

    `open_file` gives the descriptor of a file, checked as often as it is opened again.
    """

    def __init__(self, open_file: Callable[[int], int]) -> None:
        self._open_file = open_file
        self._files: OrderedDict[int, _Opened] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, index: int) -> Iterator[int]:
        """The descriptor of file `index`, open until the block ends."""
        with self._lock:
            opened = self._files.get(index)
            if opened is None:
                self._close_idle(OPEN_AT_MOST - 1)
                opened = self._files[index] = _Opened(self._open_file(index))
            self._files.move_to_end(index)
            opened.users += 1
        try:
            yield opened.descriptor
        finally:
            with self._lock:
                opened.users -= 1

    def close(self) -> None:
        """Close every file. None may be in use."""
        with self._lock:
            self._close_idle(0)

    def _close_idle(self, keep: int) -> None:
        idle = [index for index, opened in self._files.items() if not opened.users]
        for index in idle[: max(0, len(self._files) - keep)]:
            os.close(self._files.pop(index).descriptor)
