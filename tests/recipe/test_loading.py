"""Finding, extending and overriding recipes (recipes.md, Finding a recipe; extends)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ninfer_convert.recipe import Recipe, builtin_recipes, find_recipe, load_recipe, resolve
from tests.recipe.support import Parameter, formats, load, placed, refused, solve, write


def says(recipe: Recipe) -> list[object]:
    return [assign.says for assign in recipe.assigns]


def test_an_existing_file_comes_before_a_builtin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_recipe("q4") == find_recipe("q4.toml") != Path("q4")
    (tmp_path / "q4").mkdir()
    assert find_recipe("q4").name == "q4.toml", "a folder is no recipe"
    write(tmp_path, "schema = 1\nname = 'mine'", "q4.toml")
    assert find_recipe("q4.toml") == Path("q4.toml")
    assert find_recipe("q4").is_absolute()
    assert load_recipe("q4.toml").name == "mine"


def test_problems_of_a_built_in_recipe_are_told_by_its_name(tmp_path: Path) -> None:
    recipe = load_recipe(str(write(tmp_path, "schema = 1\nextends = 'q4'")))
    (problem,) = refused(lambda: resolve(recipe, [Parameter("norm", (8,))]))
    assert str(problem).startswith("q4.toml:17:9: where admits none")


def test_a_pipe_is_an_existing_file(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"schema = 1\nname = 'piped'")
    os.close(writing)
    assert load_recipe(f"/dev/fd/{reading}").name == "piped"
    os.close(reading)


@pytest.mark.parametrize("spec", ["q44", "q44.toml", "somewhere/q4", "../recipes/q4", "", "x" * 5000, "a\0b"])
def test_an_unknown_recipe_is_answered_with_what_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (problem,) = refused(lambda: find_recipe(spec))
    assert problem.code == "unknown-recipe"
    assert "and no built-in recipe of that name" in problem.message
    assert "bf16, fp8, fp32, gguf, import, q4, q4_imatrix, q4_mixed, q4_search, q5, q6, q8" in problem.message
    assert ("did you mean q4" in problem.message) == ("q4" in spec)


def test_builtins_come_in_natural_order_with_a_description() -> None:
    builtins = builtin_recipes()
    assert [builtin.name for builtin in builtins] == [
        "bf16",
        "fp8",
        "fp32",
        "gguf",
        "import",
        "q4",
        "q4_imatrix",
        "q4_mixed",
        "q4_search",
        "q5",
        "q6",
        "q8",
        "qwen3_6_27b",
        "qwen3_6_35b_a3b",
        "qwen3_8_27b",
        "qwen3_8_27b_imatrix",
        "qwen3_8_27b_q6",
    ]
    for builtin in builtins:
        recipe = load_recipe(builtin.name)
        assert recipe.name == builtin.name
        assert recipe.description == builtin.description != ""
        assert recipe.files[-1].path == Path(builtin.path.name), "not where it is installed"


@pytest.mark.parametrize("spec", ["shared/qwen3_5_dense", "qwen3_5_dense", "shared"])
def test_what_built_in_recipes_share_is_no_recipe_to_choose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (problem,) = refused(lambda: find_recipe(spec))
    assert "qwen3_5_dense" not in problem.message.removeprefix(f"no file '{spec}'")


def test_what_built_in_recipes_share_is_shown_and_checked_by_the_name_that_they_extend() -> None:
    assert builtin_recipes(parts=True)[-1].name == "shared/qwen3_5_dense"
    recipe = load_recipe("shared/qwen3_5_dense.toml", parts=True)
    assert str(recipe.assigns[0].place) == "shared/qwen3_5_dense.toml:9"
    assert [str(file.path) for file in load_recipe("qwen3_6_27b").files] == [
        "shared/qwen3_5_dense.toml",
        "qwen3_6_27b.toml",
    ]


def test_a_built_in_recipe_finds_what_it_extends_wherever_it_is_copied_to(tmp_path: Path) -> None:
    for builtin in builtin_recipes():
        copied = load_recipe(str(write(tmp_path, builtin.path.read_text(encoding="utf-8"), "mine.toml")))
        original = load_recipe(builtin.name)
        assert says(copied) == says(original)
        assert [file.sha256 for file in copied.files] == [file.sha256 for file in original.files]


def test_what_a_users_own_folder_holds_comes_before_a_shared_part(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    write(tmp_path / "shared", "schema = 1\narchitecture = 'generic'", "qwen3_5_dense.toml")
    assert load(tmp_path, "schema = 1\nextends = 'shared/qwen3_5_dense.toml'").architecture == "generic"


def test_a_recipe_without_a_name_is_called_as_its_file(tmp_path: Path) -> None:
    assert load_recipe(str(write(tmp_path, "schema = 1", "mine.toml"))).name == "mine"


def test_the_bases_tables_come_first_and_this_files_values_win(tmp_path: Path) -> None:
    write(
        tmp_path,
        "schema = 1\nname = 'base'\ndescription = 'd'\narchitecture = 'generic'\n"
        "[metadata]\nname = 'm'\nby = 'b'\n[sources]\nimatrix = 'i'\n[defaults]\nF16 = 'fp32'\nI64 = 'int32'\n"
        "[[assign]]\nselect = '*'\nformat = 'bf16'\n[[skip]]\nselect = 'a'\nreason = 'r'\n"
        "[[rename]]\nmatch = 'a'\nto = 'b'\n"
        "[[group]]\nselect = 'a'\n[[separate]]\nselect = 'a'\n[[share]]\nparameter = 'a'\nwith = 'b'\n"
        "[[use]]\nparameter = 'a'\ninput = 'i'\n[[resource]]\ncomponent = 'text'\nrole = 'a'\npath = 'a'\n",
        "base.toml",
    )
    recipe = load(
        tmp_path,
        "schema = 1\nname = 'this'\nextends = 'base.toml'\n"
        "[metadata]\nname = 'n'\n[sources]\nother = 'o'\n[defaults]\nF16 = 'bf16'\n"
        "[[assign]]\nselect = '*'\nformat = 'fp32'\n[[skip]]\nselect = 'b'\nreason = 's'\n"
        "[[rename]]\nmatch = 'c'\nto = 'd'\n"
        "[[group]]\nselect = 'c'\nshape = [2, 3]\n[[separate]]\nselect = 'c'\n[[share]]\nparameter = 'c'\nwith = 'd'\n"
        "[[use]]\nparameter = 'c'\ninput = 'j'\n[[resource]]\ncomponent = 'text'\nrole = 'c'\npath = 'sub/c'\n",
    )
    assert (recipe.name, recipe.description, recipe.architecture) == ("this", "d", "generic")
    assert recipe.metadata == {"name": "n", "by": "b"}
    assert recipe.sources == {"imatrix": "i", "other": "o"}
    assert recipe.defaults == {"F16": "bf16", "I64": "int32"}
    assert says(recipe) == [{"format": "bf16"}, {"format": "fp32"}]
    assert [skip.reason for skip in recipe.skips] == ["r", "s"]
    assert [rename.to for rename in recipe.renames] == ["b", "d"]
    assert [group.shape for group in recipe.groups] == [None, (2, 3)]
    assert [separate.select[0].glob.text for separate in recipe.separates] == ["a", "c"]
    assert [share.target.glob.text for share in recipe.shares] == ["b", "d"]
    assert [use.input.glob.text for use in recipe.uses] == ["i", "j"]
    assert [(resource.role, resource.path) for resource in recipe.resources] == [("a", "a"), ("c", "sub/c")]
    assert [file.path.name for file in recipe.files] == ["base.toml", "r.toml"]
    for file in recipe.files:
        assert file.sha256 == hashlib.sha256(file.path.read_bytes()).hexdigest()


def test_architecture_is_auto_and_components_are_the_checkpoints_unless_said(tmp_path: Path) -> None:
    recipe = load(tmp_path, "schema = 1")
    assert (recipe.architecture, recipe.components) == ("auto", None)
    write(tmp_path, "schema = 1\ncomponents = ['text']", "base.toml")
    assert load(tmp_path, "schema = 1\nextends = 'base.toml'").components == ("text",)
    text = "schema = 1\nextends = 'base.toml'\ncomponents = ['text', 'mtp']"
    assert load(tmp_path, text).components == ("text", "mtp")


def test_a_role_of_a_component_is_given_once(tmp_path: Path) -> None:
    resource = "[[resource]]\ncomponent = 'text'\nrole = 'tokenizer.json'\npath = 'a'\n"
    base = write(tmp_path, f"schema = 1\n{resource}", "base.toml")
    (problem,) = refused(lambda: load(tmp_path, f"schema = 1\nextends = 'base.toml'\n{resource}"))
    assert (problem.code, problem.line, problem.path) == ("repeated", 3, str(tmp_path / "r.toml"))
    assert problem.message == f"tokenizer.json of text is given already, by {base}:2"
    load(tmp_path, f"schema = 1\nextends = 'base.toml'\n{resource.replace('text', 'vision')}")


def test_a_path_is_relative_to_the_file_that_says_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, "schema = 1\ndescription = 'far'", "far.toml")
    write(tmp_path / "sub", "schema = 1\nextends = '../far.toml'", "near.toml")
    recipe = load(tmp_path, "schema = 1\nextends = 'sub/near.toml'")
    assert recipe.description == "far"
    assert [file.path.name for file in recipe.files] == ["far.toml", "near.toml", "r.toml"]


def test_a_builtin_can_be_extended_even_under_its_own_name(tmp_path: Path) -> None:
    base = load_recipe("q4")
    write(tmp_path, "schema = 1\nextends = 'q4'\n[[assign]]\nselect = 'a'\nformat = 'bf16'", "q4.toml")
    recipe = load_recipe(str(tmp_path / "q4.toml"))
    assert recipe.description == base.description
    assert says(recipe) == [*says(base), {"format": "bf16"}]


def test_a_cycle_is_shown(tmp_path: Path) -> None:
    for one, other in (("a", "b"), ("b", "c"), ("c", "./b")):
        write(tmp_path, f"schema = 1\nextends = '{other}.toml'", f"{one}.toml")
    (problem,) = refused(lambda: load_recipe(str(tmp_path / "a.toml")))
    a, b, c = (str(tmp_path / f"{name}.toml") for name in "abc")
    assert (problem.path, problem.line, problem.column) == (c, 2, 11)
    assert problem.message == f"extends goes in a circle: {a} -> {b} -> {c} -> {b}"


def test_the_faults_of_all_files_come_together_the_base_first(tmp_path: Path) -> None:
    write(tmp_path, "schema = 1\nextends = 'none'\nx = 1", "base.toml")
    text = "schema = 1\nextends = 'base.toml'\ny = 1"
    problems = refused(lambda: load(tmp_path, text, "no override"))
    assert [(Path(problem.path or "").name, problem.code, problem.line) for problem in problems] == [
        ("base.toml", "unknown-recipe", 2),
        ("base.toml", "unknown-key", 3),
        ("r.toml", "unknown-key", 3),
        ("--set no override", "bad-override", None),
    ]


@pytest.mark.parametrize(
    ("override", "select", "says"),
    [
        ("a:format=bf16", "a", {"format": "bf16"}),
        ("*:format='bf16'", "*", {"format": "bf16"}),
        ('a: format = "bf16"', "a", {"format": "bf16"}),
        ("a:b:method=cast_direct", "a:b", {"method": "cast_direct"}),
        ("a:method=x.py:f", "a", {"method": "x.py:f"}),
        ("a:parameters={ x = 'a=b:c', y = true }", "a", {"parameters": {"x": "a=b:c", "y": True}}),
        ("{a,b}:non_finite=keep", "{a,b}", {"non_finite": "keep"}),
    ],
)
def test_an_override_is_an_assign_behind_all_files(
    tmp_path: Path, override: str, select: str, says: dict[str, object]
) -> None:
    recipe = load(tmp_path, "schema = 1\n[[assign]]\nselect = '*'\nformat = 'fp32'", override)
    assert recipe.overrides == (override,)
    last = recipe.assigns[-1]
    assert len(recipe.assigns) == 2
    assert [selector.glob.text for selector in last.select] == [select]
    assert last.says == says
    assert (last.place.path, last.place.line) == (f"--set {override}", None)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("format=bf16", "expected SELECT:key=value"),
        ("a:format", "expected SELECT:key=value"),
        ("", "expected SELECT:key=value"),
        ("a=b:format", "expected SELECT:key=value"),
        (":format=bf16", "select is empty"),
        ("a{:format=bf16", "select: 'a{' has a brace at character 2 that is not closed"),
        ("a:format=16", "format must be a string, not an integer"),
        ("a:format=q4", "unknown format 'q4'; did you mean q4_g64_fp16"),
        ("a:format=bf16\n[x]", "unknown format 'bf16\\n[x]'"),
        ("a:rows=[0, 4]", "unknown key 'rows' in --set"),
        ("a:where={rank=2}", "unknown key 'where' in --set"),
        ("a:fromat=bf16", "unknown key 'fromat' in --set; did you mean format? Known: format, layout, "),
        ("a:select=b", "unknown key 'select' in --set. Known: format, "),
        ("a:format=bf16,method=cast_direct", "one --set gives one key: write 'a:method=...' as a --set of its own"),
        ("a:format=bf16, note=x", "unknown format 'bf16, note=x'"),
    ],
)
def test_a_malformed_override(tmp_path: Path, override: str, message: str) -> None:
    (problem,) = refused(lambda: load(tmp_path, "schema = 1", override))
    assert (problem.path, problem.line) == (f"--set {override}", None)
    assert problem.message.startswith(message)


def test_overrides_win_in_their_order(tmp_path: Path) -> None:
    text = "schema = 1\n[[assign]]\nselect = '*'\nformat = 'q4_g64_fp16'"
    parameters = [Parameter("a"), Parameter("b")]
    resolution = solve(tmp_path, text, parameters, "*:format=q6_g64_fp16", "b:format=bf16")
    assert formats(resolution) == {"a": "q6_g64_fp16", "b": "bf16"}
    rule = resolution.decisions["b"][0].rule
    assert rule is not None
    assert (rule.place.path, rule.place.line, rule.select) == ("--set b:format=bf16", None, "b")


def test_an_override_that_selects_nothing_is_an_error_of_its_own(tmp_path: Path) -> None:
    problems = refused(lambda: solve(tmp_path, "schema = 1", [Parameter("a")], "b:format=bf16"))
    assert placed(problems) == [("nothing-matches", None, None)]
    assert problems[0].path == "--set b:format=bf16"
