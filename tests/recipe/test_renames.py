"""`[[rename]]`: logical names from source names (recipes.md, Tables)."""

from __future__ import annotations

from pathlib import Path

from tests.recipe.support import load, placed, refused

NAMES = ["h.0.w", "h.1.w", "h.10.b", "other"]


def renames(*tables: str) -> str:
    return "schema = 1\n" + "".join(f"[[rename]]\n{table}\n" for table in tables)


def test_without_tables_names_stay(tmp_path: Path) -> None:
    assert load(tmp_path, "schema = 1").rename(NAMES) == {name: name for name in NAMES}


def test_groups_fill_the_new_name(tmp_path: Path) -> None:
    text = renames(r"match = 'h\.(\d+)\.(?P<kind>w|b)'" + "\n" + r"to = 'layers/\1/\g<kind>'")
    assert load(tmp_path, text).rename(NAMES) == {
        "h.0.w": "layers/0/w",
        "h.1.w": "layers/1/w",
        "h.10.b": "layers/10/b",
        "other": "other",
    }


def test_the_expression_matches_the_whole_name(tmp_path: Path) -> None:
    text = renames("match = 'h'\nto = 'x'\noptional = true", "match = 'h.0'\nto = 'x'\noptional = true")
    assert load(tmp_path, text).rename(["h.0.w"]) == {"h.0.w": "h.0.w"}


def test_the_first_table_that_matches_renames_and_only_once(tmp_path: Path) -> None:
    recipe = load(tmp_path, renames("match = 'a'\nto = 'b'", "match = '[abc]'\nto = 'd'"))
    assert recipe.rename(["a", "c"]) == {"a": "b", "c": "d"}


def test_a_table_that_renames_nothing_is_an_error(tmp_path: Path) -> None:
    recipe = load(tmp_path, renames("match = 'a'\nto = 'b'", "match = 'a|z'\nto = 'c'"))
    (problem,) = refused(lambda: recipe.rename(["a"]))
    assert placed([problem]) == [("nothing-matches", 5, 3)]
    assert problem.message == (
        "match = 'a|z' renames nothing: no name matches it whole, or earlier tables take those that do; "
        "optional = true allows that"
    )
    recipe = load(tmp_path, renames("match = 'z'\nto = 'c'\noptional = true"))
    assert recipe.rename(["a"]) == {"a": "a"}


def test_two_equal_results_name_both(tmp_path: Path) -> None:
    recipe = load(tmp_path, renames(r"match = 'h\.\d+\.w'" + "\nto = 'w'"))
    (problem,) = refused(lambda: recipe.rename(NAMES))
    assert placed([problem]) == [("same-name", 2, 3)]
    assert problem.message == "h.0.w and h.1.w would both be called w"


def test_a_result_may_not_be_anothers_own_name(tmp_path: Path) -> None:
    recipe = load(tmp_path, renames(r"match = 'h\.0\.w'" + "\nto = 'other'"))
    (problem,) = refused(lambda: recipe.rename(NAMES))
    assert problem.message == "h.0.w and other would both be called other"


def test_an_empty_result_is_an_error(tmp_path: Path) -> None:
    recipe = load(tmp_path, renames("match = 'other(.*)'\nto = '\\1'"))
    (problem,) = refused(lambda: recipe.rename(NAMES))
    assert problem.message == "other is renamed to nothing"


def test_a_tensor_without_a_name_may_get_one_or_stay(tmp_path: Path) -> None:
    recipe = load(tmp_path, renames("match = 'h.*'\nto = 'w'"))
    assert recipe.rename(["", "h.0.w"]) == {"": "", "h.0.w": "w"}
    assert load(tmp_path, renames("match = '()'\nto = 'w'")).rename(["", "other"]) == {"": "w", "other": "other"}


def test_all_faults_of_renaming_come_together(tmp_path: Path) -> None:
    recipe = load(tmp_path, renames("match = 'none'\nto = 'x'", "match = 'h.*'\nto = 'h'"))
    assert placed(refused(lambda: recipe.rename(NAMES))) == [
        ("nothing-matches", 2, 3),
        ("same-name", 5, 3),
        ("same-name", 5, 3),
    ]
