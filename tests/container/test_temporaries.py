"""Temporary files, and that none is left (container.md 4)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from ninfer_convert.container import ArtifactWriter, plan_files, remove_leftovers
from ninfer_convert.errors import OutputError
from tests.container import making
from tests.container.folders import CAP, fill, listing, unchanged
from tests.oracle import container


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
                first.finish()
        assert set(listing(tmp_path)) == {"m.ninfer"}
        assert container.read(path).payload == payload

    def test_a_lock_that_is_made_as_an_interruption_comes_goes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        really = os.open

        def interrupted(*arguments: Any) -> int:
            os.close(really(*arguments))
            raise KeyboardInterrupt

        path = tmp_path / "m.ninfer"
        monkeypatch.setattr(os, "open", interrupted)
        with pytest.raises(KeyboardInterrupt), ArtifactWriter(path, plan_files(making.directory(), path)):
            pass
        assert list(tmp_path.iterdir()) == []

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
