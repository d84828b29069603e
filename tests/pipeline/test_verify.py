"""`verify` finds whatever opening an artifact leaves unchecked (container.md 3)."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from ninfer_convert.errors import SourceError
from ninfer_convert.pipeline.verify import Fault, VerifyReport, verify
from tests.container import making
from tests.container.directories import fp32, future, resource
from tests.oracle import container
from tests.pipeline.artifacts import flips
from tests.pipeline.verifying import codes, warned, write

GOLDEN = Path(__file__).parent.parent / "golden" / "containers"
CAP = 12288
CONTENT = {
    "content-q8-minus-128.ninfer": ("code", 0, 3, r"code -128\b"),
    "content-q8-padding-lane.ninfer": ("padding", None, None, r"padding in the base codes .* 0x01 instead of 0x00"),
    "content-q8-padding-scale.ninfer": ("padding", None, None, r"padding in the scales .* 0x01 instead of 0x00"),
    "content-q4-scale-minus-zero.ninfer": ("scale", 0, 0, "scale word 0x8000"),
    "content-q4-scale-nan.ninfer": ("scale", 0, 0, "scale word 0x7E00"),
    "content-q4-zero-scale.ninfer": ("scale", 0, 0, "zero scale with non-zero codes"),
    "content-q4-plane-padding.ninfer": ("padding", None, None, "between planes"),
    "content-t2-minus-two.ninfer": ("code", 0, 0, r"code word 0b10\b"),
    "content-q2-infinite-scale.ninfer": ("scale", 0, 0, "scale word 0x7C00"),
    "content-fp8-nan.ninfer": ("code", 0, 5, "code 0xFF"),
    "content-fp8-negative-scale.ninfer": ("scale", 0, None, "negative row scale"),
    "content-fp8-zero-scale.ninfer": ("scale", 0, None, "zero row scale with non-zero codes"),
    "content-nvfp4-scale-negative.ninfer": ("scale", 32, 3, "block scale 0x80"),
    "content-nvfp4-scale-nan.ninfer": ("scale", 64, 1, "block scale 0x7F"),
    "content-nvfp4-divisor-zero.ninfer": ("divisor", 0, None, r"divisor 0\.0"),
}


class TestVectors:
    def test_all_are_tested(self) -> None:
        assert set(CONTENT) == set(json.loads((GOLDEN / "content.json").read_text("utf-8")))

    @pytest.mark.parametrize("name", CONTENT)
    def test_the_one_fault_is_found_and_named(self, name: str) -> None:
        code, row, column, said = CONTENT[name]
        report = verify(str(GOLDEN / name))
        (fault,) = report.faults
        assert (fault.code, fault.object, fault.row, fault.column) == (code, "w", row, column)
        assert re.search(said, fault.message)
        assert report.total == 1
        assert report.totals == {"w": 1}
        assert not report.ok

    @pytest.mark.parametrize("name", ["valid.ninfer", "valid-padded.ninfer", "sharded.ninfer"])
    def test_sound_ones_have_none(self, name: str) -> None:
        report = verify(str(GOLDEN / name), jobs=2)
        assert report.ok
        assert report.faults == ()
        assert warned(report) == ["foreign-id", "no-digest"]
        assert "id not derived from the content" in report.warnings[0].message

    def test_words_of_an_unknown_format_are_said_to_be_unchecked(self) -> None:
        report = verify(str(GOLDEN / "valid-unknown-format.ninfer"))
        assert report.ok
        assert "the words of one object are unchecked; not known: q3_future in row_future_v1" in [
            warning.message for warning in report.warnings
        ]

    def test_broken_directories_and_parts_are_faults(self) -> None:
        broken = json.loads((GOLDEN / "broken.json").read_text("utf-8"))
        for name in broken:
            report = verify(str(GOLDEN / name))
            assert not report.ok
            assert report.total == len(report.faults)
            assert (report.artifact_id is None) != broken[name].startswith("reading:")


class TestWholeArtifacts:
    def test_ours_have_neither_faults_nor_warnings(self, tmp_path: Path) -> None:
        for limit in (None, CAP):
            making.write(tmp_path / "m.ninfer", limit, force=True)
            report = verify(str(tmp_path / "m.ninfer"))
            assert report == VerifyReport(report.path, report.artifact_id, (), 0)
            assert report.artifact_id == container.read(tmp_path / "m.ninfer").artifact_id.hex()

    def test_any_flipped_bit_is_found(self, tmp_path: Path) -> None:
        path = tmp_path / "m.ninfer"
        making.write(path, CAP)
        source = random.Random(0)
        for file in sorted(tmp_path.iterdir()):
            headers = [*range(48), *range(4000, 4200)]
            for place in flips(file, [*headers, *source.sample(range(file.stat().st_size), 400)], source):
                assert not verify(str(path)).ok, (file.name, place)

    def test_any_truncation_is_found(self, tmp_path: Path) -> None:
        path = tmp_path / "m.ninfer"
        making.write(path, CAP)
        for file in sorted(tmp_path.iterdir()):
            data = file.read_bytes()
            for length in (0, 1, 8, 31, 32, 100, 4095, 4096, len(data) - 1):
                os.truncate(file, length)
                assert not verify(str(path)).ok, (file.name, length)
                file.write_bytes(data)
            file.write_bytes(data + b"\0")
            assert not verify(str(path)).ok
            file.write_bytes(data)
        assert verify(str(path)).ok

    def test_a_missing_part_hides_only_what_lies_in_it(self, tmp_path: Path) -> None:
        path = tmp_path / "m.ninfer"
        making.write(path, CAP)
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\0\0\0\0")
        (tmp_path / "m.ninfer.part-0002").unlink()
        report = verify(str(path))
        assert [(fault.code, fault.object) for fault in report.faults] == [("part-missing", None), ("digest", "r")]

    def test_faults_of_framing_and_directory_are_told_with_their_file(self, tmp_path: Path) -> None:
        path = write(tmp_path / "m.ninfer", [fp32("a", [3], 0)], bytes(12), extra=1, more=2)
        assert verify(path) == VerifyReport(
            path,
            None,
            (
                Fault("unknown-member", f"{path}: extra: no such member"),
                Fault("unknown-member", f"{path}: more: no such member"),
            ),
            2,
        )

    def test_what_cannot_be_read_is_raised(self, tmp_path: Path) -> None:
        for name in ("absent", "."):
            with pytest.raises(SourceError):
                verify(str(tmp_path / name))


class TestDigests:
    def test_a_wrong_id_is_a_fault_of_ours_and_a_warning_of_others(self, tmp_path: Path) -> None:
        for provenance, fault in (
            ({"tool": {}}, True),
            ({"objects": {}}, True),
            ({"converter": "x"}, False),
            ({}, False),
        ):
            path = write(tmp_path / "m.ninfer", [resource("r", 0, 1)], b"x", provenance=provenance)
            report = verify(path)
            assert codes(report) == (["artifact-id"] if fault else [])
            assert ("foreign-id" in warned(report)) != fault

    def test_a_digest_that_differs_names_its_object(self, tmp_path: Path) -> None:
        path = tmp_path / "m.ninfer"
        payload = making.write(path)
        with path.open("r+b") as file:
            file.seek(4096 + 512)
            file.write(bytes([payload[512] ^ 1]))
        (fault,) = verify(str(path)).faults
        assert (fault.code, fault.object) == ("digest", "a")
        assert re.search("a: its bytes have the SHA-256 [0-9a-f]{64}; recorded is [0-9a-f]{64}", fault.message)

    def test_what_is_no_digest_is_no_objects(self, tmp_path: Path) -> None:
        for recorded in ("x", 3, "0" * 64, "é\n", [1], True):
            provenance = {"objects": {"r": {"sha256": recorded}}}
            path = write(tmp_path / "m.ninfer", [resource("r", 0, 1)], b"x", provenance=provenance)
            assert codes(verify(path)) == ["artifact-id", "digest"]

    def test_other_programs_record_what_they_like(self, tmp_path: Path) -> None:
        recorded: list[Any] = [[], "x"]
        for objects in (*recorded, {"r": 1}, {"r": {}}, {"r": {"sha256": None}}, {"other": {"sha256": "0" * 64}}):
            path = write(tmp_path / "m.ninfer", [resource("r", 0, 1)], b"x", provenance={"objects": objects})
            report = verify(path)
            assert codes(report) == ["artifact-id"]
            assert warned(report) == ["no-digest"]

    def test_objects_without_a_digest_are_counted(self, tmp_path: Path) -> None:
        digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
        objects = [resource("r", 0, 1), resource("s", 1, 1), resource("t", 2, 1)]
        path = write(tmp_path / "m.ninfer", objects, b"xxx", provenance={"objects": {"s": {"sha256": digest}}})
        report = verify(path)
        assert codes(report) == ["artifact-id"]
        assert report.warnings[0].message.startswith("2 of 3 objects have no recorded digest")

    def test_an_object_of_unknown_format_has_its_digest_checked(self, tmp_path: Path) -> None:
        provenance = {"objects": {"f": {"sha256": "0" * 64}}}
        path = write(tmp_path / "m.ninfer", [future("f", [2], 0, 4)], b"xxxx", provenance=provenance)
        report = verify(path)
        assert [(fault.code, fault.object) for fault in report.faults] == [("artifact-id", None), ("digest", "f")]
        assert warned(report) == ["unknown-format"]


class TestBetweenObjects:
    def test_gaps_are_zero(self, tmp_path: Path) -> None:
        payload = bytearray(260)
        payload[7] = 0x2A
        payload[200] = 1
        path = write(tmp_path / "m.ninfer", [resource("r", 0, 5), fp32("a", [1], 256)], bytes(payload))
        (fault,) = verify(path).faults
        assert fault.code == "gap"
        assert fault.message == "byte 7 of the payload, between objects, is 0x2A; expected zero"

    def test_gaps_are_no_larger_than_alignment_needs(self, tmp_path: Path) -> None:
        for objects, found in (
            ([fp32("a", [1], 256)], ["a"]),
            ([resource("r", 1, 1)], ["r"]),
            ([resource("r", 0, 1), fp32("a", [1], 256), resource("s", 261, 1)], ["s"]),
            ([resource("r", 0, 256), fp32("a", [1], 512)], ["a"]),
            ([resource("r", 0, 255), fp32("a", [1], 256)], []),
            ([resource("r", 0, 1), future("f", [1], 5000)], []),
        ):
            end = objects[-1]["offset"] + objects[-1]["bytes"]
            report = verify(write(tmp_path / "m.ninfer", objects, bytes(end)))
            assert [(fault.code, fault.object) for fault in report.faults] == [("gap", id) for id in found]

    def test_the_payload_ends_at_the_last_object(self, tmp_path: Path) -> None:
        files = [{"path": None, "payload_bytes": 9}]
        report = verify(write(tmp_path / "m.ninfer", [resource("r", 0, 4)], bytes(9), files=files))
        (fault,) = report.faults
        assert fault.message == "the payload goes on for 5 bytes behind its last object, which ends at 4"


def test_a_copy_elsewhere_is_verified_alike(tmp_path: Path) -> None:
    making.write(tmp_path / "m.ninfer", CAP)
    shutil.copytree(tmp_path, tmp_path / "copy")
    assert verify(str(tmp_path / "copy" / "m.ninfer")).ok
