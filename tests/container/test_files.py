"""How a payload is divided into files, and what the files are called (container.md 1)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_convert.container import (
    Binding,
    Component,
    Directory,
    File,
    FilePlan,
    ResourceObject,
    parse_directory,
    plan_files,
    serialize,
)
from ninfer_convert.errors import ArtifactError, OutputError, UsageError


def directory(payload: int, config: int = 0) -> Directory:
    """A directory of one resource, with so many characters of config."""
    return Directory({"text": Component({"x": "y" * config})}, (ResourceObject("r", 0, payload),), {})


def json_of(files: tuple[File, ...], payload: int, config: int) -> bytes:
    """What the directory must look like, written without the product."""
    root: dict[str, Any] = {
        "components": {"text": {"config": {"x": "y" * config}}},
        "objects": [{"id": "r", "kind": "resource", "encoding": "raw_bytes_v1", "offset": 0, "bytes": payload}],
        "bindings": {},
        "uses": [],
        "files": [{"path": file.path, "payload_bytes": file.payload_bytes} for file in files],
    }
    return json.dumps(root, separators=(",", ":"), ensure_ascii=False).encode()


def nested(depth: int) -> Any:
    """A list in a list, so many."""
    return json.loads("[" * depth + "]" * depth)


def start(json_bytes: int) -> int:
    return (32 + json_bytes + 4095) // 4096 * 4096


def test_a_directory_that_readers_would_refuse_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = plan_files(directory(1), tmp_path / "m.ninfer").json_bytes
    monkeypatch.setattr("ninfer_convert.container.files.MAX_DIRECTORY", taken - 1)
    with pytest.raises(OutputError, match=f"would take {taken} bytes, over the limit of {taken - 1}"):
        plan_files(directory(1), tmp_path / "m.ninfer")


def test_without_a_cap_there_is_one_file_and_no_padding(tmp_path: Path) -> None:
    plan = plan_files(directory(10_000_000_000), tmp_path / "m.ninfer")
    text = json_of(plan.files, 10_000_000_000, 0)
    assert plan.files == (File(None, 10_000_000_000),)
    assert serialize(plan.directory) == text
    assert plan.json_bytes == len(text)
    assert plan.file_bytes == (4096 + 10_000_000_000,)
    assert list(tmp_path.iterdir()) == []


def test_a_cap_that_just_holds_everything_leaves_one_file(tmp_path: Path) -> None:
    for payload in (1, 4095, 4096, 4097, 1_000_000):
        whole = plan_files(directory(payload), tmp_path / "m.ninfer").file_bytes[0]
        single = plan_files(directory(payload), tmp_path / "m.ninfer", whole)
        assert single == plan_files(directory(payload), tmp_path / "m.ninfer")
        if payload > 4096:
            assert len(plan_files(directory(payload), tmp_path / "m.ninfer", whole - 1).files) == 2


def planned(payload: int, config: int, name: str, limit: int) -> FilePlan:
    """The plan under a cap, or under the smallest that works where that one is too small."""
    try:
        return plan_files(directory(payload, config), Path("absent") / name, limit)
    except UsageError as error:
        smallest = smallest_named(error)
    assert smallest > limit
    return planned(payload, config, name, smallest)


@given(
    payload=st.integers(1, 2_000_000),
    config=st.integers(0, 20_000),
    limit=st.integers(1, 300_000),
    name=st.sampled_from(["m.ninfer", "größe 層.ninfer", 'quote".ninfer']),
)
def test_every_division_fills_its_files(payload: int, config: int, limit: int, name: str) -> None:
    plan = planned(payload, config, name, limit)
    limit = max(limit, *plan.file_bytes)
    text = json_of(plan.files, payload, config)
    sizes = [file.payload_bytes for file in plan.files]
    assert sum(sizes) == payload
    assert len(text) <= plan.json_bytes
    assert all(size <= limit for size in plan.file_bytes)
    assert plan.file_bytes == (start(plan.json_bytes) + sizes[0], *(4096 + size for size in sizes[1:]))
    assert plan.files[0].path is None
    assert [file.path for file in plan.files[1:]] == [f"{name}.part-{i:04}" for i in range(1, len(sizes))]
    if len(sizes) == 1:
        assert len(text) == plan.json_bytes
        assert start(len(text)) + payload <= limit
    else:
        assert start(len(json_of((File(None, payload),), payload, config))) + payload > limit
        assert sizes[0] == (limit - start(plan.json_bytes)) // 4096 * 4096 > 0
        assert set(sizes[1:-1]) <= {(limit - 4096) // 4096 * 4096}
        assert 0 < sizes[-1] <= (limit - 4096) // 4096 * 4096


def smallest_named(error: UsageError) -> int:
    (problem,) = error.problems
    assert problem.code == "cap-too-small"
    return int(problem.message.rpartition(" ")[2].replace(",", ""))


@pytest.mark.parametrize(
    ("payload", "config"), [(1, 0), (5000, 0), (100_000, 3500), (1_000_000, 5000), (40_000_000, 0)]
)
def test_a_cap_too_small_names_the_smallest_that_works(payload: int, config: int) -> None:
    with pytest.raises(UsageError) as caught:
        plan_files(directory(payload, config), "m.ninfer", 1)
    smallest = smallest_named(caught.value)
    plan = plan_files(directory(payload, config), "m.ninfer", smallest)
    assert max(plan.file_bytes) <= smallest
    with pytest.raises(UsageError) as caught:
        plan_files(directory(payload, config), "m.ninfer", smallest - 1)
    assert smallest_named(caught.value) == smallest


def test_a_growing_table_enlarges_the_reserve() -> None:
    """A hundred parts push the directory over the first 4096 bytes, which takes room from the entry's payload."""
    plan = plan_files(directory(3_000_000), "m.ninfer", 40_000)
    assert start(len(json_of((File(None, 3_000_000),), 3_000_000, 0))) == 4096
    assert start(plan.json_bytes) == 8192
    assert plan.files[0].payload_bytes == (40_000 - 8192) // 4096 * 4096 == 28672


def test_numbers_have_at_least_four_digits_and_more_where_needed() -> None:
    plan = plan_files(directory(4096 * 2_000_000), "m.ninfer", 800_000)
    names = [file.path for file in plan.files]
    assert len(names) > 10_000
    assert names[1] == "m.ninfer.part-0001"
    assert names[9999:10001] == ["m.ninfer.part-9999", "m.ninfer.part-10000"]
    assert len(json_of(plan.files, 4096 * 2_000_000, 0)) <= plan.json_bytes


class TestNames:
    LIMIT = 12288

    def plan(self, folder: Path, name: str = "m.ninfer") -> FilePlan:
        return plan_files(directory(20_000), folder / name, self.LIMIT)

    def names(self, plan: FilePlan) -> list[str | None]:
        return [file.path for file in plan.files]

    def tag(self, plain: FilePlan) -> str:
        text = json_of(plain.files, 20_000, 0).ljust(plain.json_bytes, b" ")
        return hashlib.sha256(text).hexdigest()[:8]

    def test_a_name_that_stands_gives_all_parts_a_tag(self, tmp_path: Path) -> None:
        plain = self.plan(tmp_path)
        tag = self.tag(plain)
        assert len(plain.files) == 3
        for taken in ("m.ninfer.part-0001", "m.ninfer.part-0002"):
            (tmp_path / taken).touch()
            tagged = self.plan(tmp_path)
            assert self.names(tagged) == [None, f"m.ninfer.{tag}.part-0001", f"m.ninfer.{tag}.part-0002"]
            (tmp_path / taken).unlink()
        (tmp_path / "m.ninfer.part-0003").touch()
        assert self.plan(tmp_path) == plain

    def test_the_division_is_the_same_with_a_tag(self, tmp_path: Path) -> None:
        plain = self.plan(tmp_path)
        (tmp_path / "m.ninfer.part-0001").touch()
        tagged = self.plan(tmp_path)
        assert (tagged.json_bytes, tagged.file_bytes) == (plain.json_bytes, plain.file_bytes)
        assert len(serialize(tagged.directory)) == tagged.json_bytes

    def test_taken_tags_are_numbered(self, tmp_path: Path) -> None:
        tag = self.tag(self.plan(tmp_path))
        (tmp_path / "m.ninfer.part-0001").touch()
        for number in ("", "-2", "-3"):
            assert self.names(self.plan(tmp_path))[1:] == [f"m.ninfer.{tag}{number}.part-000{i}" for i in (1, 2)]
            (tmp_path / f"m.ninfer.{tag}{number}.part-0002").symlink_to("nowhere")
        assert self.names(self.plan(tmp_path))[1] == f"m.ninfer.{tag}-4.part-0001"

    def test_one_file_needs_no_names(self, tmp_path: Path) -> None:
        (tmp_path / "m.ninfer.part-0001").touch()
        assert plan_files(directory(20_000), tmp_path / "m.ninfer", 100_000).files == (File(None, 20_000),)

    def test_a_name_that_cannot_be_that_of_parts_is_refused(self, tmp_path: Path) -> None:
        for name in ("a\\b.ninfer", "\udcff.ninfer"):
            with pytest.raises(OutputError, match="choose another output name, or do without a cap"):
                self.plan(tmp_path, name)
            assert plan_files(directory(20_000), tmp_path / name).files == (File(None, 20_000),)

    def test_a_name_too_long_for_parts_is_refused_before_anything_is_written(self, tmp_path: Path) -> None:
        with pytest.raises(OutputError, match="name too long"):
            self.plan(tmp_path, "m" * 250)


def test_extents_of_the_payload() -> None:
    plan = plan_files(directory(20_000), "m.ninfer", 12288)
    assert [file.payload_bytes for file in plan.files] == [8192, 8192, 3616]
    assert list(plan.extents(0, 20_000)) == [(0, 4096, 8192), (1, 4096, 8192), (2, 4096, 3616)]
    assert list(plan.extents(8191, 2)) == [(0, 4096 + 8191, 1), (1, 4096, 1)]
    assert list(plan.extents(8192, 8192)) == [(1, 4096, 8192)]
    assert list(plan.extents(20_000, 0)) == []
    assert plan.payload_bytes == 20_000
    for outside in ((-1, 1), (0, 20_001), (20_000, 1), (20_001, 0), (5, -1)):
        with pytest.raises(ValueError, match="not inside a payload of 20000 bytes"):
            list(plan.extents(*outside))


def test_a_directory_that_no_reader_would_take_is_refused() -> None:
    wrong = Directory({"text": Component({})}, (ResourceObject("", 0, 1),), {"w": Binding("x")})
    with pytest.raises(ArtifactError) as caught:
        plan_files(wrong, "m.ninfer")
    assert [problem.code for problem in caught.value.problems] == ["id"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"x": 10**309}, r"holds the number 10{39}\.\.\. at components\.text\.config\.x, beyond binary64"),
        (
            {"x": [{"y": -(2**1024 - 2**970)}]},
            r"holds the number -17976.* at components\.text\.config\.x\[0\]\.y, beyond",
        ),
        ({"x": nested(61)}, "nests deeper than 64"),
    ],
)
def test_a_config_that_no_reader_would_take_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message) as caught:
        plan_files(replace(directory(1), components={"text": Component(config)}), "m.ninfer")
    assert [problem.code for problem in caught.value.problems] == ["json"]


def test_a_config_at_the_edge_of_what_readers_take_is_written() -> None:
    config = {"x": 2**1024 - 2**970 - 1, "y": nested(60)}
    text = serialize(plan_files(replace(directory(1), components={"text": Component(config)}), "m.ninfer").directory)
    assert parse_directory(text, "m.ninfer").components["text"].config == config
