"""Positioned reads: any thread, few descriptors, and a file that changes meanwhile is told (fault R77)."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ninfer_convert.errors import SourceError
from ninfer_convert.sources import files
from ninfer_convert.sources.base import SourceFile

DATA = bytes(index * 7 % 256 for index in range(100_000))


@pytest.fixture
def file(tmp_path: Path) -> SourceFile:
    return written(tmp_path / "data")


def written(path: Path, data: bytes = DATA) -> SourceFile:
    path.write_bytes(data)
    return SourceFile(path, f"typed/{path.name}", path.stat(), header_sha256="")


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_any_range_is_read_into_an_array_of_its_own(file: SourceFile) -> None:
    for offset, count in ((0, len(DATA)), (1, 7), (99_999, 1), (100_000, 0), (12_345, 54_321)):
        array = file.read(offset, count)
        assert array.tobytes() == DATA[offset : offset + count]
        assert array.flags.writeable
        assert array.flags.owndata


def test_reads_without_positioned_system_calls(file: SourceFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "preadv")
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    with ThreadPoolExecutor(8) as pool:
        spans = [(offset, 1000) for offset in range(0, 99_000, 500)] * 3
        arrays = list(pool.map(lambda span: file.read(*span), spans))
    for (offset, count), array in zip(spans, arrays, strict=True):
        assert array.tobytes() == DATA[offset : offset + count]


def test_short_reads_are_continued(file: SourceFile, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.preadv
    monkeypatch.setattr(os, "preadv", lambda number, buffers, offset: whole(number, [buffers[0][:777]], offset))
    assert file.read(3, 50_000).tobytes() == DATA[3:50_003]


def test_threads_share_hundreds_of_files_and_few_descriptors(tmp_path: Path) -> None:
    shards = [written(tmp_path / f"shard-{index}", bytes([index % 256]) * 64) for index in range(300)]
    before = open_descriptors()
    with ThreadPoolExecutor(16) as pool:
        for _ in range(3):
            for index, array in enumerate(pool.map(lambda shard: shard.read(1, 63), shards)):
                assert array.tobytes() == bytes([index % 256]) * 63
    assert open_descriptors() - before <= files.OPEN_AT_MOST


def test_forgotten_files_are_closed(tmp_path: Path) -> None:
    keep = written(tmp_path / "keep")
    keep.read(0, 1)
    before = open_descriptors()
    for index in range(5):
        written(tmp_path / f"{index}").read(0, 1)
        gc.collect()
    keep.read(0, 1)
    assert open_descriptors() <= before


def test_a_file_that_shrank_is_told(file: SourceFile) -> None:
    file.read(0, 10)
    os.truncate(file.path, 500)
    assert file.read(490, 10).tobytes() == DATA[490:500]
    with pytest.raises(SourceError, match=r"^typed/data: ends at byte 500, but was 100000 bytes long"):
        file.read(490, 11)


def test_a_file_of_another_size_is_told_when_it_is_opened(file: SourceFile) -> None:
    file.path.write_bytes(DATA + b"x")
    with pytest.raises(SourceError, match=r"^typed/data: is 100001 bytes long, but was 100000 when"):
        file.read(0, 1)


def test_a_file_of_the_same_size_that_is_another_is_told_when_it_is_opened(file: SourceFile) -> None:
    modified = file.path.stat().st_mtime_ns
    other = file.path.with_name("other")
    other.write_bytes(DATA[::-1])
    os.utime(other, ns=(modified, modified))
    other.replace(file.path)
    with pytest.raises(SourceError, match=r"^typed/data: was written to, or replaced .*; start again") as caught:
        file.read(0, 1)
    assert [problem.code for problem in caught.value.problems] == ["file-changed"]


def test_a_file_written_in_place_is_told_when_it_is_opened(file: SourceFile) -> None:
    write_in_place(file.path)
    with pytest.raises(SourceError, match=r"^typed/data: was written to"):
        file.read(0, 1)


def test_an_open_file_is_told_if_it_was_written_to_and_not_if_it_lost_its_name(file: SourceFile) -> None:
    file.read(0, 1)
    os.utime(file.path, ns=(0, file.path.stat().st_mtime_ns))  # as reading does
    files.refuse_changed(file)
    name = file.path.rename(file.path.with_name("moved"))
    file.path.write_bytes(DATA[::-1])
    files.refuse_changed(file)
    assert file.read(0, 100_000).tobytes() == DATA
    write_in_place(name)
    with pytest.raises(SourceError, match=r"^typed/data: was written to"):
        files.refuse_changed(file)


def write_in_place(path: Path) -> None:
    """Change one byte, a second later than the file was made: clocks of files may tick slowly."""
    later = path.stat().st_mtime_ns + 1_000_000_000
    with path.open("r+b") as stream:
        stream.write(b"!")
    os.utime(path, ns=(later, later))


def test_a_new_file_of_the_same_path_is_not_read_through_the_old_one(file: SourceFile) -> None:
    assert file.read(0, 3).tobytes() == DATA[:3]
    file.path.unlink()
    again = written(file.path, b"xyz")
    assert again.read(0, 3).tobytes() == b"xyz"


def test_a_file_that_is_gone_is_told(file: SourceFile) -> None:
    file.path.unlink()
    with pytest.raises(SourceError, match=r"^typed/data: cannot be read: No such file") as caught:
        file.read(0, 1)
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_whole_files_and_what_is_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert files.read_whole(tmp_path / "config.json", "c") == b"{}"
    assert files.read_whole(tmp_path / "absent", "c") is None
    assert files.read_whole(tmp_path / "config.json" / "below", "c") is None
    for name, kind in (("folder", "folder"), ("pipe", "pipe, device or socket")):
        with pytest.raises(SourceError, match=f"^typed: is a {kind}, where a file is needed"):
            files.read_whole(tmp_path / name, "typed")


def test_a_whole_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(SourceError, match=r"^typed: is 1099511627776 bytes long, over the limit of 268435456 bytes"):
        files.read_whole(tmp_path / "config.json", "typed")
    (tmp_path / "matrix").write_bytes(b"12345")
    assert files.read_whole(tmp_path / "matrix", "typed", limit=5) == b"12345"
    with pytest.raises(SourceError, match="over the limit of 4 bytes"):
        files.read_whole(tmp_path / "matrix", "typed", limit=4)
