"""`ninfer-convert imatrix` as a user runs it: what a matrix holds, what it covers, and files that are not one."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.cli.program import ok, run
from tests.oracle import container, gguf, imatrix
from tests.support import bf16, gaussian, write_safetensors

FIXTURE = Path(__file__).parent.parent / "golden" / "imatrix"
LAYER = "model.layers.0"
SHAPES: Mapping[str, Sequence[int]] = {
    f"{LAYER}.self_attn.q_proj.weight": (24, 128),
    f"{LAYER}.self_attn.k_proj.weight": (24, 128),
    f"{LAYER}.self_attn.v_proj.weight": (24, 128),
    f"{LAYER}.mlp.experts.0.up_proj.weight": (16, 128),
    f"{LAYER}.mlp.experts.3.up_proj.weight": (16, 128),
    f"{LAYER}.input_layernorm.weight": (128,),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of those tensors, one of them an index, and both files of the matrix."""
    tensors = {name: ("BF16", shape, bf16(gaussian(shape))) for name, shape in SHAPES.items()}
    write_safetensors(tmp_path / "model.safetensors", {**tensors, "index": ("I32", (4, 128), bytes(4 * 4 * 128))})
    for suffix in ("gguf", "dat"):
        (tmp_path / f"imatrix.{suffix}").write_bytes((FIXTURE / f"imatrix.{suffix}").read_bytes())
    return tmp_path


def legacy(path: Path, entries: Mapping[str, Sequence[float]]) -> Path:
    path.write_bytes(imatrix.legacy([(name, 1, values) for name, values in entries.items()]))
    return path


def test_what_a_matrix_holds(folder: Path) -> None:
    assert (
        ok("imatrix", "imatrix.gguf", cwd=folder).stdout
        == """\
imatrix.gguf
  kind         GGUF
  size         6,272 bytes (6.27 kB)
  entries      6, of 9 vectors
  measured on  calibration.txt
  chunks       4

entry                     vectors  length     counted
blk.0.attn_output.weight        1     128         512
blk.0.attn_q.weight             1     128       1,024
blk.0.attn_v.weight             1     128       2,048
blk.0.ffn_down.weight           1     256         512
blk.0.ffn_up_exps.weight        4     128  0 to 2,048
blk.99.attn_q.weight            1     128       1,024
"""
    )


COVERAGE = """
model.safetensors
  architecture  generic
  covered       4 of 5 matrices and banks, 76.9 % of their weights
  unused        3 of 6 entries

without a vector                        shape     weights   share
model.layers.0.self_attn.k_proj.weight  24 x 128    3,072  23.1 %
"""
USED = {
    "blk.0.attn_output.weight": "-",
    "blk.0.attn_q.weight": f"{LAYER}.self_attn.q_proj.weight",
    "blk.0.attn_v.weight": f"{LAYER}.self_attn.v_proj.weight",
    "blk.0.ffn_down.weight": "-",
    "blk.0.ffn_up_exps.weight": f"{LAYER}.mlp.experts.0.up_proj.weight and 1 more",
    "blk.99.attn_q.weight": "-",
}


@pytest.mark.parametrize("suffix", ["gguf", "dat"])
def test_what_it_covers_both_ways(folder: Path, suffix: str) -> None:
    """Vectors of a bank are found for experts that have tensors of their own."""
    shown = ok("imatrix", f"imatrix.{suffix}", "model.safetensors", cwd=folder).stdout
    assert shown.endswith(COVERAGE)
    assert {line.split()[0]: line for line in shown.splitlines() if line.startswith("blk.")}.keys() == USED.keys()
    for entry, used in USED.items():
        assert any(line.startswith(f"{entry} ") and line.endswith(f"  {used}") for line in shown.splitlines())


@pytest.mark.parametrize(("suffix", "kind", "vectors"), [("gguf", "gguf", 4), ("dat", "legacy", 1)])
def test_the_same_for_programs(folder: Path, suffix: str, kind: str, vectors: int) -> None:
    result = ok("imatrix", f"imatrix.{suffix}", "model.safetensors", "--json", cwd=folder).result
    assert (result["kind"], result["datasets"], result["chunks"]) == (kind, ["calibration.txt"], 4)
    assert result["bytes"] == (folder / f"imatrix.{suffix}").stat().st_size
    entries = {entry["name"]: entry for entry in result["entries"]}
    bank = entries["blk.0.ffn_up_exps.weight"]
    assert (bank["vectors"], bank["length"] * vectors, len(bank["counts"])) == (vectors, 512, vectors)
    coverage = result["coverage"]
    assert (coverage["input"], coverage["architecture"]) == ("model.safetensors", "generic")
    assert (coverage["elements"], coverage["missing_elements"]) == (3 * 24 * 128 + 2 * 16 * 128, 24 * 128)
    found = {each["name"]: each["entry"] for each in coverage["parameters"]}
    assert found.keys() == {name for name, shape in SHAPES.items() if len(shape) == 2}
    assert [name for name, entry in found.items() if entry is None] == [f"{LAYER}.self_attn.k_proj.weight"]
    assert coverage["unused"] == [entry for entry, used in USED.items() if used == "-"]
    assert ok("imatrix", f"imatrix.{suffix}", "--json", cwd=folder).result.keys() == result.keys() - {"coverage"}


def test_a_gguf_is_covered_by_its_own_names(folder: Path) -> None:
    """Blocks are searched by their decoded values, so they count."""
    tensors = [gguf.Tensor(f"blk.0.attn_{name}.weight", 8, (2, 128), bytes(2 * 4 * 34)) for name in "qk"]
    (folder / "m.gguf").write_bytes(gguf.File(tensors).build())
    coverage = ok("imatrix", "imatrix.gguf", "m.gguf", "--json", cwd=folder).result["coverage"]
    assert {each["name"]: each["entry"] for each in coverage["parameters"]} == {
        "blk.0.attn_q.weight": "blk.0.attn_q.weight",
        "blk.0.attn_k.weight": None,
    }


def test_everything_is_covered(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", {"w": ("F32", (2, 4), bytes(32))})
    legacy(tmp_path / "m.dat", {"w": [1, 2, 3, 4]})
    shown = ok("imatrix", "m.dat", "m.safetensors", cwd=tmp_path).stdout
    assert (
        "covered       1 of 1 matrices and banks, 100.0 % of their weights\n  unused        0 of 1 entries\n" in shown
    )
    assert "without a vector" not in shown


def test_a_suffix_does_not_decide(folder: Path) -> None:
    """One file's statistics in both formats, each under the other's name, and the bytes that they give."""
    (folder / "a.dat").write_bytes((folder / "imatrix.gguf").read_bytes())
    (folder / "b.gguf").write_bytes((folder / "imatrix.dat").read_bytes())
    payloads = []
    for name, kind in (("a.dat", "gguf"), ("b.gguf", "legacy")):
        assert ok("imatrix", name, "--json", cwd=folder).result["kind"] == kind
        source = ("--source", f"imatrix={name}", "-o", f"{name}.ninfer")
        ok("model.safetensors", "-r", "q4_imatrix", *source, cwd=folder)
        artifact = container.read(folder / f"{name}.ninfer")
        assert "blk" not in artifact.text.decode()
        payloads.append(artifact.payload)
    assert payloads[0] == payloads[1]


@pytest.mark.parametrize("length", [256, 64, 16 * 128])
def test_an_entry_of_another_length_is_an_error(tmp_path: Path, length: int) -> None:
    """2K, K / 2 and E * K for a matrix; every one of them together."""
    write_safetensors(tmp_path / "m.safetensors", {name: ("F32", (1, 128), bytes(512)) for name in "ab"})
    legacy(tmp_path / "m.dat", dict.fromkeys("ab", [1.0] * length))
    ran = run("imatrix", "m.dat", "m.safetensors", "--json", cwd=tmp_path)
    assert ran.status == 1
    errors = ran.failure["errors"]
    assert [(error["code"], error["tensor"], error["file"]) for error in errors] == [
        ("importance-length", "a", "m.dat"),
        ("importance-length", "b", "m.dat"),
    ]
    assert errors[0]["message"] == (
        f"a: holds {length} values, but a of [1, 128] needs one vector of 128 values; is it a matrix of another model?"
    )


def test_vectors_of_zeros_are_warned_about(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "m.safetensors", {name: ("F32", (1, 4), bytes(16)) for name in "ab"})
    legacy(tmp_path / "m.dat", {"a": [0, 0, 0, 0], "b": [0, 1, 0, 0]})
    assert ok("imatrix", "m.dat", cwd=tmp_path).stderr == ""
    assert ok("imatrix", "m.dat", "m.safetensors", cwd=tmp_path).stderr == (
        "warning: m.dat: a: its vector is all zero, so a is treated as unweighted there\n"
    )
    result = ok("imatrix", "m.dat", "m.safetensors", "--json", cwd=tmp_path).result
    assert [(warning["code"], warning["tensor"]) for warning in result["warnings"]] == [("zero-importance", "a")]


@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_numbers_that_cannot_be_are_an_error(tmp_path: Path, value: str) -> None:
    legacy(tmp_path / "m.dat", {"a": [1, float(value)]})
    ran = run("imatrix", "m.dat", cwd=tmp_path)
    assert (ran.status, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: m.dat: a: 1 value of 2 cannot be, the first at index 1: ")


def test_a_path_that_leads_to_no_matrix_is_told_once_before_the_checkpoint(tmp_path: Path) -> None:
    for name, told in {
        "none.gguf": "does not exist: give the file that llama-imatrix wrote",
        ".": "is a folder, where a file is needed",
        "text.txt": "is no importance matrix, or a damaged one",
        "m.safetensors": "is a safetensors file, not an importance matrix",
    }.items():
        (tmp_path / "text.txt").write_text("some text")
        (tmp_path / "m.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
        ran = run("imatrix", name, "no-such-model", cwd=tmp_path)
        assert ran.status == 1
        (line,) = ran.stderr.splitlines()
        assert line.startswith(f"error: {name}: ")
        assert told in line


def test_an_input_that_is_no_checkpoint(folder: Path) -> None:
    ran = run("imatrix", "imatrix.gguf", "none", cwd=folder)
    assert (ran.status, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: none: ")
    assert run("imatrix", cwd=folder).status == 2


def test_names_are_made_printable(tmp_path: Path) -> None:
    data = legacy(tmp_path / "m.dat", {"a\x1b[31m": [1.0]}).read_bytes()
    (tmp_path / "m.dat").write_bytes(data + struct.pack("<ii", 1, 6) + b"\x1b[2J\r\n")
    shown = ok("imatrix", "m.dat", cwd=tmp_path).stdout
    assert "\x1b" not in shown
    assert "a\\x1b[31m" in shown
    assert "\\x1b[2J\\r\\n" in shown
