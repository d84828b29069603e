"""Where an artifact is written: existing files, links and folders (container.md 4)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ninfer_convert.container import ArtifactWriter, check_destination, plan_files
from ninfer_convert.errors import OutputError
from tests.container import making
from tests.container.folders import CAP, fill, listing, unchanged
from tests.oracle import container


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
                writer.finish()

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
