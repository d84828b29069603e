"""`verify` finds whatever opening an artifact leaves unchecked (container.md 3)."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ninfer_convert.errors import SourceError
from ninfer_convert.formats import FORMATS
from ninfer_convert.layouts import Tensor, usual_layout
from ninfer_convert.pipeline import verify as module
from ninfer_convert.pipeline.verify import Fault, VerifyReport, verify
from ninfer_convert.values import Words
from tests.container import making
from tests.container.directories import fp32, future, parts, resource, root, tensor, whole
from tests.oracle import container
from tests.pipeline.artifacts import flips

if TYPE_CHECKING:
    from ninfer_convert.pipeline.run import Progress

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


def codes(report: VerifyReport) -> list[str]:
    return [fault.code for fault in report.faults]


def warned(report: VerifyReport) -> list[str]:
    return [warning.code for warning in report.warnings]


def write(path: Path, objects: list[Any], payload: bytes, **members: Any) -> str:
    """Another program's artifact: a directory without digests, a payload, an id of its own."""
    container.write(path, root(objects, **members), payload)
    return str(path)


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


def encoded(path: Path, format: str, shape: tuple[int, int], words: Words, divisors: int = 1) -> str:
    """An artifact of one object `w` that holds `words`, legal or not."""
    layout = usual_layout(format)
    held = Tensor(FORMATS[format], shape, divisors)
    payload = bytearray(layout.size(held))
    for segment in layout.encode(held, 0, words):
        payload[segment.offset : segment.offset + len(segment.data)] = segment.data.tobytes()
    more = {"divisors": divisors} if divisors > 1 else {}
    record = tensor("w", shape, format, layout.name, 0, len(payload), **more)
    return write(path, [record], bytes(payload), bindings={"w": whole("w")})


GROUPED = {
    "q2_g64_fp16": 64,
    "q4_g64_fp16": 64,
    "q5_g64_fp16": 64,
    "q6_g64_fp16": 64,
    "q8_g32_fp16": 32,
    "t2_g128_fp16": 128,
}


def grouped(format: str, rows: int = 3, columns: int = 300) -> Words:
    """Ones under a scale of 1."""
    groups = -(-columns // GROUPED[format])
    return Words(np.ones((rows, columns), np.int8), np.full((rows, groups), 0x3C00, np.uint16))


def set_word(array: NDArray[Any] | None, place: tuple[int, ...], word: int) -> None:
    assert array is not None
    array[place] = word


class TestWords:
    @pytest.mark.parametrize("format", GROUPED)
    def test_grouped_scales(self, tmp_path: Path, format: str) -> None:
        q2 = format == "q2_g64_fp16"
        last = -(-300 // GROUPED[format]) - 1
        faulty = {0x7C00: True, 0xFC00: True, 0x7C01: True, 0xFFFF: True, 0x8000: not q2}
        legal = dict.fromkeys((0x0001, 0x8001, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF), False)
        for word, is_fault in {**faulty, **legal}.items():
            words = grouped(format)
            set_word(words.scales, (2, last), word)
            report = verify(encoded(tmp_path / "m.ninfer", format, (3, 300), words))
            found = [(fault.code, fault.object, fault.row, fault.column) for fault in report.faults]
            assert found == ([("scale", "w", 2, last)] if is_fault else []), hex(word)

    @pytest.mark.parametrize("format", GROUPED)
    def test_a_zero_scale_has_zero_codes(self, tmp_path: Path, format: str) -> None:
        words = grouped(format)
        set_word(words.scales, (1, 0), 0)
        report = verify(encoded(tmp_path / "m.ninfer", format, (3, 300), words))
        assert codes(report) == ([] if format == "q2_g64_fp16" else ["scale"])
        words.codes[1, : GROUPED[format]] = 0
        assert verify(encoded(tmp_path / "m.ninfer", format, (3, 300), words)).ok

    @pytest.mark.parametrize(("format", "code"), [("q8_g32_fp16", -128), ("t2_g128_fp16", -2)])
    def test_codes_outside_the_interval(self, tmp_path: Path, format: str, code: int) -> None:
        words = grouped(format)
        words.codes[2, 299] = code
        (fault,) = verify(encoded(tmp_path / "m.ninfer", format, (3, 300), words)).faults
        assert (fault.code, fault.row, fault.column) == ("code", 2, 299)
        assert f"code {code}" in fault.message

    @pytest.mark.parametrize("format", ["fp8_e4m3fn_row_bf16", "fp8_e4m3fn_row_fp16"])
    def test_row_scaled(self, tmp_path: Path, format: str) -> None:
        infinity = 0x7F80 if format.endswith("bf16") else 0x7C00

        def found(codes: Mapping[tuple[int, int], int], scale: int) -> list[tuple[str, int | None, int | None]]:
            words = Words(np.full((3, 5), 0x38, np.uint8), np.full(3, 1, np.uint16))
            for place, code in codes.items():
                words.codes[place] = code
            set_word(words.scales, (1,), scale)
            report = verify(encoded(tmp_path / "m.ninfer", format, (3, 5), words))
            return [(fault.code, fault.row, fault.column) for fault in report.faults]

        assert found({(0, 0): 0x80, (0, 1): 0x7E, (0, 2): 0xFE, (0, 3): 0x01}, infinity - 1) == []
        assert found({(2, 4): 0x7F, (0, 0): 0xFF}, 1) == [("code", 0, 0), ("code", 2, 4)]
        for scale in (0x8000, 0x8001, 0xBF80, infinity, infinity + 1, 0xFFFF):
            assert found({}, scale) == [("scale", 1, None)]
        assert found({}, 0) == [("scale", 1, None)]
        assert found({(1, k): 0x80 * (k % 2) for k in range(5)}, 0) == []

    def nvfp4(self, divisors: list[float], rows: int = 256) -> Words:
        share = rows // len(divisors)
        scales = np.full((rows, 4), 0x38, np.uint8)
        return Words(np.zeros((rows, 64), np.uint8), scales, np.repeat(np.array(divisors, np.float32), share))

    def test_block_scales(self, tmp_path: Path) -> None:
        for word in (0x00, 0x01, 0x7E, 0x7F, 0x80, 0x81, 0xFF):
            words = self.nvfp4([1.0])
            set_word(words.scales, (200, 3), word)
            report = verify(encoded(tmp_path / "m.ninfer", "nvfp4", (256, 64), words))
            found = [(fault.code, fault.row, fault.column) for fault in report.faults]
            assert found == ([("scale", 200, 3)] if word > 0x7E else [])

    def test_every_divisor_is_finite_and_positive(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "PIECE_BYTES", 1)
        for divisor in (0.0, -0.0, -1.0, float("inf"), float("nan"), 1e-45, 3e38):
            words = self.nvfp4([1.0, divisor, divisor, 2.0], 1024)
            report = verify(encoded(tmp_path / "m.ninfer", "nvfp4", (1024, 64), words, 4))
            found = [(fault.code, fault.row, fault.column) for fault in report.faults]
            assert found == ([] if divisor in (1e-45, 3e38) else [("divisor", 256, None), ("divisor", 512, None)])
            assert report.total == len(found)

    def test_padding_of_lanes_groups_and_planes(self, tmp_path: Path) -> None:
        layout = usual_layout("q5_g64_fp16")
        path = Path(encoded(tmp_path / "m.ninfer", "q5_g64_fp16", (3, 130), grouped("q5_g64_fp16", 3, 130)))
        size = layout.size(Tensor(FORMATS["q5_g64_fp16"], (3, 130)))
        found = set()
        for place in range(4096, 4096 + size):
            with path.open("r+b") as file:
                file.seek(place)
                byte = file.read(1)
                file.seek(place)
                file.write(bytes([byte[0] ^ 0x80]))
                file.flush()
                report = verify(str(path))
                file.seek(place)
                file.write(byte)
            found |= {fault.message.split(": ")[1] for fault in report.faults if fault.code == "padding"}
        assert found == {
            "padding in the base codes of rows [0, 3)",
            "padding in the high bits of rows [0, 3)",
            "padding in the scales of rows [0, 3)",
            "padding between planes",
        }

    def test_direct_and_gguf_words_are_all_legal(self, tmp_path: Path) -> None:
        source = np.random.default_rng(0)
        for format in FORMATS.values():
            if format.category in ("direct", "gguf"):
                layout = usual_layout(format.name)
                size = layout.size(Tensor(format, (2, 256)))
                record = tensor("w", [2, 256], format.name, layout.name, 0, size)
                payload = source.integers(0, 256, size, np.uint8).tobytes()
                assert verify(write(tmp_path / "m.ninfer", [record], payload)).ok


class TestLists:
    def faulty(self, path: Path) -> str:
        """Three objects: 700 wrong codes, none, 3."""
        words, layout = grouped("q8_g32_fp16", 70, 130), usual_layout("q8_g32_fp16")
        held = Tensor(FORMATS["q8_g32_fp16"], (70, 130))
        objects: list[Any] = []
        payload = bytearray()
        for id, wrong in (("x", 700), ("y", 0), ("z", 3)):
            words.codes[:] = 1
            for index in range(wrong):
                words.codes[index // 10, 100 + index % 10] = -128
            payload += bytes(-len(payload) % 256)
            objects.append(tensor(id, [70, 130], "q8_g32_fp16", layout.name, len(payload), layout.size(held)))
            place = len(payload)
            payload += bytes(layout.size(held))
            for segment in layout.encode(held, 0, words):
                payload[place + segment.offset : place + segment.offset + len(segment.data)] = segment.data.tobytes()
        return write(path, objects, bytes(payload))

    def test_each_object_lists_its_first_and_counts_all(self, tmp_path: Path) -> None:
        report = verify(self.faulty(tmp_path / "m.ninfer"))
        assert report.total == 703
        assert report.totals == {"x": 700, "z": 3}
        places = [(fault.object, fault.row, fault.column) for fault in report.faults]
        assert places == [("x", 0, 100 + k) for k in range(10)] + [("z", 0, 100 + k) for k in range(3)]

    @pytest.mark.parametrize("piece", [1, 200, 3000, 1 << 20])
    @pytest.mark.parametrize("jobs", [1, 5])
    def test_neither_pieces_nor_threads_change_the_report(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, jobs: int
    ) -> None:
        path = self.faulty(tmp_path / "m.ninfer")
        expected = verify(path)
        monkeypatch.setattr(module, "PIECE_BYTES", piece)
        assert verify(path, jobs=jobs) == expected

    def test_progress_ends_with_everything_done(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "PIECE_BYTES", 1000)
        making.write(tmp_path / "m.ninfer")
        seen: list[Progress] = []
        verify(str(tmp_path / "m.ninfer"), jobs=3, progress=seen.append)
        done = [now.done for now in seen]
        assert done == sorted(done)
        assert {now.total for now in seen} == {300 + 2 * (20_000 - 512)}
        assert done[-1] == seen[-1].total
        assert len(seen) > 20
        assert {now.parameter for now in seen} == {"r", "a"}


def using(path: Path, role: str, format: str, words: bytes, binding: Any = None) -> VerifyReport:
    """The report on a gguf matrix with 1024 columns whose use has an auxiliary `x` of these words."""
    matrix = tensor("g", [2, 1024], "gguf_q4_k", "gguf_blocks_v1", 0, 2 * 4 * 144)
    width = 2 if format == "bf16" else 4
    shape = [] if role == "activation_input_divisor" else [len(words) // width]
    auxiliary = tensor("x", shape, format, "contiguous_le_v1", 1280, len(words))
    use = {"parameter": "w", "input": "i", "auxiliaries": {role: binding or whole("x")}}
    uses = [use, {**use, "input": "j"}]
    payload = bytes(1280) + words
    return verify(write(path, [matrix, auxiliary], payload, bindings={"w": whole("g")}, uses=uses))


class TestAuxiliaries:
    def test_divisors_are_positive_and_finite(self, tmp_path: Path) -> None:
        for value, said in ((0.0, "0.0"), (-1.5, "-1.5"), (float("inf"), "inf"), (float("nan"), "nan")):
            report = using(tmp_path / "m.ninfer", "activation_input_divisor", "fp32", struct.pack("<f", value))
            (fault,) = report.faults
            assert (fault.code, fault.object, fault.row) == ("auxiliary", "x", 0)
            assert fault.message == (
                f"uses[0].auxiliaries.activation_input_divisor: element 0 is {said}; expected a positive finite number"
            )
        for value in (1e-45, 1.0, 3e38):
            assert using(tmp_path / "m.ninfer", "activation_input_divisor", "fp32", struct.pack("<f", value)).ok

    def test_signs_are_one_or_minus_one(self, tmp_path: Path) -> None:
        signs = [0x3F80, 0xBF80] * 512
        assert using(tmp_path / "m.ninfer", "hadamard_signs", "bf16", struct.pack("<1024H", *signs)).ok
        signs[5], signs[1023] = 0, 0x3F81
        report = using(tmp_path / "m.ninfer", "hadamard_signs", "bf16", struct.pack("<1024H", *signs))
        assert [(fault.object, fault.row) for fault in report.faults] == [("x", 5), ("x", 1023)]
        assert "element 5 is the bf16 word 0x0000; expected +1 (0x3F80) or -1 (0xBF80)" in report.faults[0].message

    def test_columns_are_a_permutation(self, tmp_path: Path) -> None:
        columns = list(range(1024))
        random.Random(0).shuffle(columns)
        assert using(tmp_path / "m.ninfer", "input_columns", "int32", struct.pack("<1024i", *columns)).ok
        columns[:] = range(1024)
        columns[1], columns[2], columns[3] = -1, 1024, 0
        report = using(tmp_path / "m.ninfer", "input_columns", "int32", struct.pack("<1024i", *columns))
        assert [fault.message.split(": ")[1] for fault in report.faults] == [
            "element 1 is -1; expected a column from 0 to 1023",
            "element 2 is 1024; expected a column from 0 to 1023",
            "element 3 is 0 again; expected every column once",
        ]

    def test_parts_are_joined_in_order(self, tmp_path: Path) -> None:
        columns = struct.pack("<1024i", *range(512, 1024), *range(512))
        binding = parts(("x", 512, 1024), ("x", 0, 512))
        assert using(tmp_path / "m.ninfer", "input_columns", "int32", columns, binding).ok
        doubled = parts(("x", 0, 512), ("x", 0, 512))
        report = using(tmp_path / "m.ninfer", "input_columns", "int32", columns, doubled)
        assert report.totals == {"x": 512}
        assert len(report.faults) == 10

    def test_one_in_an_unknown_layout_is_passed_by(self, tmp_path: Path) -> None:
        matrix = tensor("g", [2, 256], "gguf_q4_k", "gguf_blocks_v1", 0, 288)
        strange = tensor("x", [], "fp32", "row_future_v1", 512, 4)
        use = {"parameter": "w", "input": "i", "auxiliaries": {"activation_input_divisor": whole("x")}}
        path = write(tmp_path / "m.ninfer", [matrix, strange], bytes(516), bindings={"w": whole("g")}, uses=[use])
        report = verify(path)
        assert report.ok
        assert "unknown-format" in warned(report)


def test_a_copy_elsewhere_is_verified_alike(tmp_path: Path) -> None:
    making.write(tmp_path / "m.ninfer", CAP)
    shutil.copytree(tmp_path, tmp_path / "copy")
    assert verify(str(tmp_path / "copy" / "m.ninfer")).ok


def test_control_characters_of_ids_are_escaped_in_messages(tmp_path: Path) -> None:
    record = tensor("a\nb", [1, 32], "q8_g32_fp16", "row_split_k128_v1", 0, 128 + 128 + 8)
    report = verify(write(tmp_path / "m.ninfer", [record], bytes([0x80]) + bytes(263)))
    assert report.faults[0].object == "a\nb"
    assert report.faults[0].message.startswith(r"a\nb: row 0")
