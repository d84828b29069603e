"""Texts and files that are no recipe: encodings, ends of lines, whole numbers, expressions (recipes.md, Errors)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninfer_convert.recipe import load_recipe
from tests.recipe.support import ASSIGN, load, messages, placed, refused, write


@pytest.mark.parametrize(
    ("data", "line", "column", "message"),
    [
        (b"schema = 1\nname = \n", 2, 8, "not TOML: "),
        (b"schema = 1\n[defaults]\n[defaults]\n", 3, 10, "not TOML: "),
        (b"schema = 1\r\nschema = 1\r\n", 2, 11, "not TOML: "),
        (b"schema = 1\nname = '\xe9'\n", 2, 9, "byte 0xe9 is not UTF-8; a recipe is UTF-8 text"),
        ("schema = 1\nname = 'é".encode() + b"\xff'", 2, 10, "byte 0xff is not UTF-8; a recipe is UTF-8 text"),
        (b"\xff\xfes\x00", 1, 1, "byte 0xff is not UTF-8; a recipe is UTF-8 text"),
        (b"schema = 1\nx = " + b"[" * 100000, None, None, "not TOML that can be read: "),
        (b"schema = " + b"1" * 100000, None, None, "not TOML that can be read: "),
    ],
)
def test_a_text_that_is_no_toml(
    tmp_path: Path, data: bytes, line: int | None, column: int | None, message: str
) -> None:
    path = tmp_path / "r.toml"
    path.write_bytes(data)
    (problem,) = refused(lambda: load_recipe(str(path)))
    assert (problem.path, problem.line, problem.column) == (str(path), line, column)
    assert problem.message.startswith(message)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("format = q6_g64_fp16", "text stands in quotes"),
        ("name = 'x", "a text ends on its line with the quote that it began with"),
        ('name = "x\nextends = "q4"', "a text ends on its line with the quote that it began with"),
        ("[assign]\n[[assign]]", "a table that may be repeated is written with two brackets, as [[assign]], each time"),
        ("[[assign]]\n[assign]", "a table that may be repeated is written with two brackets, as [[assign]], each time"),
    ],
)
def test_what_the_parser_says_comes_with_what_to_do(tmp_path: Path, text: str, hint: str) -> None:
    (problem,) = refused(lambda: load(tmp_path, f"schema = 1\n{text}\n"))
    assert problem.message.startswith("not TOML: ")
    assert hint in problem.message


def test_crlf_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    recipe = load(tmp_path, "\ufeffschema = 1\r\n# comment\r\nname = 'x'\r\n")
    assert recipe.name == "x"


def test_places_count_the_same_behind_crlf_and_a_byte_order_mark(tmp_path: Path) -> None:
    text = "\ufeffschema = 1\r\n\r\n[[assign]]\r\nselect = '*'\r\nformat = 'q4'\r\n"
    assert placed(refused(lambda: load(tmp_path, text))) == [("unknown-format", 5, 10)]
    assert placed(refused(lambda: load(tmp_path, "\ufeffname = 1"))) == [
        ("missing-key", None, None),
        ("wrong-type", 1, 8),
    ]


def test_columns_count_characters(tmp_path: Path) -> None:
    text = "schema = 1\n[[assign]]\nselect = ['日本é', '{']\nformat = 'bf16'"
    assert placed(refused(lambda: load(tmp_path, text))) == [("bad-glob", 3, 18)]


def test_a_folder_and_an_unreadable_file_are_named(tmp_path: Path) -> None:
    write(tmp_path, "schema = 1\nextends = 'd'")
    (tmp_path / "d").mkdir()
    (problem,) = refused(lambda: load_recipe(str(tmp_path / "r.toml")))
    assert (problem.code, problem.line, problem.column) == ("unknown-recipe", 2, 11)
    assert "'d' is a folder, not a file, and no built-in recipe of that name" in problem.message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "schema = 1")

    def deny(_: Path, mode: str) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", deny)
    (problem,) = refused(lambda: load_recipe(str(path)))
    assert str(problem) == f"{path}: cannot be read: Permission denied"


def test_a_device_without_an_end_is_no_recipe() -> None:
    (problem,) = refused(lambda: load_recipe("/dev/zero"))
    assert str(problem) == "/dev/zero: is longer than 67108864 bytes, the most that a recipe may have"


@pytest.mark.parametrize(
    ("text", "place", "name"),
    [
        ("schema = 0x" + "f" * 5000, (1, 10), "schema"),
        (f"schema = 1\n{ASSIGN}rows = [0, {2**63}]\nformat = 'bf16'", (4, 12), "assign.rows"),
        (f"schema = 1\n[metadata]\na = {{ b = [{-(2**63) - 1}] }}", (3, 12), "metadata.a.b"),
    ],
)
def test_whole_numbers_have_64_bits(tmp_path: Path, text: str, place: tuple[int, int], name: str) -> None:
    (problem,) = refused(lambda: load(tmp_path, text))
    assert (problem.line, problem.column) == place
    assert problem.message == f"{name} is a whole number of more than 64 bits, which TOML does not have"


def test_whole_numbers_of_overrides_have_64_bits(tmp_path: Path) -> None:
    (problem,) = refused(lambda: load(tmp_path, "schema = 1", f"*:parameters={{ a = {2**64} }}"))
    assert "parameters.a is a whole number of more than 64 bits" in problem.message


@pytest.mark.parametrize("match", ["(" * 5000 + ")" * 5000, "a{99999999999}"])
def test_an_expression_beyond_the_limits_of_the_engine(tmp_path: Path, match: str) -> None:
    (problem,) = refused(lambda: load(tmp_path, f"schema = 1\n[[rename]]\nmatch = '{match}'\nto = 'b'"))
    assert (problem.code, problem.line, problem.column) == ("bad-expression", 3, 9)


def test_a_value_shown_in_a_message_is_printable(tmp_path: Path) -> None:
    (message,) = messages(tmp_path, 'schema = 1\n"\\u001b[31m" = 1')
    assert "\x1b" not in message
    assert r"\x1b[31m" in message
