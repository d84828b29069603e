"""plan: everything that convert would do, to the byte, and nothing written."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.architectures import small
from tests.cli.checkpoints import RECIPE, make
from tests.cli.program import ok, run
from tests.support import REPOSITORY, TINY_LLAMA, write_sparse_safetensors

MISFIT = REPOSITORY / "tests" / "golden" / "encoded" / "ct_nvfp4_misfit"


def test_each_parameter_with_format_method_shape_bytes_and_rule(tmp_path: Path) -> None:
    folder = make(tmp_path)
    before = sorted(os.listdir(folder))
    shown = ok("plan", "model.safetensors", "-r", "r.toml", cwd=folder).stdout
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line.startswith("layers.")}
    assert rows["layers.0.up.weight"][1:] == [
        "BF16",
        "q4_g64_fp16",
        "grouped_absmax",
        "6",
        "x",
        "128",
        "536",
        "r.toml:8",
    ]
    assert rows["layers.0.experts"][1:] == ["F32", "q4_g64_fp16", "grouped_absmax", "12", "x", "64", "816", "r.toml:8"]
    assert rows["layers.0.norm.weight"][1:] == ["BF16", "bf16", "cast_direct", "64", "128", "-"]
    assert rows["layers.0.bias"][1:] == ["F16", "fp32", "cast_direct", "5", "20", "-"]
    assert "default          F16 as fp32: 1 parameter (r.toml:6)" in shown
    assert sorted(os.listdir(folder)) == before


def test_the_plan_as_json(tmp_path: Path) -> None:
    folder = make(tmp_path, recipe=f'{RECIPE}\n[[skip]]\nselect = "*.norm.weight"\nreason = "a test"\n')
    plan = ok("plan", "model.safetensors", "-r", "r.toml", "--json", cwd=folder).result
    parameters = {parameter["name"]: parameter for parameter in plan["parameters"]}
    bank = parameters["layers.0.experts"]
    assert (bank["stored"], bank["format"], bank["layout"]) == ("F32", "q4_g64_fp16", "row_split_k128_v1")
    assert (bank["method"], bank["shape"], bank["lossy"]) == ("grouped_absmax", [12, 64], False)
    assert bank["rule"] == {"file": "r.toml", "line": 8, "column": 3, "select": "*"}
    assert plan["defaults"] == {"F16": 1}
    assert plan["skipped"] == [
        {"name": "layers.0.norm.weight", "reason": "a test", "rule": {**plan["skipped"][0]["rule"], "line": 13}}
    ]
    assert plan["elements"] == sum(share["elements"] for share in plan["formats"])
    assert plan["untouched"] == pytest.approx(5 / plan["elements"])
    assert plan["bits_per_weight"]["stored"] == 8 * plan["artifact_bytes"] / plan["elements"]
    nominal = ((6 * 128 + 12 * 64) * 4.25 + 5 * 32) / plan["elements"]
    assert plan["bits_per_weight"]["nominal"] == pytest.approx(nominal)
    assert plan["memory_bytes"] > 0
    assert plan["recipe"] == "tiny"
    assert plan["architecture"] == "generic"


TABLES = """schema = 1
[[assign]]
select = "*_proj.weight"
format = "q4_g64_fp16"
[[group]]
select = ["model.layers.*.self_attn.q_proj.weight", "model.layers.*.self_attn.k_proj.weight"]
[[share]]
parameter = "lm_head.weight"
with = "model.embed_tokens.weight"
[[use]]
parameter = "model.layers.*.self_attn.q_proj.weight"
input = "model.layers.*.attention"
auxiliaries = { activation_input_divisor = 2.5 }
[[assign]]
select = "model.layers.1.self_attn.q_proj.weight"
activation_policy = "AllowA8"
"""


def test_groups_shares_and_uses_with_the_tables_that_made_them(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(TABLES)
    arguments = (TINY_LLAMA, "-r", "t.toml")
    shown = ok("plan", *arguments, cwd=tmp_path).stdout
    assert "  group            2 objects of 4 parameters (t.toml:5)\n" in shown
    assert "  share            lm_head.weight is model.embed_tokens.weight (t.toml:7)\n" in shown
    assert "  use              2 inputs, A16Only, AllowA8 (t.toml:10)\n" in shown
    plan = ok("plan", *arguments, "--json", cwd=tmp_path).result
    q, k = (f"model.layers.{{}}.self_attn.{kind}_proj.weight" for kind in "qk")
    for layer, group in enumerate(plan["groups"]):
        assert (group["members"], group["rule"]["line"]) == ([q.format(layer), k.format(layer)], 5)
        assert group["rule"]["select"] == f"{q.format('*')}, {k.format('*')}"
        members = [piece for piece in plan["parameters"] if piece["object"] == group["object"]]
        assert [(piece["name"], piece["shape"]) for piece in members] == [
            (q.format(layer), [128, 128]),
            (k.format(layer), [32, 128]),
        ]
        assert sum(piece["bytes"] for piece in members) == 160 * 68
    (share,) = plan["shares"]
    assert (share["parameter"], share["with"], share["rule"]["line"]) == (
        "lm_head.weight",
        "model.embed_tokens.weight",
        7,
    )
    uses = [{**use, "rule": use["rule"]["line"]} for use in plan["uses"]]
    assert uses == [
        {
            "parameter": q.format(layer),
            "input": f"model.layers.{layer}.attention",
            "activation_policy": policy,
            "auxiliaries": {"activation_input_divisor": 2.5},
            "rule": 10,
        }
        for layer, policy in enumerate(["A16Only", "AllowA8"])
    ]


def test_what_the_architecture_makes_of_itself_is_said(tmp_path: Path) -> None:
    small.write(tmp_path / "model", small.KINDS["dense"])
    shown = ok("plan", "model", "-r", "bf16", cwd=tmp_path).stdout
    assert re.search(r"group +\d+ objects of \d+ parameters \(architecture\)", shown)
    assert re.search(r"use +\d+ inputs, A16Only \(architecture\)", shown)
    assert (
        "  locked           6 parameters that a wildcard passed by\n"
        in ok("plan", "model", "-r", "q4", cwd=tmp_path).stdout
    )
    plan = ok("plan", "model", "-r", "bf16", "--json", cwd=tmp_path).result
    assert {group["rule"] for group in plan["groups"]} == {use["rule"] for use in plan["uses"]} == {None}


def test_objects_that_took_another_format_are_marked_and_counted(tmp_path: Path) -> None:
    recipe = 'schema = 1\n[[assign]]\nselect = "*"\nwhere.dtype = "NVFP4"\nformat = "nvfp4"\nmisfit = "fp32"\n'
    (tmp_path / "r.toml").write_text(recipe)
    shown = ok("plan", MISFIT, "-r", "r.toml", cwd=tmp_path).stdout
    assert shown.count("  fp32 (no nvfp4)  ") == 3
    assert "  misfit           3 objects that nvfp4 does not fit, marked above\n" in shown
    plan = ok("plan", MISFIT, "-r", "r.toml", "--json", cwd=tmp_path).result
    assert plan["misfits"] == {"nvfp4": 3}
    instead = {piece["name"]: piece["instead_of"] for piece in plan["parameters"] if piece["instead_of"]}
    assert set(instead.values()) == {"nvfp4"}
    assert len(instead) == 3


@pytest.mark.parametrize("options", [(), ("--max-file-bytes", "64KiB", "--no-digest", "--name", "N")])
def test_file_sizes_are_equal_to_the_byte(tmp_path: Path, options: tuple[str, ...]) -> None:
    arguments = (str(TINY_LLAMA), "-r", "q8", *options, "-o", "t.ninfer", "--json")
    plan = ok("plan", *arguments, cwd=tmp_path).result
    made = ok(*arguments, cwd=tmp_path).result
    assert plan["files"] == made["files"]
    for file in plan["files"]:
        assert (tmp_path / file["path"]).stat().st_size == file["bytes"]
    assert plan["artifact_bytes"] == made["artifact_bytes"]
    assert plan["bits_per_weight"] == made["bits_per_weight"]
    assert plan["elements"] == made["elements"]


def test_dry_run_is_plan(tmp_path: Path) -> None:
    folder = make(tmp_path)
    before = sorted(os.listdir(folder))
    for options in ((), ("--json",)):
        plan = ok("plan", "model.safetensors", "-r", "r.toml", *options, cwd=folder)
        dry = ok("model.safetensors", "-r", "r.toml", "--dry-run", *options, cwd=folder)
        assert (dry.stdout, dry.stderr) == (plan.stdout, plan.stderr)
    assert sorted(os.listdir(folder)) == before


def test_only_headers_are_read(tmp_path: Path) -> None:
    """A tensor of 1 TiB plans at once, and within ordinary memory."""
    write_sparse_safetensors(tmp_path / "huge.safetensors", {"t": ("BF16", (1 << 20, 1 << 19), 1 << 40)})
    plan = ok("plan", "huge.safetensors", "-r", "q4", "--json", cwd=tmp_path).result
    assert plan["source_bytes"] == 1 << 40
    assert plan["artifact_bytes"] > plan["elements"] * 4.25 / 8


LOSSY = {
    "bf16": {"F16", "F32", "F64", "I16", "U16", "I32", "U32", "I64", "U64"},
    "fp32": {"F64", "I32", "U32", "I64", "U64"},
    "int32": set(),
}
WIDTHS = {"BOOL": 1, "I8": 1, "U8": 1, "I16": 2, "U16": 2, "BF16": 2, "F16": 2, "I32": 4, "U32": 4, "F32": 4} | {
    "I64": 8,
    "U64": 8,
    "F64": 8,
}


@pytest.mark.parametrize("format", LOSSY)
def test_casts_that_may_round_are_marked(tmp_path: Path, format: str) -> None:
    """int32 rounds nothing: what is not integral and in range is refused."""
    tensors = {stored: (stored, (4,), 4 * width) for stored, width in WIDTHS.items()}
    write_sparse_safetensors(tmp_path / "m.safetensors", tensors)
    (tmp_path / "r.toml").write_text(f'schema = 1\n[[assign]]\nselect = "*"\nformat = "{format}"\n')
    plan = ok("plan", "m.safetensors", "-r", "r.toml", "--json", cwd=tmp_path).result
    assert {parameter["name"] for parameter in plan["parameters"] if parameter["lossy"]} == LOSSY[format]
    shown = ok("plan", "m.safetensors", "-r", "r.toml", cwd=tmp_path).stdout
    assert shown.count("cast_direct (lossy)") == len(LOSSY[format])
    assert (f"{len(LOSSY[format])} casts to a direct format that may round" in shown) == bool(LOSSY[format])


def test_regions_are_lines_of_their_own(tmp_path: Path) -> None:
    region = f'{RECIPE}\n[[assign]]\nselect = "*.up.weight"\nrows = [0, 2]\nformat = "q8_g32_fp16"\n'
    folder = make(tmp_path, recipe=region)
    plan = ok("plan", "model.safetensors", "-r", "r.toml", "--json", cwd=folder).result
    pieces = [parameter for parameter in plan["parameters"] if parameter["name"] == "layers.0.up.weight"]
    assert [(piece["selection"], piece["format"]) for piece in pieces] == [
        ("rows 0:2", "q8_g32_fp16"),
        ("rows 2:6", "q4_g64_fp16"),
    ]
    assert "layers.0.up.weight [rows 0:2]" in ok("plan", "model.safetensors", "-r", "r.toml", cwd=folder).stdout


def test_what_convert_refuses_from_headers_plan_refuses_alike(tmp_path: Path) -> None:
    folder = make(tmp_path, recipe='schema = 1\n[[assign]]\nselect = "*"\nformat = "q4_g64_fp16"\n')
    plan = run("plan", "model.safetensors", "-r", "r.toml", cwd=folder)
    convert = run("model.safetensors", "-r", "r.toml", cwd=folder)
    assert plan == convert
    assert plan.status == 1
    assert plan.stderr.startswith("error: ")


def test_a_size_is_decimal_binary_or_plain_bytes(tmp_path: Path) -> None:
    folder = make(tmp_path)
    for size, bytes in (("70kB", 70_000), ("64KiB", 65_536), ("0.07MB", 70_000), ("70000", 70_000), ("70000B", 70_000)):
        plan = ok("plan", TINY_LLAMA, "-r", "q8", "--max-file-bytes", size, "--json", cwd=folder).result
        assert len(plan["files"]) > 1
        assert bytes - 4096 < max(file["bytes"] for file in plan["files"]) <= bytes


def test_memory_follows_threads_and_cap(tmp_path: Path) -> None:
    write_sparse_safetensors(tmp_path / "m.safetensors", {"t": ("F32", (4096, 4096), 64 << 20)})

    def expected(*options: str) -> int:
        plan = ok("plan", "m.safetensors", "-r", "q4", "--json", *options, cwd=tmp_path).result
        return int(plan["memory_bytes"])

    assert expected("--jobs", "1") < expected("--jobs", "4")
    assert expected("--jobs", "4", "--memory", "8MiB") < expected("--jobs", "4")


@pytest.mark.parametrize("command", [("plan",), ("convert",), ("convert", "--dry-run")])
def test_a_cap_of_memory_below_the_smallest_pieces_is_refused_with_the_least(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    write_sparse_safetensors(tmp_path / "m.safetensors", {"t": ("F32", (2, 1 << 20), 8 << 20)})
    before = sorted(tmp_path.iterdir())
    for cap, jobs, least in (("1KB", "1", 16 << 20), (str((48 << 20) - 1), "3", 48 << 20)):
        ran = run(*command, "m.safetensors", "-r", "q4", "--memory", cap, "--jobs", jobs, cwd=tmp_path)
        assert (ran.status, ran.stdout) == (2, "")
        assert f" take {least:,}; raise --memory, or lower --jobs" in ran.stderr
    assert sorted(tmp_path.iterdir()) == before
    ok(*command, "m.safetensors", "-r", "q4", "--memory", str(48 << 20), "--jobs", "3", cwd=tmp_path)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("missing/x.ninfer", "missing: there is no such folder; make it first"),
        ("missing/", "missing/: there is no such folder; make it first"),
        ("r.toml/x.ninfer", "r.toml: is not a folder"),
    ],
)
def test_an_output_in_no_folder_is_refused_as_by_convert(tmp_path: Path, out: str, said: str) -> None:
    ran = run("plan", "model.safetensors", "-r", "r.toml", "-o", out, cwd=make(tmp_path))
    assert (ran.status, ran.stdout, ran.stderr) == (1, "", f"error: {said}\n")
