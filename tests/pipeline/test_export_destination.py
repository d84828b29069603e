"""Where exports are written, and what is refused: whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ninfer_convert.errors import ArtifactError, NumericError, OutputError, SourceError, UsageError
from ninfer_convert.pipeline.export import export
from ninfer_convert.pipeline.export import files as exported_files
from ninfer_convert.pipeline.export.folder import is_weights
from tests.pipeline import artifacts
from tests.pipeline.exporting import read, refused, tree
from tests.support import write_safetensors

if TYPE_CHECKING:
    from ninfer_convert.pipeline.progress import Progress
    from tests.pipeline.artifacts import Stored


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return artifacts.write(tmp_path / "a.ninfer", {"w": artifacts.floats("fp32", np.arange(100.0))})


class TestDestination:
    def test_an_existing_folder_is_filled(self, small: Path, tmp_path: Path) -> None:
        for name, others in (("empty", ()), ("used", ("README.md", "model.bin"))):
            (tmp_path / name).mkdir()
            for other in others:
                (tmp_path / name / other).write_text(other)
            export(small, tmp_path / name)
            assert {file.name for file in (tmp_path / name).iterdir()} == {*others, "model.safetensors"}
            assert all((tmp_path / name / other).read_text() == other for other in others)

    def test_the_current_folder_and_names_in_it(
        self, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        assert export(small, ".").files[0][0] == "./model.safetensors"
        assert export(small, "x.safetensors").files[0][0] == "x.safetensors"
        export(small, "new/")
        assert sorted(tree(tmp_path / "here")) == ["model.safetensors", "new", "new/model.safetensors", "x.safetensors"]

    @pytest.mark.parametrize(
        "name", ["model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json"]
    )
    def test_a_folder_that_holds_a_model_is_refused(self, small: Path, tmp_path: Path, name: str) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / name).write_text("older")
        error = refused(OutputError, small, tmp_path / "out")
        assert str(error).startswith(f"{tmp_path / 'out' / name}: exists already")
        export(small, tmp_path / "out", force=True)
        assert [file.name for file in (tmp_path / "out").iterdir()] == ["model.safetensors"]
        export(small, tmp_path / "out", force=True, max_shard_bytes=1)

    def test_an_existing_file_is_replaced_with_force_alone(self, small: Path, tmp_path: Path) -> None:
        out = tmp_path / "m.safetensors"
        out.write_text("older")
        (tmp_path / "model-00001-of-00002.safetensors").write_text("somebody else's")
        assert "exists already" in str(refused(OutputError, small, out))
        export(small, out, force=True)
        assert read(out)["w"][1] == [100]
        assert (tmp_path / "model-00001-of-00002.safetensors").read_text() == "somebody else's"

    def test_a_link_is_replaced_and_what_it_points_to_stays(self, small: Path, tmp_path: Path) -> None:
        (tmp_path / "target").write_text("older")
        (tmp_path / "m.safetensors").symlink_to("target")
        assert "exists already" in str(refused(OutputError, small, tmp_path / "m.safetensors"))
        export(small, tmp_path / "m.safetensors", force=True)
        assert not (tmp_path / "m.safetensors").is_symlink()
        assert (tmp_path / "target").read_text() == "older"

    def test_a_folder_in_place_of_a_file_is_never_replaced(self, small: Path, tmp_path: Path) -> None:
        (tmp_path / "out" / "model.safetensors").mkdir(parents=True)
        assert "is not a regular file" in str(refused(OutputError, small, tmp_path / "out", force=True))

    def test_a_file_in_place_of_a_folder_is_told(self, small: Path, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("x")
        for force in (False, True):
            assert "is not a folder" in str(refused(OutputError, small, tmp_path / "out", force=force))

    def test_a_folder_for_it_must_exist(self, small: Path, tmp_path: Path) -> None:
        for name in ("none/out", "none/m.safetensors", "none/m.gguf"):
            assert "there is no such folder; make it first" in str(refused(OutputError, small, tmp_path / name))

    def test_the_artifact_itself_is_never_replaced(self, tmp_path: Path) -> None:
        objects = {"w": artifacts.floats("fp32", np.arange(9000.0))}
        path = artifacts.write(tmp_path / "a.safetensors", objects, limit=16384)
        (tmp_path / "b.safetensors").symlink_to("a.safetensors")
        for name in ("a.safetensors", "b.safetensors"):
            error = refused(OutputError, path, tmp_path / name, force=True)
            assert [problem.code for problem in error.problems] == ["is-input"]

    def test_too_little_room_is_told_before_any_work(
        self, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("shutil.disk_usage", lambda folder: type("", (), {"free": 100})())
        error = refused(OutputError, small, tmp_path / "out")
        assert "100 are free there" in str(error)

    def test_a_disk_that_fills_up_is_told_and_nothing_is_left(
        self, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(descriptor: int, data: memoryview, offset: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(exported_files, "write_at", full)
        for name in ("out", "m.safetensors"):
            (problem,) = refused(OutputError, small, tmp_path / name).problems
            assert problem.code == "disk-full"
            assert " bytes are needed, and " in problem.message


class TestRefusals:
    def test_options_without_meaning(self, small: Path, tmp_path: Path) -> None:
        for name, option, value in (
            ("m.gguf", "dtype", "bf16"),
            ("m.gguf", "max_shard_bytes", 10),
            ("m.safetensors", "max_shard_bytes", 10),
        ):
            error = refused(UsageError, small, tmp_path / name, **{option: value})
            assert str(error).startswith(f"{option} has no meaning here: ")
        assert "did you mean fp32" in str(refused(UsageError, small, tmp_path / "out", dtype="fp3"))

    def test_the_name_that_safetensors_reserves(self, tmp_path: Path) -> None:
        objects = {"__metadata__": artifacts.floats("fp32", np.arange(3.0))}
        path = artifacts.write(tmp_path / "a.ninfer", objects)
        assert "safetensors keeps this name for itself" in str(refused(OutputError, path, tmp_path / "out"))

    def test_a_missing_part_is_told_before_any_work(
        self, every_format: tuple[Path, dict[str, Stored]], tmp_path: Path
    ) -> None:
        for file in every_format[0].parent.iterdir():
            if not file.name.endswith("part-0002"):
                (tmp_path / file.name).write_bytes(file.read_bytes())
        error = refused(ArtifactError, tmp_path / "a.ninfer", tmp_path / "out")
        assert [problem.code for problem in error.problems] == ["part-missing"]

    def test_formats_that_are_not_known_are_told_together(self, tmp_path: Path) -> None:
        for file in (Path(__file__).parent.parent / "golden" / "containers").glob("valid-unknown-format.ninfer*"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
        error = refused(ArtifactError, tmp_path / "valid-unknown-format.ninfer", tmp_path / "out")
        assert {problem.code for problem in error.problems} == {"unknown-format"}

    def test_what_is_no_artifact(self, tmp_path: Path) -> None:
        write_safetensors(tmp_path / "m.safetensors", {"w": ("F32", (1,), bytes(4))})
        refused(ArtifactError, tmp_path / "m.safetensors", tmp_path / "out")
        refused(SourceError, tmp_path / "none", tmp_path / "out")


class Stop(BaseException):
    """Stands for Ctrl-C, which may come anywhere."""


class TestInterrupted:
    @pytest.mark.parametrize("name", ["out", "m.safetensors"])
    @pytest.mark.parametrize("kind", [Stop, NumericError])
    def test_while_it_is_written_nothing_is_left(
        self, every_format: tuple[Path, dict[str, Stored]], tmp_path: Path, name: str, kind: type[BaseException]
    ) -> None:
        left = 10

        def stop(now: Progress) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise kind("now")

        with pytest.raises(kind):
            export(every_format[0], tmp_path / name, progress=stop)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("call", ["mkdir", "rename", "listdir", "stat", "lstat", "fsync", "unlink"])
    def test_while_files_take_their_places_all_is_as_it_was_or_is_to_be(
        self, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        """A call to the system is interrupted, before or behind it: the first, the second, ..."""
        out = tmp_path / "out"
        export(small, out, max_shard_bytes=1)
        (out / "README.md").write_text("x")
        old = tree(tmp_path)
        export(small, tmp_path / "other")
        new = {name: content for name, content in old.items() if not is_weights(name.removeprefix("out/"))}
        new["out/model.safetensors"] = tree(tmp_path / "other")["model.safetensors"]
        shutil.rmtree(tmp_path / "other")
        original = getattr(os, call)
        interrupted = 0
        for behind in (False, True):
            for number in range(1, 100):
                stopped = False
                with monkeypatch.context() as patch:
                    patch.setattr(os, call, nth(original, number, behind))
                    try:
                        export(small, out, force=True)
                    except Stop:
                        stopped = True
                found = tree(tmp_path)
                assert found in (old, new) if stopped else found == new, (number, behind)
                if found == new:
                    restore(out, old)
                if not stopped:
                    break
                interrupted += 1
        assert interrupted >= 2


def nth(call: Callable[..., Any], number: int, behind: bool) -> Callable[..., Any]:
    """`call`, which is interrupted the n-th time, before it or behind it, and never again."""
    count = 0

    def counting(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count == number and not behind:
            raise Stop
        result = call(*arguments, **options)
        if count == number:
            raise Stop
        return result

    return counting


def restore(folder: Path, content: Mapping[str, bytes | None]) -> None:
    """Give the folder the files that `content` has below it again."""
    shutil.rmtree(folder)
    folder.mkdir()
    for name, data in content.items():
        if data is not None and (folder.parent / name).parent == folder:
            (folder.parent / name).write_bytes(data)
