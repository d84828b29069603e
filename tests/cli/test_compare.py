"""`ninfer-convert compare` as a user runs it: tables, JSON, thresholds, what goes wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.checkpoints import make
from tests.cli.program import ok, run
from tests.support import gaussian, write_safetensors

METRICS = ["max", "rms", "relative", "sqnr", "cosine"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint, its artifact, and a second artifact of the same with more bits."""
    folder = make(tmp_path_factory.mktemp("compare"))
    ok("model.safetensors", "-r", "r.toml", cwd=folder)
    ok("model.safetensors", "-r", "r.toml", "--set", "*.up.*:format=q8_g32_fp16", "-o", "q8.ninfer", cwd=folder)
    return folder


def test_a_table_of_the_worst_first_and_the_total(folder: Path) -> None:
    head, *rows, empty, about, identical = ok(
        "compare", "model.ninfer", "model.safetensors", cwd=folder
    ).stdout.splitlines()
    assert head.split() == ["parameter", "format", "reference", *METRICS[:3], "SQNR", "dB", "cosine", "remarks"]
    assert [row.split()[0] for row in rows[-3:]] == ["layers.0.bias", "layers.0.norm.weight", "total"]
    assert {row.split()[0] for row in rows[:2]} == {"layers.0.experts", "layers.0.up.weight"}
    sqnr = [float(row.split()[6]) for row in rows[:2]]
    assert sqnr == sorted(sqnr)
    assert 15 < sqnr[0] < 25
    assert rows[2].endswith("inf  1.000000")
    assert rows[3].endswith("inf  1.000000  identical words")
    assert empty == ""
    assert about == "  compared   model.ninfer with model.safetensors"
    assert identical == "  identical  the words of 1 of 4 parameters"


def test_identical_artifacts_are_said_to_be_that(folder: Path) -> None:
    assert (
        "identical  the words of all 4 parameters\n" in ok("compare", "model.ninfer", "model.ninfer", cwd=folder).stdout
    )


@pytest.mark.parametrize("sort", ["max", "cosine", "name"])
def test_views_are_sorted_and_cut(folder: Path, sort: str) -> None:
    words = ("compare", "model.ninfer", "model.safetensors", "--sort", sort)
    listed = ok(*words, "--json", cwd=folder).result["parameters"]
    if sort == "name":
        assert [each["name"] for each in listed] == sorted(each["name"] for each in listed)
    else:
        values = [math.inf if each[sort] is None else each[sort] for each in listed]
        assert values == sorted(values, reverse=sort in ("max", "rms", "relative"))
    lines = ok(*words, "--limit", "1", cwd=folder).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == [listed[0]["name"], "total"]
    order = "by name" if sort == "name" else f"the worst by {sort}"
    assert lines[-1] == f"  listed     1 of 4, {order}; --limit 0 lists all"


def test_json_tells_everything_and_any_number_of_threads_the_same(folder: Path) -> None:
    words = ("compare", "model.ninfer", "model.safetensors", "--json")
    one = ok(*words, "--jobs", "1", cwd=folder)
    assert ok(*words, "--jobs", "8", cwd=folder).stdout == one.stdout
    assert one.stderr == ""
    lists = ["total", "parameters", "only_in_a", "only_in_b", "shapes", "skipped", "failures", "warnings"]
    assert list(one.result) == ["a", "b", "ok", "identical", *lists]
    result = one.result
    assert (result["a"], result["b"], result["ok"], result["identical"]) == (
        "model.ninfer",
        "model.safetensors",
        True,
        False,
    )
    assert list(result["total"]) == METRICS
    by_name = {each["name"]: each for each in result["parameters"]}
    norm = by_name["layers.0.norm.weight"]
    assert norm == {
        "name": "layers.0.norm.weight",
        "counterpart": "layers.0.norm.weight",
        "shape": [64],
        "format": "bf16",
        "reference": "BF16",
        "integral": False,
        "identical": True,
        "non_finite": 0,
        "disagreeing": 0,
        "max": 0.0,
        "rms": 0.0,
        "relative": 0.0,
        "sqnr": None,
        "cosine": 1.0,
    }
    assert by_name["layers.0.experts"]["shape"] == [3, 4, 64]
    assert by_name["layers.0.bias"]["identical"] is False
    assert by_name["layers.0.bias"]["max"] == 0


def test_thresholds_end_with_status_3(folder: Path) -> None:
    words = ("compare", "q8.ninfer", "model.ninfer")
    assert run(*words, "--fail-over", "sqnr=10", "--fail-over", "max=1", cwd=folder).status == 0
    ran = run(*words, "--fail-over", "sqnr=30", "--fail-over", "max=0", cwd=folder)
    assert (ran.status, ran.stderr) == (3, "")
    *_, sqnr, max_error = ran.stdout.splitlines()
    assert max_error.startswith("  failed     layers.0.up.weight: max is 0.0")
    assert max_error.endswith(", above 0")
    assert sqnr.startswith("  failed     layers.0.up.weight: sqnr is ")
    assert sqnr.endswith(", below 30")
    ran = run(*words, "--fail-over", "cosine=1", "--json", cwd=folder)
    assert (ran.status, ran.result["ok"]) == (3, False)
    (failure,) = ran.result["failures"]
    assert (failure["code"], failure["parameter"]) == ("cosine", "layers.0.up.weight")
    quiet = run(*words, "--fail-over", "cosine=1", "--quiet", cwd=folder)
    assert (quiet.status, quiet.stderr) == (3, "")
    assert quiet.stdout == f"  failed  {failure['message']}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("psnr=3", "unknown metric 'psnr'; did you mean sqnr? Known: max, rms, relative, sqnr, cosine"),
        ("total", "unknown metric 'total'"),
        ("", "unknown metric ''"),
        ("max", "'' is no number; write max=VALUE"),
        ("max=", "'' is no number"),
        ("max=low", "'low' is no number"),
        ("max=nan", "'nan' is no number"),
        ("sqnr=inf", "'inf' is no number"),
        ("sqnr=1=2", "'1=2' is no number"),
    ],
)
def test_a_threshold_is_a_metric_and_a_number(folder: Path, text: str, message: str) -> None:
    ran = run("compare", "model.ninfer", "model.ninfer", f"--fail-over={text}", cwd=folder)
    assert ran.status == 2
    assert message in ran.stderr


def test_wrong_usage(folder: Path) -> None:
    for words in (("model.ninfer",), ("model.ninfer", "model.ninfer", "model.ninfer")):
        assert run("compare", *words, cwd=folder).status == 2
    for option in ("--sort=size", "--limit=-1", "--html"):
        assert run("compare", "model.ninfer", "model.ninfer", option, cwd=folder).status == 2
    ran = run("compare", "model.safetensors", "model.ninfer", cwd=folder)
    assert ran.status == 2
    assert ran.stderr.startswith("error: model.safetensors: is a checkpoint; name the artifact first")


def test_what_cannot_be_read_is_status_1(folder: Path) -> None:
    (folder / "text").write_text("nothing of the kind")
    for other in ("missing.ninfer", "text"):
        ran = run("compare", "model.ninfer", other, "--json", cwd=folder)
        assert ran.status == 1
        assert ran.failure["errors"][0]["file"] == other


def test_names_of_any_kind_and_what_is_missing(tmp_path: Path) -> None:
    """Brackets are no markup, control characters are escaped; long lists are cut with their number."""
    nan = np.array([1, np.nan, np.inf, 2], np.float32)
    kept: dict[str, Any] = {"[bold]mlp.up[0].weight": nan, "bell\x07\x1b[31m": gaussian((4,)), "ids": np.arange(4)}
    kept |= {f"ours.{i}": gaussian((2,)) for i in range(23)}

    def tensors(arrays: dict[str, Any]) -> dict[str, Any]:
        return {n: ("I64" if a.dtype.kind == "i" else "F32", a.shape, a.tobytes()) for n, a in arrays.items()}

    write_safetensors(tmp_path / "m.safetensors", tensors(kept))
    (tmp_path / "r.toml").write_text('schema = 1\nname = "r"\n[defaults]\nI64 = "int32"\n')
    ok("m.safetensors", "-r", "r.toml", cwd=tmp_path)
    other = {n: a for n, a in kept.items() if not n.startswith("ours")}
    other |= {"[bold]mlp.up[0].weight": np.array([1, np.nan, 3, 2], np.float32), "bell\x07\x1b[31m": gaussian((2, 2))}
    write_safetensors(tmp_path / "other.safetensors", tensors(other | {"theirs": gaussian((2,))}))
    ran = run("compare", "m.ninfer", "other.safetensors", "--fail-over", "max=0", cwd=tmp_path)
    assert ran.status == 3
    assert "\x1b" not in ran.stdout
    lines = ran.stdout.splitlines()
    (weight,) = (line for line in lines if line.startswith("[bold]mlp.up[0].weight "))
    assert weight.endswith("2 NaN or infinite, 1 disagree")
    (ids,) = (line for line in lines if line.startswith("ids "))
    assert ids.endswith("whole numbers, not in the total")
    assert "  shapes differ  bell\\x07\\x1b[31m: 4, 2 x 2" in lines
    assert "  only in A      ours.0" in lines
    assert "  only in A      ... and 3 more, 23 in all" in lines
    assert "  only in B      theirs" in lines
    assert lines[-1] == "  failed         ... and 6 more, 26 in all"
