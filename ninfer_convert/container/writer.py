"""Writing an artifact so that it appears whole or not at all (container.md 4).

Payload bytes go into temporary files beside the destination, in any order and from any thread. `finish` adds the
headers and the directory, flushes, and gives the files their names, parts first. Whatever happens before the entry
has its name leaves what stood at the destination as it was.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ninfer_convert.container.coverage import Coverage
from ninfer_convert.container.destination import (
    check_destination,
    folder_of,
    keep,
    output_errors,
    publish,
    reserve,
    sync_folder,
)
from ninfer_convert.container.files import FilePlan, padded_json
from ninfer_convert.container.framing import ENTRY_MAGIC, HEADER, PART_MAGIC, derive_id
from ninfer_convert.container.positioned import BINARY, FilePool, read_at, release, write_at
from ninfer_convert.container.temporaries import Temporaries, parts_of, remove_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.container.records import Object

DIGEST_PIECE = 4 << 20
RELEASED_BYTES = 4 << 20
"""Of fewer complete bytes the system is not told: each call costs as much as a small object."""
WRITING_BYTES = 256 << 20
"""Complete bytes that the system may be writing before those that it began first are taken out of its memory."""


class ArtifactWriter:
    """A context in which an artifact is written; without `finish` it leaves nothing behind.

    Entering it checks the destination and makes the temporary files. Raises OutputError there and in each method
    where the system refuses. An existing entry is replaced only with `force`; where it is a link, the link is replaced
    and what it points to stays. What dead runs left is not its business: `remove_leftovers` comes before `plan_files`,
    which takes the names that are free.
    """

    def __init__(self, destination: str | os.PathLike[str], files: FilePlan, force: bool = False) -> None:
        self._path = os.fspath(destination)
        self._folder = folder_of(self._path)
        self._files = files
        self._force = force
        self._needed = sum(files.file_bytes)
        self._coverage = Coverage()
        self._pool = FilePool(self._open_temporary)
        self._lock = threading.Lock()
        self._complete: tuple[int, int] | None = None
        """The run of the payload in which objects are complete that the system has not been told of."""
        self._writing: deque[tuple[int, int]] = deque()
        """Those that it has been told of, and how many bytes they are."""
        self._writing_bytes = 0
        self._made: dict[str, os.stat_result] = {}
        """The files to be published, each under the path it will have."""
        self._replaced: tuple[bytes, tuple[str, ...]] = b"", ()
        """The id of the entry that is replaced, and the parts that only it names."""

    def __enter__(self) -> ArtifactWriter:
        check_destination(self._path, self._needed, self._force)
        with output_errors(self._path, self._needed):
            self._temporaries = Temporaries.beside(self._path)
            try:
                self._temporaries.claim()
                for index, size in enumerate(self._files.file_bytes):
                    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | BINARY
                    descriptor = os.open(self._temporaries.file(index), flags, 0o666)
                    try:
                        reserve(descriptor, size)
                    finally:
                        os.close(descriptor)
            except BaseException:
                self._temporaries.remove()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._clear_up()
        except BaseException:
            # Ctrl-C comes once: what it cut short is begun again.
            self._clear_up()
            raise

    def _clear_up(self) -> None:
        """Remove the temporary files; before them what is no part of what stands now, be it the old or the new."""
        self._pool.close()
        if self._is_published(self._path):
            remove_parts(self._folder, *self._replaced)
        else:
            for path in self._made:
                if self._is_published(path):
                    os.unlink(path)
        self._temporaries.remove()

    def write(self, offset: int, data: bytes | bytearray | memoryview | NDArray[Any]) -> None:
        """Write `data`, a contiguous buffer, at `offset` of the logical payload. Safe on several threads."""
        view = memoryview(data)  # type: ignore[arg-type]  # numpy tells types of it from Python 3.12 on only
        if not view.nbytes:
            return
        view = view.cast("B")
        done = 0
        for index, position, length in self._files.extents(offset, len(view)):
            self._write_file(index, position, view[done : done + length])
            done += length
        self._coverage.add(offset, offset + len(view))

    def digest(self, object: Object) -> str:
        """The SHA-256 of the bytes of `object`, 64 hex digits, read back. Call it once its last byte is written."""
        digest = hashlib.sha256()
        for begin in range(object.offset, object.end, DIGEST_PIECE):
            for index, position, length in self._files.extents(begin, min(DIGEST_PIECE, object.end - begin)):
                with self._pool.borrow(index) as descriptor, output_errors(self._path, self._needed):
                    digest.update(read_at(descriptor, length, position))
        return digest.hexdigest()

    def release(self, object: Object) -> None:
        """Let the system write `object`, which is complete, to the device while others are made; does not wait.

        Objects of long before are written by now: their memory serves again. So a large artifact neither fills the
        system's memory nor waits for more of it. Small ones are told of together. Safe on several threads.
        """
        with self._lock:
            begin, end = self._complete or (object.offset, object.end)
            begin, end = min(begin, object.offset), max(end, object.end)
            if end - begin < RELEASED_BYTES:
                self._complete = begin, end
                return
            self._complete = None
            released = [(begin, end)]
            self._writing.append((begin, end))
            self._writing_bytes += end - begin
            while self._writing_bytes > WRITING_BYTES:
                begin, end = self._writing.popleft()
                self._writing_bytes -= end - begin
                released.append((begin, end))
        for begin, end in released:
            for index, position, length in self._files.extents(begin, end - begin):
                with self._pool.borrow(index) as descriptor:
                    release(descriptor, length, position)

    def finish(self, digests: Mapping[str, str] | None = None) -> str:
        """Complete the artifact and publish it; its id, 32 hex digits.

        `digests` take the place of the planned directory's, by object. Raises RuntimeError where the bytes written are
        not those of its objects, each once, or where its JSON outgrew its room.
        """
        files = self._files
        self._coverage.check((object.offset, object.end) for object in files.directory.objects)
        id = derive_id(self._write_directory(digests or {}))
        self._write_file(0, 0, memoryview(HEADER.pack(ENTRY_MAGIC, files.json_bytes, id)))
        for index in range(1, len(files.files)):
            self._write_file(index, 0, memoryview(HEADER.pack(PART_MAGIC, index, id)))
        with output_errors(self._path, self._needed):
            for index in range(len(files.files)):
                with self._pool.borrow(index) as descriptor:
                    os.fsync(descriptor)
            self._pool.close()
            self._publish()
        return id.hex()

    def _write_directory(self, digests: Mapping[str, str]) -> Iterator[bytes]:
        """The parts of the directory's JSON, each once it is written."""
        position, end = HEADER.size, HEADER.size + self._files.json_bytes
        for part in padded_json(self._files, digests):
            if position + len(part) > end:
                raise RuntimeError(f"the directory is too long: room was kept for {self._files.json_bytes} bytes")
            self._write_file(0, position, memoryview(part))
            position += len(part)
            yield part

    def _publish(self) -> None:
        names = [file.path for file in self._files.files]
        paths = [self._path if name is None else os.path.join(self._folder, name) for name in names]
        self._made = {path: os.stat(self._temporaries.file(index)) for index, path in enumerate(paths)}
        if self._force and not os.path.islink(self._path):
            id, parts = parts_of(self._path, self._path)
            self._replaced = id, tuple(name for name in parts if name not in names)
            if parts:
                keep(self._path, self._temporaries.replaced)
        for index in range(1, len(paths)):
            publish(self._temporaries.file(index), paths[index])
        sync_folder(self._folder)
        if self._force:
            os.replace(self._temporaries.entry, self._path)
        else:
            publish(self._temporaries.entry, self._path)
        sync_folder(self._folder)

    def _is_published(self, path: str) -> bool:
        """Whether our own file has the name `path`: asked of the disk, since an interruption may fall anywhere."""
        try:
            return path in self._made and os.path.samestat(os.stat(path), self._made[path])
        except OSError:
            return False

    def _write_file(self, index: int, position: int, data: memoryview) -> None:
        with self._pool.borrow(index) as descriptor, output_errors(self._path, self._needed):
            write_at(descriptor, data, position)

    def _open_temporary(self, index: int) -> int:
        with output_errors(self._path, self._needed):
            return os.open(self._temporaries.file(index), os.O_RDWR | BINARY)
