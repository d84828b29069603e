"""Opening artifacts and reading their payload (container.md 1 and 3)."""

from __future__ import annotations

import os
import random
import resource
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_convert.container import TensorObject, open_artifact
from ninfer_convert.errors import ArtifactError, SourceError
from tests.container import making
from tests.container.directories import fp32, root
from tests.oracle import container

CAP = 12288
VALID = Path(__file__).parent.parent / "golden" / "containers" / "valid.ninfer"


def test_opening_touches_no_part(tmp_path: Path) -> None:
    payload = making.write(tmp_path / "m.ninfer", CAP)
    for part in tmp_path.glob("*.part-*"):
        part.unlink()
    with open_artifact(tmp_path / "m.ninfer") as artifact:
        assert len(artifact.directory.files) == 3
        assert artifact.read(0, 8192) == payload[:8192]
        assert artifact.read(8192, 0) == b""
        with pytest.raises(ArtifactError) as caught:
            artifact.read(8191, 2)
        assert caught.value.problems[0].path == str(tmp_path / "m.ninfer.part-0001")
        assert {index: problems[0].code for index, problems in artifact.broken_parts().items()} == {
            1: "part-missing",
            2: "part-missing",
        }


def test_reads_cross_file_borders(tmp_path: Path) -> None:
    payload = making.write(tmp_path / "m.ninfer", 8192)
    with open_artifact(tmp_path / "m.ninfer") as artifact:
        assert len(artifact.directory.files) == 5
        for begin in (0, 300, 4095, 4096, 8000, 12287, 19_999, 20_000):
            for end in (begin, begin + 1, 4096, 8193, 19_999, 20_000):
                if begin <= end <= 20_000:
                    assert artifact.read(begin, end - begin) == payload[begin:end]


def test_reads_outside_fail(tmp_path: Path) -> None:
    making.write(tmp_path / "m.ninfer")
    with open_artifact(tmp_path / "m.ninfer") as artifact:
        read = artifact.object_reader(artifact.directory.objects[0])
        assert len(read(0, 300)) == 300
        for outside in ((-1, 1), (0, 301), (300, 1), (301, 0), (2, -1)):
            with pytest.raises(ValueError, match="not inside the 300 bytes of r"):
                read(*outside)
        for outside in ((-1, 1), (0, 20_001), (20_000, 1), (2, -1)):
            with pytest.raises(ValueError, match="not inside a payload of 20000 bytes"):
                artifact.read(*outside)


def test_parts_are_beside_the_entry_as_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = making.write(tmp_path / "m.ninfer", CAP)
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in tmp_path.glob("m.ninfer*"):
        file.rename(moved / file.name)
    (moved / "m.ninfer").rename(moved / "renamed.ninfer")
    monkeypatch.chdir(moved)
    with open_artifact("renamed.ninfer") as artifact:
        assert artifact.read(0, 20_000) == payload


def test_beside_a_link_parts_come_first_then_beside_what_it_links_to(tmp_path: Path) -> None:
    payload = making.write(tmp_path / "m.ninfer", CAP)
    links = tmp_path / "links"
    links.mkdir()
    link = links / "other.ninfer"
    link.symlink_to("../m.ninfer")
    with open_artifact(link) as artifact:
        assert artifact.path == str(link)
        assert artifact.read(0, 20_000) == payload
    own = links / "m.ninfer.part-0001"
    shutil.copy(tmp_path / "m.ninfer.part-0001", own)
    with own.open("r+b") as file:
        file.seek(8)
        file.write(b"\2")
    with open_artifact(link) as artifact, pytest.raises(ArtifactError) as caught:
        artifact.read(0, 20_000)
    assert caught.value.problems[0].code == "part-index"
    assert caught.value.problems[0].path == str(own)


def test_a_file_reached_through_a_linked_folder_is_no_link(tmp_path: Path) -> None:
    payload = making.write(tmp_path / "m.ninfer", CAP)
    (tmp_path / "folder").symlink_to(".")
    with open_artifact(tmp_path / "folder" / "m.ninfer") as artifact:
        assert artifact.read(0, 20_000) == payload


def test_every_fault_of_a_part_is_told(tmp_path: Path) -> None:
    making.write(tmp_path / "m.ninfer", CAP)
    part = tmp_path / "m.ninfer.part-0001"
    data = bytearray(part.read_bytes())
    data[8] = 3
    data[16] ^= 1
    data[4095] = 1
    part.write_bytes(data + b"\0")
    with open_artifact(tmp_path / "m.ninfer") as artifact:
        codes = [problem.code for problem in artifact.broken_parts()[1]]
    assert codes == ["part-size", "part-index", "part-id", "part-header"]
    part.write_bytes(data[:20])
    with open_artifact(tmp_path / "m.ninfer") as artifact:
        assert [problem.code for problem in artifact.broken_parts()[1]] == ["part-size"]


def test_faults_of_framing_and_directory_are_told_together(tmp_path: Path) -> None:
    path = tmp_path / "m.ninfer"
    container.write(path, root([fp32("a", [3], 0)], extra=1, bindings={"w": {"object": "b"}}), bytes(14))
    data = bytearray(path.read_bytes())
    data[4095] = 7
    path.write_bytes(data)
    with pytest.raises(ArtifactError) as caught:
        open_artifact(path)
    assert [problem.code for problem in caught.value.problems] == ["reference", "unknown-member", "gap", "trailing"]


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = Path(shutil.copy(VALID, tmp_path))
    for length in reversed(range(path.stat().st_size)):
        os.truncate(path, length)
        with pytest.raises(ArtifactError):
            open_artifact(path)


def test_every_bit_of_magic_and_length_matters(tmp_path: Path) -> None:
    data = VALID.read_bytes()
    path = tmp_path / "m.ninfer"
    for bit in range(16 * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(ArtifactError):
            open_artifact(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is no .ninfer artifact: it begins with 76 65 72 73"),
        (b"NINFER\0\x03", "shorter than the header"),
        (b"NINFER\0\x04" + bytes(100), "is a .ninfer artifact of version 4; only version 3 is known"),
        (b"NINPRT\0\x03" + bytes(5000), "is a part"),
        (b"NIN", "shorter than the header"),
    ],
)
def test_what_is_no_artifact_is_said_to_be_none(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(ArtifactError) as caught:
        open_artifact(path)
    assert said in caught.value.problems[0].message


def test_a_header_cannot_promise_more_than_memory_holds(tmp_path: Path) -> None:
    with (tmp_path / "m.ninfer").open("wb") as entry:
        entry.write(VALID.read_bytes()[:8] + (1 << 40).to_bytes(8, "little"))
        entry.truncate(1 << 42)
    with pytest.raises(ArtifactError, match="directory takes 1099511627776 bytes; the file has 4398046511104, and at"):
        open_artifact(tmp_path / "m.ninfer")


def test_what_cannot_be_read_is_no_fault_of_an_artifact(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("absent", "pipe", "x\0y", "x/y"):
        with pytest.raises(SourceError) as caught:
            open_artifact(f"{tmp_path}/{name}")
        assert caught.value.problems[0].path == f"{tmp_path}/{name}"
    with pytest.raises(SourceError, match=r"is a folder, where a \.ninfer file is needed"):
        open_artifact(tmp_path)


def test_a_file_that_changes_while_it_is_open_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m.ninfer"
    making.write(path)
    with open_artifact(path) as artifact:
        artifact.read(0, 1)
        os.truncate(path, 8192)
        with pytest.raises(ArtifactError, match="it was longer when it was opened"):
            artifact.read(0, 20_000)
    path.unlink()
    making.write(path)
    with open_artifact(path) as artifact:
        making.write(path, planned=making.named("other"), force=True)
        with pytest.raises(ArtifactError, match="was replaced since it was opened"):
            artifact.read(0, 20_000)


def test_threads_read_many_parts_with_few_files_open(tmp_path: Path) -> None:
    payload = making.write(tmp_path / "m.ninfer", 24576, planned=making.directory(4_000_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = os.open(tmp_path, os.O_RDONLY)
    os.close(used)
    with open_artifact(tmp_path / "m.ninfer") as artifact:
        assert len(artifact.directory.files) > 190
        source = random.Random(0)
        begins = [source.randrange(4_000_000 - 50_000) for _ in range(400)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 90, hard))
        try:
            with ThreadPoolExecutor(8) as threads:
                found = list(threads.map(lambda begin: artifact.read(begin, 50_000), begins))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert artifact.broken_parts() == {}
    assert found == [payload[begin : begin + 50_000] for begin in begins]


def test_without_positioned_calls_threads_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = making.write(tmp_path / "m.ninfer", CAP)
    monkeypatch.delattr(os, "pread")
    with open_artifact(tmp_path / "m.ninfer") as artifact, ThreadPoolExecutor(4) as threads:
        begins = list(range(0, 20_000, 37))
        found = list(threads.map(lambda begin: artifact.read(begin, min(5000, 20_000 - begin)), begins))
    assert found == [payload[begin : begin + 5000] for begin in begins]


def test_words_are_decoded_by_rows(tmp_path: Path) -> None:
    payload = making.write(tmp_path / "m.ninfer", CAP)
    with open_artifact(tmp_path / "m.ninfer") as artifact:
        tensor = artifact.directory.by_id["a"]
        assert isinstance(tensor, TensorObject)
        assert artifact.words(tensor, 100, 4000).codes.tobytes() == payload[512 + 400 : 512 + 16_000]


@given(st.binary(max_size=300), st.integers(0, 5000))
def test_no_file_escapes_the_checks(tmp_path_factory: pytest.TempPathFactory, junk: bytes, place: int) -> None:
    path = tmp_path_factory.mktemp("junk") / "m.ninfer"
    data = bytearray(VALID.read_bytes())
    data[place : place + len(junk)] = junk
    path.write_bytes(data)
    try:
        artifact = open_artifact(path)
    except ArtifactError as error:
        assert error.problems  # noqa: PT017
        return
    with artifact:
        assert len(artifact.read(0, artifact.files.payload_bytes)) == len(data) - artifact.files.payload_start(0)
