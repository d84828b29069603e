"""Files that a user names, checkpoints and artifacts alike: the same words for what stands in the way of reading."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from ninfer_convert.errors import Problem, SourceError, nearest, printable

AGAIN = "download the file itself again"

_ON_THE_HUB = re.compile(r"\w[\w.-]*/[\w.-]+(?<!\.ninfer)")


def regular_file(path: str | os.PathLike[str], shown: str, needed: str = "a file") -> os.stat_result:
    """The status of the regular file at `path`, which messages call `shown`; links are followed. `needed` is what they
    call it where there is no file.

    Raises SourceError where there is none, with the names nearest to it, or where the system does not let it be seen.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        if os.path.islink(path):
            message = f"is a link to {printable(os.readlink(path))}, which does not exist: {AGAIN}"
            raise SourceError(Problem("broken-link", message, path=shown)) from error
        raise SourceError(Problem("no-such-file", _absent(path, shown), path=shown)) from error
    except (OSError, ValueError) as error:
        raise unreadable(error, shown) from error
    refuse_irregular(status, shown, needed)
    return status


def refuse_irregular(status: os.stat_result, shown: str, needed: str = "a file") -> None:
    """Raise SourceError where this is the status of no regular file; to open a pipe could block for ever."""
    if not stat.S_ISREG(status.st_mode):
        kind = "folder" if stat.S_ISDIR(status.st_mode) else "pipe, device or socket"
        raise SourceError(Problem("not-a-file", f"is a {kind}, where {needed} is needed", path=shown))


def unreadable(error: OSError | ValueError, shown: str) -> SourceError:
    """What the system raised, or Python for a path with a null character, as an error that names the file."""
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
    else:  # each version of Python has its own words for it
        reason = "its name holds a null character" if "\0" in shown else str(error)
    return SourceError(Problem("unreadable", f"cannot be read: {reason}", path=shown))


@contextmanager
def translated(shown: str) -> Iterator[None]:
    """Turn what the system raises, or Python as `unreadable` says, into a SourceError that names the file."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise unreadable(error, shown) from error


def _absent(path: str | os.PathLike[str], shown: str) -> str:
    folder, name = os.path.split(os.fspath(path))
    try:
        close = nearest(name, os.listdir(folder or os.curdir))
    except OSError:
        hub = _ON_THE_HUB.fullmatch(shown)
        return "does not exist" + ("; a model of the Hugging Face hub must be downloaded first" if hub else "")
    return "does not exist" + (f"; did you mean {' or '.join(map(printable, close))}?" if close else "")
