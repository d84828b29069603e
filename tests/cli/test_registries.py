"""recipes and formats: what is built in, and a recipe's own check."""

from __future__ import annotations

from pathlib import Path

from ninfer_convert.formats import FORMATS
from tests.cli.checkpoints import RECIPE
from tests.cli.program import ok, run
from tests.support import REPOSITORY


def test_every_format_is_listed(tmp_path: Path) -> None:
    lines = ok("formats", cwd=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(FORMATS)
    listed = {format["name"]: format for format in ok("formats", "--json").result["formats"]}
    assert len(listed) == 30
    q4 = listed["q4_g64_fp16"]
    assert (q4["category"], q4["bits_per_weight"]) == ("grouped", 4.25)
    assert q4["layouts"] == ["row_split_k128_v1"]
    assert "grouped_absmax" in q4["methods"]
    assert "cast_direct" in listed["bf16"]["methods"]


def test_every_built_in_recipe_is_listed_and_shown() -> None:
    files = {path.stem: path for path in (REPOSITORY / "recipes").glob("*.toml")}
    assert files
    listed = {recipe["name"]: recipe["description"] for recipe in ok("recipes", "--json").result["recipes"]}
    assert set(listed) == set(files)
    assert all(listed.values())
    shown = ok("recipes").stdout
    for name, path in files.items():
        assert f"\n{name} " in shown
        assert ok("recipes", "show", name).stdout == path.read_text(encoding="utf-8")
    shown = ok("recipes", "show", "q4.toml", "--json").result["text"]
    assert shown == files["q4"].read_text(encoding="utf-8")


def test_a_shown_recipe_is_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(ok("recipes", "show", "q4").stdout, encoding="utf-8")
    assert ok("recipes", "check", "mine.toml", cwd=tmp_path).stdout == ok("recipes", "check", "q4").stdout.replace(
        "q4:", "mine.toml:"
    )


def test_an_unknown_recipe_is_answered_with_those_that_exist(tmp_path: Path) -> None:
    ran = run("recipes", "show", "q44", cwd=tmp_path)
    assert ran.status == 1
    assert "did you mean q4" in ran.stderr
    assert run("recipes", "check", "q44", cwd=tmp_path).status == 1
    assert run("recipes", "chek", "q4", cwd=tmp_path).status == 2


def test_a_check_tells_everything_at_once(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('schema = 1\nfoo = 2\n[[assign]]\nselct = "*"\nformat = "q4"\n')
    ran = run("recipes", "check", "bad.toml", cwd=tmp_path)
    assert (ran.status, ran.stdout) == (1, "")
    lines = ran.stderr.splitlines()
    assert [line.split(":")[2] for line in lines] == ["2", "3", "4", "5"]
    assert "did you mean select?" in lines[2]
    assert "did you mean q4_g64_fp16" in lines[3]
    errors = run("recipes", "check", "bad.toml", "--json", cwd=tmp_path).failure["errors"]
    assert [(error["file"], error["line"]) for error in errors] == [("bad.toml", line) for line in (2, 3, 4, 5)]


def test_a_check_says_what_is_extended(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(RECIPE)
    (tmp_path / "mine.toml").write_text('schema = 1\nextends = "base.toml"\n')
    assert ok("recipes", "check", "mine.toml", cwd=tmp_path).stdout == (
        "mine.toml: no faults; 1 assign\n  extends base.toml\n"
    )
    result = ok("recipes", "check", "mine.toml", "--json", cwd=tmp_path).result
    assert [file["path"] for file in result["files"]] == ["base.toml", "mine.toml"]


def test_a_check_counts_every_kind_of_table_and_tells_the_sources(tmp_path: Path) -> None:
    tables = '[sources]\nother = "a second checkpoint"\n[[group]]\nselect = "*a"\n[[group]]\nselect = "*b"\n'
    tables += (
        '[[separate]]\nselect = "c"\n[[share]]\nparameter = "d"\nwith = "e"\n[[use]]\nparameter = "f"\ninput = "g"\n'
    )
    tables += '[[skip]]\nselect = "h"\nreason = "r"\n[[rename]]\nmatch = "i"\nto = "j"\n'
    tables += '[[resource]]\ncomponent = "text"\nrole = "k"\npath = "l"\n'
    (tmp_path / "mine.toml").write_text(f"schema = 1\n{tables}")
    assert ok("recipes", "check", "mine.toml", cwd=tmp_path).stdout == (
        "mine.toml: no faults; 2 groups, 1 separate, 1 share, 1 skip, 1 rename, 1 use, 1 resource\n"
        "  --source other=PATH  a second checkpoint\n"
    )
    result = ok("recipes", "check", "mine.toml", "--json", cwd=tmp_path).result
    assert (result["assigns"], result["groups"], result["uses"]) == (0, 2, 1)
    assert result["sources"] == {"other": "a second checkpoint"}
