"""Where the system lacks a call, or a file system an ability, artifacts are written and read all the same."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ninfer_convert.container import ArtifactWriter, open_artifact, plan_files, remove_leftovers
from ninfer_convert.errors import OutputError
from tests.container import making
from tests.oracle import container

CAP = 12288
ABSENT = ("pread", "pwrite", "posix_fallocate", "posix_fadvise", "link", "O_DIRECTORY")


def written(folder: Path) -> dict[str, bytes]:
    """What a fresh run, and two that replace it, leave; every artifact is read back by both readers."""
    path = folder / "m.ninfer"
    for seed, limit in ((1, CAP), (2, CAP), (3, None)):
        payload = making.write(path, limit, seed, force=True)
        assert container.read(path).payload == payload
        with open_artifact(path) as artifact:
            assert artifact.read(0, len(payload)) == payload
            assert artifact.broken_parts() == {}
        parts = container.read(path).directory["files"][1:]
        assert {file.name for file in folder.iterdir()} == {"m.ninfer", *(part["path"] for part in parts)}
    with pytest.raises(OutputError, match="exists already"):
        making.write(path)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, bytes]:
    folder = tmp_path / "expected"
    folder.mkdir()
    return written(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    return made


@pytest.mark.parametrize("absent", [*((name,) for name in ABSENT), ABSENT])
def test_without_a_call_the_bytes_are_the_same(
    absent: tuple[str, ...], expected: dict[str, bytes], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in absent:
        monkeypatch.delattr(os, name, raising=False)
    assert written(folder) == expected


def refusing(number: int) -> Callable[..., Any]:
    """A call that the file system refuses."""

    def call(*arguments: Any, **named: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("posix_fallocate", errno.EOPNOTSUPP),
        ("posix_fallocate", errno.EINVAL),
        ("posix_fadvise", errno.ESPIPE),
        ("link", errno.EPERM),
        ("link", errno.EOPNOTSUPP),
    ],
)
def test_where_the_file_system_refuses_the_bytes_are_the_same(
    call: str, number: int, expected: dict[str, bytes], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, call, refusing(number), raising=False)
    assert written(folder) == expected


def test_where_folders_cannot_be_flushed_files_are(
    expected: dict[str, bytes], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, flushed = os.fsync, []

    def files_alone(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        flushed.append(descriptor)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", files_alone)
    assert written(folder) == expected
    assert len(flushed) == 3 + 3 + 1


def test_short_reads_and_writes_are_gone_on_with(
    expected: dict[str, bytes], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pread, pwrite = os.pread, os.pwrite
    monkeypatch.setattr(os, "pread", lambda descriptor, length, offset: pread(descriptor, min(length, 1000), offset))
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: pwrite(descriptor, data[:1000], offset))
    assert written(folder) == expected


class Locking(ModuleType):
    """A stand-in for `msvcrt`: locks of single bytes, held until the file is closed."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.taken: list[tuple[int, int]] = []

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (self.LK_NBLCK, 1)
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        assert place > os.fstat(descriptor).st_size
        self.taken.append((descriptor, place))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None


def left_and_living(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead run's files go although a living run to the same destination has its own."""
    path = folder / "m.ninfer"
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", lambda name: None)
        making.write(path, CAP)
    path.unlink()
    assert len(list(folder.iterdir())) == 6
    planned = making.directory()
    with ArtifactWriter(path, plan_files(planned, path)):
        assert len(list(folder.iterdir())) == 8
        remove_leftovers(path)
        assert len(list(folder.iterdir())) == 2
    assert list(folder.iterdir()) == []


def test_locks_tell_dead_runs_from_living_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_and_living(folder, monkeypatch)


def test_where_bytes_are_locked_they_tell_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locking = Locking()
    monkeypatch.setitem(sys.modules, "msvcrt", locking)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    left_and_living(folder, monkeypatch)
    assert len(locking.taken) >= 3


def test_without_locks_nothing_is_taken_for_a_dead_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOLCK))
    path = folder / "m.ninfer"
    planned = making.directory()
    with ArtifactWriter(path, plan_files(planned, path)):
        before = set(folder.iterdir())
        remove_leftovers(path)
        payload = making.write(path)
        assert set(folder.iterdir()) == {*before, path}
    assert container.read(path).payload == payload
    assert list(folder.iterdir()) == [path]
