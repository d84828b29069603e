"""The temporary files of a run, and what killed runs left of theirs (container.md 4).

All files of one run begin with a name made from the destination's and a random token. A file of the run is locked
while its process lives: where the lock is free, the run is dead and its files go. Runs of another kind than
conversions have names of their own: of each kind only a run of the same kind knows what is to be done.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from ninfer_convert.container.destination import folder_of
from ninfer_convert.container.framing import ENTRY_MAGIC, HEADER, PART_MAGIC
from ninfer_convert.container.positioned import BINARY, read_at
from ninfer_convert.container.reader import open_file, read_entry
from ninfer_convert.errors import NinferConvertError

LOCK, ENTRY, REPLACED, FOLDER = "lock", "entry", "replaced", "folder"
_ENDING = re.compile(rf"(.+)\.({LOCK}|{ENTRY}|{REPLACED}|{FOLDER}|part-[0-9]{{4,}})", re.DOTALL)
_TOKEN = 8
"""Hexadecimal digits that tell the runs to one destination apart."""
_LOCK_OFFSET = 1 << 40
"""The byte that stands for the lock where bytes are locked: far behind the end of any lock file."""


@dataclass
class Temporaries:
    """The files of one run: `stem` with an ending."""

    stem: str
    _lock: int | None = None

    @classmethod
    def beside(cls, destination: str, kind: str = "") -> Temporaries:
        """Names that no file has yet."""
        return cls(_prefix(destination, kind) + _token())

    def claim(self) -> None:
        """Lock the names until `remove` or `close`, or until the process ends; other ones where these are taken.

        `remove` clears up after it wherever it is interrupted.
        """
        while True:
            try:
                self._lock = os.open(f"{self.stem}.{LOCK}", os.O_RDWR | os.O_CREAT | os.O_EXCL | BINARY, 0o600)
                # A run that clears up may have taken the new file for a dead one's.
                if _try_lock(self._lock) and _is_open(self._lock, f"{self.stem}.{LOCK}"):
                    return
            except FileExistsError:
                pass
            except OSError:
                if self._lock is None:
                    raise
                # A file system without locks: nobody can take the files for a dead run's either.
                return
            self.close()
            self.stem = self.stem[:-_TOKEN] + _token()

    @property
    def entry(self) -> str:
        """The entry in the making."""
        return f"{self.stem}.{ENTRY}"

    @property
    def replaced(self) -> str:
        """A second name for the entry that is about to be replaced, so that its parts can be found again."""
        return f"{self.stem}.{REPLACED}"

    @property
    def folder(self) -> str:
        """A folder of the run's own."""
        return f"{self.stem}.{FOLDER}"

    def file(self, index: int) -> str:
        """File `index` of the artifact in the making."""
        return f"{self.stem}.part-{index:04}" if index else self.entry

    def remove(self) -> None:
        """Remove every file of the run that can be removed: parts first, the lock last."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for stem, ending in _listed(os.path.dirname(self.stem)):
            if stem == self.stem and ending not in (LOCK, ENTRY, REPLACED, FOLDER):
                _unlink(f"{stem}.{ending}")
        _unlink(self.entry)
        _unlink(self.replaced)
        self.close()
        _unlink(f"{self.stem}.{LOCK}")

    def close(self) -> None:
        """Let the lock go: what is left of the run is a dead one's."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def remove_leftovers(destination: str | os.PathLike[str]) -> None:
    """Remove what dead runs to `destination` left: temporary files, and parts whose entry was never published.

    Such parts are those that a left entry names and that carry its id. Nothing else is touched.
    """
    path = os.fspath(destination)
    for left in dead_runs(path):
        standing = _entry_id(path)
        for entry in (left.entry, left.replaced):
            _remove_unpublished_parts(entry, path, standing)
        left.remove()


def dead_runs(destination: str, kind: str = "") -> Iterator[Temporaries]:
    """The dead runs to `destination` that left files, each locked for us until it is removed or closed."""
    ours = re.compile(re.escape(_prefix(destination, kind)) + f"[0-9a-f]{{{_TOKEN}}}")
    for stem in sorted({stem for stem, _ in _listed(os.path.dirname(destination)) if ours.fullmatch(stem)}):
        left = _take_over(stem)
        if left is not None:
            yield left


def remove_parts(folder: str, artifact_id: bytes, names: Iterable[str]) -> None:
    """Remove those files of `names` in `folder` that are parts of the artifact `artifact_id`."""
    for name in names:
        path = os.path.join(folder, name)
        header = _header(path)
        if header is not None and header[0] == PART_MAGIC and header[2] == artifact_id:
            _unlink(path)


def parts_of(entry: str, path: str) -> tuple[bytes, tuple[str, ...]]:
    """The id of the entry file `entry`, whose name is or is to be `path`, and its parts; none if it is no artifact."""
    try:
        descriptor = open_file(entry, entry)
        try:
            id, plan = read_entry(descriptor, path)
        finally:
            os.close(descriptor)
    except (NinferConvertError, OSError):
        return b"", ()
    return id, tuple(file.path for file in plan.files if file.path is not None)


def _remove_unpublished_parts(entry: str, path: str, standing: bytes | None) -> None:
    id, names = parts_of(entry, path)
    if not names or id == standing:
        return
    # With a second name the entry stands somewhere, complete with these parts.
    if os.stat(entry).st_nlink == 1:
        remove_parts(folder_of(path), id, names)


def _take_over(stem: str) -> Temporaries | None:
    """The files of a dead run, locked for us; None where the run lives."""
    try:
        lock = os.open(f"{stem}.{LOCK}", os.O_RDWR | os.O_CREAT | BINARY, 0o600)
    except OSError:
        return None
    try:
        if _try_lock(lock):
            return Temporaries(stem, lock)
    except OSError:
        pass
    os.close(lock)
    return None


def _token() -> str:
    return os.urandom(_TOKEN // 2).hex()


def _prefix(destination: str, kind: str) -> str:
    """What the temporary files of every run to `destination` begin with, of the same length for any name."""
    digest = hashlib.sha256(os.fsencode(os.path.basename(destination))).hexdigest()[:16]
    return os.path.join(os.path.dirname(destination), f".ninfer-{kind}{digest}-")


def _entry_id(path: str) -> bytes | None:
    header = _header(path)
    return header[2] if header is not None and header[0] == ENTRY_MAGIC else None


def _header(path: str) -> tuple[bytes, int, bytes] | None:
    """The three fields of the header of the regular file `path`, None where there is none."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return None
        descriptor = open_file(path, path)
        try:
            head = read_at(descriptor, HEADER.size, 0)
        finally:
            os.close(descriptor)
    except (NinferConvertError, OSError):
        return None
    magic, number, id = HEADER.unpack(head) if len(head) == HEADER.size else (b"", 0, b"")
    return magic, number, id


def _listed(folder: str) -> list[tuple[str, str]]:
    """The paths of all files in `folder` that end as temporary ones do, cut in front of their ending."""
    try:
        names = os.listdir(folder or os.curdir)
    except OSError:
        return []
    found = (_ENDING.fullmatch(name) for name in names)
    return [(os.path.join(folder, match[1]), match[2]) for match in found if match]


def _unlink(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _is_open(descriptor: int, path: str) -> bool:
    """Whether `path` is still the file that is open."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _try_lock(descriptor: int) -> bool:
    """Lock the open file until it is closed; False where another process holds it. OSError: no locks here."""
    try:
        try:
            import fcntl
        except ImportError:
            import msvcrt

            os.lseek(descriptor, _LOCK_OFFSET, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            return False
        raise
    return True
