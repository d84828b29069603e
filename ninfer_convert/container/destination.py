"""Where an artifact is written: may it be, is there room, and how files get their final names (container.md 4)."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ninfer_convert.errors import OutputError, Problem

FULL = (errno.ENOSPC, errno.EDQUOT)


def folder_of(path: str) -> str:
    """The folder in which `path` lies."""
    return os.path.dirname(path) or os.curdir


def check_destination(destination: str | os.PathLike[str], needed_bytes: int, force: bool = False) -> None:
    """Make sure, before any work, that an artifact of `needed_bytes` bytes can be written at `destination`.

    Raises OutputError: no such folder, not writable, no room, the name is taken (unless `force`) or impossible.
    """
    path = os.fspath(destination)
    folder = folder_of(path)
    with output_errors(path, needed_bytes):
        if not os.path.basename(path):
            raise _refused("no-name", "names a folder; expected the name of a file in it", path)
        check_folder(folder)
        try:
            standing = os.lstat(path)
        except FileNotFoundError:
            pass
        else:
            check_standing(path, standing, force)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise _refused("not-writable", "files cannot be made in this folder: permission denied", folder)
        free = shutil.disk_usage(folder).free
        if free < needed_bytes:
            raise _refused("disk-full", f"needs {needed_bytes:,} bytes; {free:,} are free there", path)


def check_folder(folder: str) -> None:
    """OutputError where there is no such folder."""
    if not os.path.isdir(folder):
        found = "is not a folder" if os.path.lexists(folder) else "there is no such folder; make it first"
        raise _refused("no-folder", found, folder)


def check_standing(path: str, standing: os.stat_result, force: bool) -> None:
    """OutputError where what stands at `path` may not be replaced."""
    if not force:
        raise exists(path)
    if not (stat.S_ISREG(standing.st_mode) or stat.S_ISLNK(standing.st_mode)):
        raise _refused("not-a-file", "is not a regular file, and is not replaced", path)


def refuse_inputs(targets: Iterable[str | os.PathLike[str]], read: Mapping[Path, str]) -> None:
    """Raise OutputError where one of `targets` is a file of `read`: that is replaced by nothing, forced or not.

    The values of `read` tell what each file is of, "the checkpoint" for one.
    """
    owners: dict[tuple[int, int], str] = {}
    for path, owner in read.items():
        if os.path.exists(path):
            owners.setdefault(_identity(path), owner)
    for target in filter(os.path.exists, targets):
        found = owners.get(_identity(target))
        if found is not None:
            message = f"is a file of {found} itself, and is not replaced; choose another name"
            raise _refused("is-input", message, os.fspath(target))


def _identity(path: str | os.PathLike[str]) -> tuple[int, int]:
    """What the names of one file have in common."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


def exists(path: str) -> OutputError:
    """The refusal to replace what stands at `path`."""
    return _refused("exists", "exists already; force its replacement (--force), or choose another name", path)


def publish(temporary: str, path: str) -> None:
    """Give a finished temporary file its name; OutputError where something else has it. The old name may stay."""
    try:
        if not _link(temporary, path):
            if os.path.lexists(path):
                raise exists(path)
            os.rename(temporary, path)
    except FileExistsError:
        raise exists(path) from None


def _link(temporary: str, path: str) -> bool:
    """Whether the file now has the second name `path`; False where the file system knows no such thing."""
    if not hasattr(os, "link"):
        return False
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def keep(path: str, second: str) -> None:
    """Let the file `path` be `second` too, where the file system knows such a thing."""
    _link(path, second)


def sync_folder(folder: str) -> None:
    """Flush the names in `folder` to the device, where the system knows how."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def reserve(descriptor: int, size: int) -> None:
    """Make the open file `size` zero bytes long, with room on the device where the system can promise it."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODEV):
                raise
        else:
            return
    os.ftruncate(descriptor, size)


@contextmanager
def output_errors(path: str, needed_bytes: int) -> Iterator[None]:
    """What the system raises while `path` is written, as an OutputError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            free = shutil.disk_usage(folder_of(path)).free
            message = f"the disk is full: {needed_bytes:,} bytes are needed, and {free:,} are left"
            raise _refused("disk-full", message, path) from error
        message = f"cannot be written: {error.strerror or error}"
        if error.errno == errno.EFBIG:
            message += "; cap the size of its files"
        raise _refused("unwritable", message, path) from error
    except ValueError as error:
        raise _refused("unwritable", f"cannot be written: {error}", path) from error


def _refused(code: str, message: str, path: str) -> OutputError:
    return OutputError(Problem(code, message, path))
