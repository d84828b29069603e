"""`check` of an artifact's bytes: what differs, and where it is said to lie."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest

from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.planned import Shaping
from ninfer_convert.pipeline.run import Running, run
from tests.oracle import container, gguf
from tests.pipeline.checking import GOLDEN, found, make, planned, tensors
from tests.support import bf16, gaussian, write_safetensors


class TestPayload:
    def test_any_flipped_byte_is_found_with_its_place(self, tmp_path: Path) -> None:
        plan = make(tmp_path)
        path = tmp_path / "m.ninfer"
        data = path.read_bytes()
        start = len(data) - plan.payload_bytes
        directory = container.read(path).directory
        tensors = [record for record in directory["objects"] if record["kind"] == "tensor"]
        source = random.Random(0)
        for place in source.sample(range(plan.payload_bytes), 400):
            byte = data[start + place] ^ 1 << source.randrange(8)
            with path.open("r+b") as file:
                file.seek(start + place)
                file.write(bytes([byte]))
                file.flush()
                report = found(tmp_path, plan)
                file.seek(start + place)
                file.write(data[start + place : start + place + 1])
            (difference,) = report.differences
            record = [r for r in directory["objects"] if r["offset"] <= place < r["offset"] + r["bytes"]]
            if record:
                assert (difference.object, difference.byte) == (record[0]["id"], place - record[0]["offset"])
                assert f"0x{byte:02X} instead of 0x{data[start + place]:02X}" in difference.message
                assert (difference.parameter is not None) == (record[0] in tensors)
            else:
                assert difference.code == "gap"
                assert f"byte {place} of the payload" in difference.message
        assert found(tmp_path, plan).ok

    def change(self, folder: Path, parameter: str, *places: int) -> None:
        """Set bytes of the object that the parameter's first part is bound to."""
        path = folder / "m.ninfer"
        directory = container.read(path).directory
        binding = directory["bindings"][parameter]
        id = binding.get("object") or binding["parts"][0]["object"]
        (record,) = (record for record in directory["objects"] if record["id"] == id)
        data = bytearray(path.read_bytes())
        start = len(data) - directory["files"][0]["payload_bytes"] + record["offset"]
        for place in places:
            data[start + place] ^= 0x10
        path.write_bytes(data)

    def test_rows_are_those_of_the_words_that_differ(self, tmp_path: Path) -> None:
        """A row of the bank (130 columns, padded to 256) takes 128 bytes of base codes."""
        plan = make(tmp_path)
        self.change(tmp_path, "bank", 128 * 3 + 5, 128 * 7, 128 * 7 + 1)
        (difference,) = found(tmp_path, plan).differences
        assert (difference.code, difference.parameter, difference.rows) == ("payload", "bank", (3, 8))
        assert difference.byte == 389
        assert re.fullmatch(
            r"weight/000000 \(bank\): 3 bytes differ in rows \[3, 8\); "
            r"the first is byte 389 of the object, 0x.. instead of 0x..",
            difference.message,
        )

    def test_rows_of_direct_formats_are_elements(self, tmp_path: Path) -> None:
        plan = make(tmp_path)
        self.change(tmp_path, "norm.weight", 4, 7)
        (difference,) = found(tmp_path, plan).differences
        assert (difference.rows, difference.byte) == ((1, 2), 4)

    def test_padding_belongs_to_no_row(self, tmp_path: Path) -> None:
        """The lanes behind column 130 of the bank's first row: from byte 65 on."""
        plan = make(tmp_path)
        self.change(tmp_path, "bank", 100)
        (difference,) = found(tmp_path, plan).differences
        assert (difference.rows, difference.byte) == (None, 100)
        assert "weight/000000 (bank): 1 byte differs in padding alone; the first is byte 100" in difference.message

    def test_regions_are_told_apart_by_object(self, tmp_path: Path) -> None:
        plan = make(tmp_path)
        self.change(tmp_path, "cut.weight", 0)
        (difference,) = found(tmp_path, plan).differences
        assert (difference.object, difference.parameter, difference.rows) == ("weight/000001", "cut.weight", (0, 1))

    def test_a_quick_look_does_not_read_tensors(self, tmp_path: Path) -> None:
        plan = make(tmp_path)
        self.change(tmp_path, "bank", 0)
        assert found(tmp_path, plan, full=False).ok

    @pytest.mark.parametrize("full", [False, True])
    def test_resources_are_compared_by_content(self, tmp_path: Path, full: bool) -> None:
        make(tmp_path)
        (tmp_path / "tokenizer.json").write_text('{"a": 2}')
        (difference,) = found(tmp_path, planned(tmp_path), full).differences
        assert difference.message == (
            "resource/text/tokenizer.json: 1 byte differs; the first is byte 6 of the object, 0x31 instead of 0x32"
        )
        assert (difference.object, difference.parameter, difference.rows) == (
            "resource/text/tokenizer.json",
            None,
            None,
        )

    def test_a_weight_changed_under_the_same_header(self, tmp_path: Path) -> None:
        make(tmp_path)
        changed = dict(tensors())
        values = gaussian((3, 4, 130), 1)
        values[1, 2, 0] = 1.0
        changed["bank"] = ("F32", (3, 4, 130), values.tobytes())
        write_safetensors(tmp_path / "m.safetensors", changed)
        plan = planned(tmp_path)
        assert found(tmp_path, plan, full=False).ok
        (difference,) = found(tmp_path, plan).differences
        assert (difference.parameter, difference.rows) == ("bank", (6, 7))


def test_imported_words_with_divisors(tmp_path: Path) -> None:
    """nvfp4 from a GGUF: a flipped bit of the divisor is a difference of every row that it divides."""
    _, _, rows = gguf.read(GOLDEN / "extras.gguf")["blk.0.nvfp4.weight"]
    blocks = np.tile(rows, (22, 1))[:128].reshape(128, 8, 36)
    weight = gguf.Tensor("w.weight", 40, (128, 512), blocks.tobytes())
    (tmp_path / "m.gguf").write_bytes(gguf.File([weight]).build())
    (tmp_path / "r.toml").write_text('schema = 1\nname = "t"\n[[assign]]\nselect = "*"\nformat = "nvfp4"\n')
    plan = make_plan(str(tmp_path / "m.gguf"), str(tmp_path / "r.toml"), Shaping())
    run(plan, tmp_path / "m.ninfer", Running())
    assert found(tmp_path, plan).ok
    data = bytearray((tmp_path / "m.ninfer").read_bytes())
    data[-1] ^= 1
    (tmp_path / "m.ninfer").write_bytes(data)
    (difference,) = found(tmp_path, plan).differences
    assert difference.rows == (0, 128)
    data[-1] ^= 1
    data[-4 - 128 * 32] ^= 1
    (tmp_path / "m.ninfer").write_bytes(data)
    (difference,) = found(tmp_path, plan).differences
    assert difference.rows == (0, 1)


def test_members_of_a_parent_are_told_apart(tmp_path: Path) -> None:
    """A parent of two matrices, an alias of one of them, and an auxiliary: bytes that the plan knows itself."""
    write_safetensors(
        tmp_path / "m.safetensors",
        {name: ("BF16", (6, 128), bf16(gaussian((6, 128), seed))) for seed, name in enumerate(("q", "k", "o"))},
    )
    (tmp_path / "r.toml").write_text(
        'schema = 1\nname = "t"\n[[assign]]\nselect = "*"\nformat = "q4_g64_fp16"\n'
        '[[group]]\nselect = ["q", "k"]\n[[share]]\nparameter = "tied"\nwith = "o"\n'
        '[[use]]\nparameter = "o"\ninput = "x"\nauxiliaries = { activation_input_divisor = 2.5 }\n'
    )
    plan = planned(tmp_path)
    run(plan, tmp_path / "m.ninfer", Running())
    assert found(tmp_path, plan).ok
    path = tmp_path / "m.ninfer"
    directory = container.read(path).directory
    parent, auxiliary = directory["objects"][0], directory["objects"][-1]
    assert parent["shape"] == [12, 128]
    original = path.read_bytes()
    start = len(original) - plan.payload_bytes
    for place, owners, rows in (
        (parent["offset"] + 5 * 64, (parent["id"], "q"), (5, 6)),
        (parent["offset"] + 6 * 64, (parent["id"], "k"), (6, 7)),
        (auxiliary["offset"], (auxiliary["id"], None), None),
    ):
        data = bytearray(original)
        data[start + place] ^= 1
        path.write_bytes(data)
        (difference,) = found(tmp_path, plan).differences
        assert (difference.object, difference.parameter) == owners
        assert difference.rows == rows


def test_members_that_meet_within_a_piece_are_told_together(tmp_path: Path) -> None:
    """Pieces of nvfp4 are multiples of 128 rows."""
    _, _, rows = gguf.read(GOLDEN / "extras.gguf")["blk.0.nvfp4.weight"]
    blocks = np.tile(rows, (11, 1))[:64].tobytes()
    (tmp_path / "m.gguf").write_bytes(gguf.File([gguf.Tensor(name, 40, (64, 512), blocks) for name in "ab"]).build())
    (tmp_path / "r.toml").write_text(
        'schema = 1\nname = "t"\n[[assign]]\nselect = "*"\nformat = "nvfp4"\n[[group]]\nselect = ["a", "b"]\n'
    )
    plan = make_plan(str(tmp_path / "m.gguf"), str(tmp_path / "r.toml"), Shaping())
    run(plan, tmp_path / "m.ninfer", Running())
    assert found(tmp_path, plan).ok
    data = bytearray((tmp_path / "m.ninfer").read_bytes())
    data[len(data) - 4 - 128 * 32 - 1] ^= 1
    (tmp_path / "m.ninfer").write_bytes(data)
    (difference,) = found(tmp_path, plan).differences
    assert (difference.parameter, difference.rows) == ("a, b", (127, 128))
