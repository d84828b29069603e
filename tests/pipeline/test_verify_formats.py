"""Every rule of every format, broken once: `verify` finds that fault, names it and nothing else; and any flipped byte.

The objects, legal and not, are the oracle's bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ninfer_convert.formats import FORMATS
from ninfer_convert.pipeline.verify import verify
from tests.container.directories import resource, root, tensor, whole
from tests.oracle import container, layouts
from tests.oracle.formats import GROUPED, ROW_SCALED
from tests.oracle.layouts import Content
from tests.pipeline import artifacts

LAYOUTS = {
    **dict.fromkeys(layouts.DIRECT, "contiguous_le_v1"),
    **dict.fromkeys(layouts.GROUPED, "row_split_k128_v1"),
    **dict.fromkeys(layouts.GGUF, "gguf_blocks_v1"),
    "nvfp4": "block_scale_k16_m128x4_v1",
    "fp8_e4m3fn_row_bf16": "row_scale_v1",
    "fp8_e4m3fn_row_fp16": "row_interleaved_v1",
}
ONE = 0x3C00
"""1.0 in binary16."""


@dataclass(frozen=True)
class Broken:
    """An object with one fault: its code, its place, what must be said of it."""

    rule: str
    format: str
    shape: tuple[int, int]
    payload: bytes
    place: tuple[str, int | None, int | None]
    said: str
    divisors: int = 1


def record(each: Broken | artifacts.Stored, id: str, offset: int) -> Any:
    more = {"divisors": each.divisors} if each.divisors > 1 else {}
    return tensor(id, each.shape, each.format, LAYOUTS[each.format], offset, len(each.payload), **more)


def write(path: Path, each: Broken) -> str:
    container.write(path, root([record(each, "w", 0)], bindings={"w": whole("w")}), each.payload)
    return str(path)


def grouped(format: str) -> Iterator[Broken]:
    group, qmin, _ = GROUPED[format]
    shape, last = (3, 130), -(-130 // group) - 1
    legal = Content([[1] * 130 for _ in range(3)], [[ONE] * (last + 1) for _ in range(3)])

    def broken(rule: str, place: tuple[str, int, int], said: str, code: int = 1, scale: int = ONE) -> Broken:
        """The code in the last column of row 2, and the scale of its last group, replaced."""
        codes, scales = ([list(row) for row in rows] for rows in (legal.codes, legal.scales))
        codes[2][129], scales[2][last] = code, scale
        return Broken(rule, format, shape, layouts.encode(format, shape, Content(codes, scales)), place, said)

    at_scale = ("scale", 2, last)
    for word, name in ((0x7C00, "infinite"), (0xFC00, "-infinite"), (0x7E00, "NaN"), (0xFC01, "-NaN")):
        yield broken(f"{name} scale", at_scale, f"scale word 0x{word:04X}", scale=word)
    if format != "q2_g64_fp16":
        yield broken("scale -0", at_scale, "scale word 0x8000", scale=0x8000)
        yield broken("codes under a zero scale", at_scale, "zero scale with non-zero codes", scale=0)
    if -(2 ** (layouts.GROUPED[format][0] - 1)) < qmin and format != "q2_g64_fp16":
        yield broken("code outside the interval", ("code", 2, 129), r"code (word 0b10|-128)\b", code=qmin - 1)
    yield from padding(format, shape)


def row_scaled(format: str) -> Iterator[Broken]:
    infinity = ROW_SCALED[format].largest + 1
    shape = (3, 5)

    def broken(rule: str, place: tuple[str, int, int | None], said: str, code: int = 0x38, scale: int = 1) -> Broken:
        content = Content([[0x38] * 5, [0x38] * 4 + [code], [0x38] * 5], [1, scale, 1])
        return Broken(rule, format, shape, layouts.encode(format, shape, content), place, said)

    yield broken("NaN code", ("code", 1, 4), "code 0x7F", code=0x7F)
    yield broken("-NaN code", ("code", 1, 4), "code 0xFF", code=0xFF)
    yield broken("negative scale", ("scale", 1, None), "negative row scale", scale=0x8001)
    yield broken("scale -0", ("scale", 1, None), "negative row scale", scale=0x8000)
    yield broken("infinite scale", ("scale", 1, None), f"0x{infinity:04X}", scale=infinity)
    yield broken("NaN scale", ("scale", 1, None), f"0x{infinity + 1:04X}", scale=infinity + 1)
    yield broken("codes under a zero scale", ("scale", 1, None), "zero row scale with non-zero codes", scale=0)
    yield from padding(format, shape)


def nvfp4() -> Iterator[Broken]:
    shape = (256, 64)

    def broken(
        rule: str, place: tuple[str, int, int | None], said: str, scale: int = 0x38, divisor: int = 0x3F800000
    ) -> Broken:
        scales = [[0x38] * 4 for _ in range(256)]
        scales[200][3] = scale
        content = Content([[1] * 64] * 256, scales, [0x3F800000, divisor])
        return Broken(rule, "nvfp4", shape, layouts.encode("nvfp4", shape, content), place, said, divisors=2)

    for word in (0x7F, 0x80, 0xFF):
        yield broken(f"scale 0x{word:02X}", ("scale", 200, 3), f"block scale 0x{word:02X}", scale=word)
    for word, said in (
        (0, r"divisor 0\.0"),
        (0x80000000, r"divisor -0\.0"),
        (0xBF800000, r"divisor -1\.0"),
        (0x7F800000, "divisor inf"),
        (0x7FC00000, "divisor nan"),
    ):
        yield broken(said, ("divisor", 128, None), said, divisor=word)


def padding(format: str, shape: tuple[int, int]) -> Iterator[Broken]:
    """A bit of every byte that holds padding: those that are the same in the images of opposite words."""
    rows, columns = shape
    if format in GROUPED:
        group, bits = GROUPED[format][0], layouts.GROUPED[format][0]
        least = -1 if format == "q2_g64_fp16" else 0
        groups = -(-columns // group)
        zeros = Content([[least] * columns] * rows, [[0] * groups] * rows)
        ones = Content([[least + 2**bits - 1] * columns] * rows, [[0xFFFF] * groups] * rows)
        legal = Content([[0] * columns] * rows, [[ONE] * groups] * rows)
    else:
        zeros, ones = Content([[0] * columns] * rows, [0] * rows), Content([[0xFF] * columns] * rows, [0xFFFF] * rows)
        legal = Content([[0x38] * columns] * rows, [1] * rows)
    low, high, payload = (layouts.encode(format, shape, content) for content in (zeros, ones, legal))
    chosen = random.Random(0)
    for place, (a, b) in enumerate(zip(low, high, strict=True)):
        free = [bit for bit in range(8) if not (a ^ b) >> bit & 1]
        if free:
            changed = bytearray(payload)
            changed[place] ^= 1 << chosen.choice(free)
            said = rf"padding .* at byte {place} of the object$"
            yield Broken(f"padding at {place}", format, shape, bytes(changed), ("padding", None, None), said)


def rules(format: str) -> Iterator[Broken]:
    """An object for each rule that the format has; of direct and gguf formats every word is legal."""
    if format in GROUPED:
        yield from grouped(format)
    elif format in ROW_SCALED:
        yield from row_scaled(format)
    elif format == "nvfp4":
        yield from nvfp4()


@pytest.mark.parametrize("format", FORMATS)
def test_a_broken_rule_is_the_one_fault(format: str, tmp_path: Path) -> None:
    seen = []
    for each in rules(format):
        report = verify(write(tmp_path / "m.ninfer", each))
        found = [(fault.code, fault.row, fault.column) for fault in report.faults]
        assert found == [each.place], each.rule
        (fault,) = report.faults
        assert fault.object == "w"
        assert fault.message.startswith("w: ")
        assert re.search(each.said, fault.message), (each.rule, fault.message)
        assert report.total == 1
        seen.append(each.rule)
    padded = sum(rule.startswith("padding") for rule in seen)
    words = len(seen) - padded
    assert words == {
        **dict.fromkeys(("q4_g64_fp16", "q5_g64_fp16", "q6_g64_fp16"), 6),
        **dict.fromkeys(("q8_g32_fp16", "t2_g128_fp16", *ROW_SCALED), 7),
        "q2_g64_fp16": 4,
        "nvfp4": 8,
    }.get(format, 0)
    assert (padded > 100) == (format in GROUPED or format == "fp8_e4m3fn_row_bf16")


@pytest.mark.parametrize("format", FORMATS)
def test_legal_objects_have_no_fault(format: str, tmp_path: Path) -> None:
    each = artifacts.stored(format)
    container.write(tmp_path / "m.ninfer", root([record(each, "w", 0)], bindings={"w": whole("w")}), each.payload)
    assert verify(str(tmp_path / "m.ninfer")).ok


def every_format(folder: Path) -> Path:
    """An artifact with an object in every format, a resource and gaps, in parts; ids and digests as ours have them."""
    objects = [resource("r", 0, 300)]
    payload = random.Random(1).randbytes(300)
    for format in FORMATS:
        payload += bytes(-len(payload) % 256)
        objects.append(record(artifacts.stored(format, 3, 70), format, len(payload)))
        payload += artifacts.stored(format, 3, 70).payload
    digests = {
        each["id"]: {"sha256": hashlib.sha256(payload[each["offset"] :][: each["bytes"]]).hexdigest()}
        for each in objects
    }
    cut = [0, 12288, 24576, 53248, len(payload)]
    files = [
        {"path": f"m.part-{index}" if index else None, "payload_bytes": end - begin}
        for index, (begin, end) in enumerate(pairwise(cut))
    ]
    members = root(objects, files=files, provenance={"tool": {"name": "t"}, "objects": digests})
    text = json.dumps(members).encode()
    id = hashlib.sha256(text).digest()[:16]
    container.write(folder / "m.ninfer", text, payload[: cut[1]], id)
    for index in range(1, len(files)):
        head = bytes.fromhex("4e 49 4e 50 52 54 00 03") + index.to_bytes(8, "little") + id
        (folder / f"m.part-{index}").write_bytes(head.ljust(4096, b"\0") + payload[cut[index] : cut[index + 1]])
    return folder / "m.ninfer"


def check_flips(folder: Path, count: int, seed: int) -> None:
    """Flip a bit at `count` places of every file, one at a time, and at every byte of headers and edges."""
    path = every_format(folder)
    assert verify(str(path)).ok
    source = random.Random(seed)
    for file in sorted(folder.iterdir()):
        size = file.stat().st_size
        places = {*range(32), 4095, 4096, size - 1, *source.sample(range(size), count)}
        for place in artifacts.flips(file, sorted(places), source):
            assert not verify(str(path)).ok, (file.name, place)


def test_any_flipped_bit_is_found(tmp_path: Path) -> None:
    check_flips(tmp_path, 50, seed=0)


@pytest.mark.slow
def test_thousands_of_flipped_bits_are_found(tmp_path: Path) -> None:
    check_flips(tmp_path, 700, seed=1)


def test_any_truncation_is_found(tmp_path: Path) -> None:
    path = every_format(tmp_path)
    source = random.Random(0)
    for file in sorted(tmp_path.iterdir()):
        data = file.read_bytes()
        for length in (*range(0, 33, 4), 4095, 4096, len(data) - 1, *source.sample(range(len(data)), 20)):
            os.truncate(file, length)
            assert not verify(str(path)).ok, (file.name, length)
            file.write_bytes(data)
    assert verify(str(path)).ok
