"""Words that no format and no role allows: `verify` names every one (tensor-formats, container.md 3)."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ninfer_convert.formats import FORMATS
from ninfer_convert.layouts import Tensor, usual_layout
from ninfer_convert.pipeline import verify as module
from ninfer_convert.pipeline.verify import VerifyReport, verify
from ninfer_convert.values import Words
from tests.container import making
from tests.container.directories import parts, tensor, whole
from tests.pipeline.verifying import codes, warned, write

if TYPE_CHECKING:
    from ninfer_convert.pipeline.progress import Progress


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


def test_control_characters_of_ids_are_escaped_in_messages(tmp_path: Path) -> None:
    record = tensor("a\nb", [1, 32], "q8_g32_fp16", "row_split_k128_v1", 0, 128 + 128 + 8)
    report = verify(write(tmp_path / "m.ninfer", [record], bytes([0x80]) + bytes(263)))
    assert report.faults[0].object == "a\nb"
    assert report.faults[0].message.startswith(r"a\nb: row 0")
