"""Writing artifacts: what the files hold, and that they appear whole or not at all (container.md 4)."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
    serialize,
)
from ninfer_convert.errors import OutputError
from tests.container import making
from tests.container.folders import CAP, fill, listing, unchanged
from tests.oracle import container


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
            writer.finish()
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
            writer.finish()
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
            writer.finish()

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
                writer.finish({"a": DIGEST_PLACEHOLDER + "0"})

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
