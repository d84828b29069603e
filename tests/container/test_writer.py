"""Writing artifacts: what the files hold, and that they appear whole or not at all (container.md 4)."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import random
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ninfer_convert.container import (
    DIGEST_PLACEHOLDER,
    ArtifactWriter,
    check_destination,
    open_artifact,
    plan_files,
    remove_leftovers,
    serialize,
    with_digests,
)
from ninfer_convert.errors import OutputError
from tests.container import making
from tests.oracle import container

CAP = 12288


def listing(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder: name -> content, None for what is no file."""
    return {path.name: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """The folder holds the same afterwards."""
    before = listing(folder)
    yield
    assert listing(folder) == before


class TestContent:
    @pytest.mark.parametrize("limit", [None, 100_000, CAP, 8192])
    def test_an_independent_reader_finds_every_byte(self, tmp_path: Path, limit: int | None) -> None:
        payload = making.write(tmp_path / "m.ninfer", limit)
        found = container.read(tmp_path / "m.ninfer")
        assert found.payload == payload
        planned = making.directory()
        digests = {
            object.id: hashlib.sha256(payload[object.offset : object.end]).hexdigest() for object in planned.objects
        }
        assert {id: record["sha256"] for id, record in found.directory["provenance"]["objects"].items()} == digests
        assert found.artifact_id == hashlib.sha256(found.text).digest()[:16]
        text = json.dumps(found.directory, separators=(",", ":")).encode()
        assert found.text == text.ljust(len(found.text), b" ")
        assert len(text) == len(found.text) or limit in (CAP, 8192)
        with open_artifact(tmp_path / "m.ninfer") as artifact:
            assert artifact.derived_id() == artifact.artifact_id == found.artifact_id.hex()
            assert artifact.read(0, 20_000) == payload

    @pytest.mark.parametrize("limit", [None, CAP])
    def test_the_same_inputs_give_the_same_bytes(self, tmp_path: Path, limit: int | None) -> None:
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir()
            making.write(tmp_path / folder / "m.ninfer", limit)
        assert listing(tmp_path / "a") == listing(tmp_path / "b")

    def test_pieces_come_in_any_order_from_any_thread(self, tmp_path: Path) -> None:
        planned = making.directory(1_000_000)
        payload = making.payload_of(planned, 3)
        pieces = [
            (object.offset + at, min(997, object.bytes - at))
            for object in planned.objects
            for at in range(0, object.bytes, 997)
        ]
        random.Random(0).shuffle(pieces)
        files = plan_files(planned, tmp_path / "m.ninfer", 20_000)
        with ArtifactWriter(tmp_path / "m.ninfer", files) as writer, ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda piece: writer.write(piece[0], payload[piece[0] : piece[0] + piece[1]]), pieces))
            writer.finish(planned)
        assert container.read(tmp_path / "m.ninfer").payload == payload
        assert len(files.files) > 50

    def test_any_contiguous_buffer_is_written(self, tmp_path: Path) -> None:
        planned = making.directory(512 + 24)
        words = np.arange(6, dtype=np.uint32)
        with ArtifactWriter(tmp_path / "m.ninfer", plan_files(planned, tmp_path / "m.ninfer")) as writer:
            writer.write(0, bytearray(300))
            writer.write(512, words[:2].reshape(1, 2))
            writer.write(520, words[2:3])
            writer.write(524, memoryview(words.tobytes())[12:])
            writer.write(7, words[:0])
            writer.finish(planned)
        assert container.read(tmp_path / "m.ninfer").object_bytes("a") == words.tobytes()

    def test_files_get_the_rights_of_new_files(self, tmp_path: Path) -> None:
        before = os.umask(0o027)
        try:
            making.write(tmp_path / "m.ninfer", CAP)
        finally:
            os.umask(before)
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o640}

    def test_a_plain_file_name_is_beside_the_caller(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        check_destination("m.ninfer", 1)
        payload = making.write(Path("m.ninfer"), CAP)
        assert container.read(tmp_path / "m.ninfer").payload == payload


class TestEveryByteOnce:
    def attempt(self, folder: Path, *pieces: tuple[int, int]) -> None:
        planned = making.directory()
        with ArtifactWriter(folder / "m.ninfer", plan_files(planned, folder / "m.ninfer", CAP)) as writer:
            for begin, end in pieces:
                writer.write(begin, bytes(end - begin))
            writer.finish(planned)

    @pytest.mark.parametrize(
        "pieces",
        [
            [(0, 300)],
            [(0, 300), (512, 19_999)],
            [(0, 300), (513, 20_000)],
            [(0, 300), (512, 10_000), (10_001, 20_000)],
            [(0, 300), (512, 20_000), (512, 20_000)],
            [(0, 300), (512, 20_000), (512, 600)],
            [(0, 300), (512, 20_000), (19_000, 20_000)],
            [(0, 300), (512, 20_000), (600, 700)],
            [(0, 300), (512, 700), (600, 800), (800, 20_000)],
            [(0, 300), (512, 800), (600, 700), (700, 20_000)],
            [(0, 301), (512, 20_000)],
            [(0, 20_000)],
        ],
    )
    def test_anything_else_is_a_fault_of_the_program(self, tmp_path: Path, pieces: list[tuple[int, int]]) -> None:
        with unchanged(tmp_path), pytest.raises(RuntimeError, match=r"declared, each once|written twice"):
            self.attempt(tmp_path, *pieces)

    def test_in_pieces_it_is_accepted(self, tmp_path: Path) -> None:
        self.attempt(tmp_path, (600, 700), (0, 100), (512, 600), (200, 300), (700, 20_000), (100, 200))
        assert container.read(tmp_path / "m.ninfer").payload == bytes(20_000)

    def test_nothing_is_written_outside_the_payload(self, tmp_path: Path) -> None:
        with unchanged(tmp_path), pytest.raises(ValueError, match="not inside a payload"):
            self.attempt(tmp_path, (19_999, 20_001))

    def test_a_directory_that_outgrew_its_room_is_a_fault_of_the_program(self, tmp_path: Path) -> None:
        def attempt() -> None:
            planned = making.directory()
            with ArtifactWriter(tmp_path / "m.ninfer", plan_files(planned, tmp_path / "m.ninfer")) as writer:
                fill(writer)
                writer.finish(with_digests(planned, {"a": DIGEST_PLACEHOLDER + "0"}))

        with unchanged(tmp_path), pytest.raises(RuntimeError, match="room was kept for"):
            attempt()


class TestFailing:
    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, MemoryError])
    @pytest.mark.parametrize("old", [None, CAP])
    def test_whatever_ends_a_run_leaves_what_stood(
        self, tmp_path: Path, error: type[BaseException], old: int | None
    ) -> None:
        path = tmp_path / "m.ninfer"
        if old is not None:
            making.write(path, old)

        def attempt() -> None:
            with ArtifactWriter(path, plan_files(making.directory(), path, CAP), force=True) as writer:
                writer.write(0, b"x")
                assert len(list(tmp_path.iterdir())) > 3
                raise error

        with unchanged(tmp_path), pytest.raises(error):
            attempt()

    def test_a_run_without_finish_leaves_nothing(self, tmp_path: Path) -> None:
        planned = making.directory()
        with unchanged(tmp_path), ArtifactWriter(tmp_path / "m.ninfer", plan_files(planned, tmp_path / "m.ninfer")):
            pass

    CALLS = ("open", "ftruncate", "posix_fallocate", "pwrite", "pread", "fsync", "link", "replace")
    """`ftruncate` where there is no `posix_fallocate`."""

    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.parametrize(
        "error", [OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "broken"), KeyboardInterrupt()]
    )
    @pytest.mark.parametrize("old", [None, CAP])
    def test_whichever_call_fails_the_artifact_is_whole_or_not_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException, old: int | None
    ) -> None:
        """One call of the kind fails in each run, the first, then the second, until a run has not so many."""
        if call == "ftruncate":
            monkeypatch.delattr(os, "posix_fallocate", raising=False)
        original = getattr(os, call)
        runs = []
        for number in count():
            folder = tmp_path / str(number)
            folder.mkdir()
            path = folder / "m.ninfer"
            if old is not None:
                making.write(path, old, seed=1)
            before = listing(folder)
            calls = Failing(original, number, error)
            with monkeypatch.context() as patched:
                patched.setattr(os, call, calls)
                raised = self.raised_by(path, force=old is not None)
            runs.append(raised)
            if isinstance(error, OSError) and raised is not None:
                assert isinstance(raised, OutputError)
                assert raised.__cause__ is error
            if raised is None or listing(folder) != before:
                assert container.read(path).payload == making.payload_of(making.directory(), 2)
                assert not any(name.startswith(".ninfer-") for name in listing(folder))
            if calls.seen <= number:
                break
        assert runs[-1] is None
        assert len(runs) > 1 or (call, old) == ("replace", None)

    def raised_by(self, path: Path, force: bool) -> BaseException | None:
        try:
            making.write(path, CAP, seed=2, force=force)
        except (OutputError, KeyboardInterrupt) as raised:
            return raised
        return None

    def test_a_full_disk_says_what_is_needed_and_what_is_left(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*arguments: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "pwrite", full)
        with unchanged(tmp_path), pytest.raises(OutputError) as caught:
            making.write(tmp_path / "m.ninfer")
        (problem,) = caught.value.problems
        assert problem.code == "disk-full"
        assert problem.path == str(tmp_path / "m.ninfer")
        needed = f"{4096 + 20_000:,}"
        assert f"{needed} bytes are needed, and " in problem.message
        assert problem.message.endswith(" are left")

    def test_a_limit_on_the_size_of_files_names_the_way_out(self, tmp_path: Path) -> None:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, hard))
        try:
            with unchanged(tmp_path), pytest.raises(OutputError, match="File too large; cap the size of its files"):
                making.write(tmp_path / "m.ninfer")
            making.write(tmp_path / "m.ninfer", CAP)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Failing:
    """`call`, but for its call `number`, counted from 0, which raises `error`."""

    def __init__(self, call: Callable[..., Any], number: int, error: BaseException) -> None:
        self.call, self.number, self.error = call, number, error
        self.seen = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.seen += 1
        if self.seen == self.number + 1:
            raise self.error
        return self.call(*arguments, **named)


def fill(writer: ArtifactWriter) -> None:
    """Zero bytes for every object of `making.directory()`."""
    for object in making.directory().objects:
        writer.write(object.offset, bytes(object.bytes))


class TestExisting:
    def test_it_is_refused_before_any_work(self, tmp_path: Path) -> None:
        path = tmp_path / "m.ninfer"
        path.write_bytes(b"mine")
        with unchanged(tmp_path), pytest.raises(OutputError, match="exists already; force its replacement"):
            making.write(path)

    def test_so_is_a_link_to_nowhere(self, tmp_path: Path) -> None:
        (tmp_path / "m.ninfer").symlink_to("nowhere")
        with pytest.raises(OutputError, match="exists already"):
            making.write(tmp_path / "m.ninfer")
        assert os.readlink(tmp_path / "m.ninfer") == "nowhere"

    @pytest.mark.parametrize("name", ["m.ninfer", "m.ninfer.part-0002"])
    @pytest.mark.parametrize("links", [True, False])
    def test_what_appears_meanwhile_is_not_replaced(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, links: bool
    ) -> None:
        if not links:
            monkeypatch.delattr(os, "link")

        def attempt() -> None:
            planned, path = making.directory(), tmp_path / "m.ninfer"
            with ArtifactWriter(path, plan_files(planned, path, CAP)) as writer:
                fill(writer)
                (tmp_path / name).write_bytes(b"mine")
                writer.finish(planned)

        with pytest.raises(OutputError, match="exists already") as caught:
            attempt()
        assert caught.value.problems[0].path == str(tmp_path / name)
        assert listing(tmp_path) == {name: b"mine"}

    @pytest.mark.parametrize("old", [None, CAP, 8192])
    @pytest.mark.parametrize("new", [None, CAP, 8192])
    def test_forced_it_is_replaced_with_its_parts(self, tmp_path: Path, old: int | None, new: int | None) -> None:
        path = tmp_path / "m.ninfer"
        making.write(path, old, seed=1)
        payload = making.write(path, new, seed=2, force=True)
        found = container.read(path)
        assert found.payload == payload
        assert set(listing(tmp_path)) == {"m.ninfer", *(file["path"] for file in found.directory["files"][1:])}

    def test_only_its_own_parts_go(self, tmp_path: Path) -> None:
        path = tmp_path / "m.ninfer"
        making.write(path, 8192, seed=1)
        foreign = tmp_path / "m.ninfer.part-0002"
        other = bytearray(foreign.read_bytes())
        other[16] ^= 1
        foreign.write_bytes(other)
        (tmp_path / "m.ninfer.part-0009").write_bytes(foreign.read_bytes())
        (tmp_path / "m.ninfer.part-0003").unlink()
        (tmp_path / "m.ninfer.part-0003").symlink_to("m.ninfer.part-0004")
        making.write(path, None, seed=2, force=True)
        assert set(listing(tmp_path)) == {"m.ninfer", "m.ninfer.part-0002", "m.ninfer.part-0003", "m.ninfer.part-0009"}
        assert foreign.read_bytes() == other

    def test_new_parts_with_the_names_of_lost_old_ones_stay(self, tmp_path: Path) -> None:
        """The same inputs and free names give the same id, so that the new parts carry the old entry's."""
        path = tmp_path / "m.ninfer"
        making.write(path, CAP)
        for part in tmp_path.glob("*.part-*"):
            part.unlink()
        payload = making.write(path, CAP, force=True)
        assert container.read(path).payload == payload

    def test_a_file_that_is_no_artifact_is_replaced_when_forced(self, tmp_path: Path) -> None:
        path = tmp_path / "m.ninfer"
        for content in (b"", b"mine", b"NINFER\0\x03" + bytes(24) + b"x" * 5000):
            path.write_bytes(content)
            payload = making.write(path, force=True)
            assert container.read(path).payload == payload
            path.unlink()

    def test_of_a_link_the_target_stays_whole(self, tmp_path: Path) -> None:
        store = tmp_path / "store"
        store.mkdir()
        old = making.write(store / "m.ninfer", CAP, seed=1)
        for link in (tmp_path / "m.ninfer", store / "link.ninfer"):
            link.symlink_to(store / "m.ninfer")
            new = making.write(link, None, seed=2, force=True)
            assert not link.is_symlink()
            assert container.read(link).payload == new
            assert container.read(store / "m.ninfer").payload == old

    def test_a_folder_is_never_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "m.ninfer").mkdir()
        with unchanged(tmp_path), pytest.raises(OutputError, match="is not a regular file, and is not replaced"):
            making.write(tmp_path / "m.ninfer", force=True)

    def test_parts_are_published_before_the_entry_and_flushed_before_that(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[tuple[str, str]] = []
        link, fsync = os.link, os.fsync

        def noted_link(source: str, target: str) -> None:
            calls.append(("link", Path(target).name))
            link(source, target)

        def noted_fsync(descriptor: int) -> None:
            calls.append(("fsync", "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"))
            fsync(descriptor)

        monkeypatch.setattr(os, "link", noted_link)
        monkeypatch.setattr(os, "fsync", noted_fsync)
        making.write(tmp_path / "m.ninfer", CAP)
        assert calls == [
            *[("fsync", "file")] * 3,
            ("link", "m.ninfer.part-0001"),
            ("link", "m.ninfer.part-0002"),
            ("fsync", "folder"),
            ("link", "m.ninfer"),
            ("fsync", "folder"),
        ]


class TestDestination:
    def code(self, path: str | Path, needed: int = 1, force: bool = False) -> str:
        with pytest.raises(OutputError) as caught:
            check_destination(path, needed, force)
        return caught.value.problems[0].code

    def test_the_folder_must_be_one(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert self.code(tmp_path / "absent" / "m.ninfer") == "no-folder"
        assert self.code(tmp_path / "file" / "m.ninfer") == "no-folder"
        assert self.code(f"{tmp_path}/") == "no-name"
        assert self.code(tmp_path, force=True) == "not-a-file"

    def test_it_must_be_writable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        assert self.code(tmp_path / "m.ninfer") == "not-writable"

    def test_there_must_be_room(self, tmp_path: Path) -> None:
        with pytest.raises(OutputError, match=r"needs 1,152,921,504,606,846,976 bytes; [\d,]+ are free there"):
            check_destination(tmp_path / "m.ninfer", 2**60)

    def test_the_name_must_be_possible(self, tmp_path: Path) -> None:
        assert self.code(tmp_path / ("m" * 300)) == "unwritable"
        assert self.code(f"{tmp_path}/m\0") == "unwritable"

    def test_it_must_not_stand_there(self, tmp_path: Path) -> None:
        check_destination(tmp_path / "m.ninfer", 1)
        (tmp_path / "m.ninfer").touch()
        assert self.code(tmp_path / "m.ninfer") == "exists"
        check_destination(tmp_path / "m.ninfer", 1, force=True)
        assert listing(tmp_path) == {"m.ninfer": b""}

    def test_the_writer_asks_too(self, tmp_path: Path) -> None:
        with pytest.raises(OutputError, match="there is no such folder"):
            making.write(tmp_path / "absent" / "m.ninfer")


class TestTemporaries:
    def left(self, path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> bytes:
        """Write at `path` as a run that is killed between publishing and clearing up; the payload."""
        with monkeypatch.context() as patched:
            patched.setattr(os, "unlink", lambda name: None)
            return making.write(path, CAP, **options)

    def hidden(self, folder: Path) -> list[str]:
        return sorted(path.name for path in folder.iterdir() if path.name.startswith(".ninfer-"))

    def test_they_stand_beside_the_destination_whatever_its_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number, name in enumerate(("m.ninfer", "größe 層.ninfer", "\udcff.ninfer", "m" * 255), 1):
            folder = tmp_path / str(number)
            folder.mkdir()
            planned = making.directory()
            with ArtifactWriter(folder / name, plan_files(planned, folder / name)):
                names = self.hidden(folder)
                assert {len(name) for name in names} == {len(".ninfer-0123456789abcdef-01234567.") + n for n in (4, 5)}
            assert listing(folder) == {}

    def test_of_a_living_run_they_stay(self, tmp_path: Path) -> None:
        planned = making.directory()
        path = tmp_path / "m.ninfer"
        with ArtifactWriter(path, plan_files(planned, path)) as first:
            remove_leftovers(path)
            payload = making.write(path, seed=4)
            fill(first)
            with pytest.raises(OutputError, match="exists already"):
                first.finish(planned)
        assert set(listing(tmp_path)) == {"m.ninfer"}
        assert container.read(path).payload == payload

    def test_a_lock_taken_for_a_dead_runs_before_it_is_held_is_given_up(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "m.ninfer"
        flock, calls = fcntl.flock, []

        def overtaken(descriptor: int, operation: int) -> None:
            calls.append(operation)
            if len(calls) == 1:
                remove_leftovers(path)
            flock(descriptor, operation)

        monkeypatch.setattr(fcntl, "flock", overtaken)
        with ArtifactWriter(path, plan_files(making.directory(), path)):
            assert len(calls) == 3
            assert len(self.hidden(tmp_path)) == 2
            with unchanged(tmp_path):
                remove_leftovers(path)

    def test_of_a_dead_run_they_go(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "m.ninfer"
        payload = self.left(path, monkeypatch)
        assert len(self.hidden(tmp_path)) == 4
        remove_leftovers(path)
        assert set(listing(tmp_path)) == {"m.ninfer", "m.ninfer.part-0001", "m.ninfer.part-0002"}
        assert container.read(path).payload == payload

    def test_those_of_another_destination_stay(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left(tmp_path / "n.ninfer", monkeypatch)
        with unchanged(tmp_path):
            remove_leftovers(tmp_path / "m.ninfer")

    def test_what_only_looks_like_them_stays(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left(tmp_path / "m.ninfer", monkeypatch)
        (lock,) = (name for name in self.hidden(tmp_path) if name.endswith(".lock"))
        stem = lock.removesuffix(".lock")
        endings = ("part-1", "part-0001.txt", "part-0001x", "lock.txt", "entry~")
        alike = [*(f"{stem}.{ending}" for ending in endings), stem, f"x{stem}.entry", f"{stem}0.entry"]
        alike.append(f"{stem[:-1]}.entry")
        for name in alike:
            (tmp_path / name).touch()
        remove_leftovers(tmp_path / "m.ninfer")
        assert set(listing(tmp_path)) == {"m.ninfer", "m.ninfer.part-0001", "m.ninfer.part-0002", *alike}

    def test_parts_go_whose_entry_was_never_published(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "m.ninfer"
        self.left(path, monkeypatch)
        path.unlink()
        other = bytearray((tmp_path / "m.ninfer.part-0002").read_bytes())
        other[31] ^= 1
        (tmp_path / "m.ninfer.part-0002").write_bytes(other)
        remove_leftovers(path)
        assert listing(tmp_path) == {"m.ninfer.part-0002": bytes(other)}

    def test_parts_stay_with_an_entry_that_was_moved(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        payload = self.left(tmp_path / "m.ninfer", monkeypatch)
        (tmp_path / "m.ninfer").rename(tmp_path / "moved.ninfer")
        remove_leftovers(tmp_path / "m.ninfer")
        assert container.read(tmp_path / "moved.ninfer").payload == payload

    def test_parts_stay_with_an_entry_that_was_copied(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "m.ninfer"
        payload = self.left(path, monkeypatch)
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
        remove_leftovers(path)
        assert container.read(path).payload == payload

    def test_a_broken_left_entry_takes_nothing_with_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "m.ninfer"
        self.left(path, monkeypatch)
        path.unlink()
        (entry,) = (name for name in self.hidden(tmp_path) if name.endswith(".entry"))
        os.truncate(tmp_path / entry, 100)
        remove_leftovers(path)
        assert set(listing(tmp_path)) == {"m.ninfer.part-0001", "m.ninfer.part-0002"}

    def test_a_missing_folder_has_no_leftovers(self, tmp_path: Path) -> None:
        remove_leftovers(tmp_path / "absent" / "m.ninfer")
        assert listing(tmp_path) == {}


def test_what_a_plan_says_is_what_is_written(tmp_path: Path) -> None:
    for limit in (None, CAP):
        path = tmp_path / f"{limit}.ninfer"
        plan = plan_files(making.directory(), path, limit)
        making.write(path, limit)
        paths = [path, *(tmp_path / str(file.path) for file in plan.files[1:])]
        assert tuple(file.stat().st_size for file in paths) == plan.file_bytes
        found = container.read(path)
        assert len(found.text) == plan.json_bytes
        assert len(serialize(plan.directory)) <= plan.json_bytes
