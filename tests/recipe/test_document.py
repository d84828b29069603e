"""What is refused while a recipe is read, and where: syntax, keys, types, names (recipes.md, Errors)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninfer_convert.recipe import builtin_recipes, load_recipe
from tests.recipe.support import ASSIGN, load, messages, placed, refused


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name = 't'", "a recipe needs the key schema"),
        ("schema = 2", "1:10: schema is 2; this version reads schema = 1"),
        ("schema = true", "1:10: schema must be a whole number, not a boolean"),
        ("schema = 1.0", "1:10: schema must be a whole number, not a float"),
        ("schema = '1'", "1:10: schema must be a whole number, not a string"),
        ("schema = 1\nname = ''", "2:8: name is empty"),
        ("schema = 1\nname = 3", "2:8: name must be a string, not an integer"),
        ("schema = 1\ndescription = ['a']", "2:15: description must be a string, not an array"),
        ("schema = 1\nextends = ''", "2:11: extends is empty"),
        ("schema = 1\narchitecture = {}", "2:16: architecture must be a string, not a table"),
        ("schema = 1\nmetadata = 1", "2:12: metadata must be a table, not an integer"),
        ("schema = 1\n[metadata]\nname = ''", "3:8: metadata.name is empty"),
        (
            "schema = 1\n[metadata]\nwhen = 2024-01-01",
            "3:8: metadata.when is a date or time: write it as a string",
        ),
        (
            "schema = 1\n[metadata]\nx.y = [1, nan]",
            "3:11: metadata.x.y is nan, which the artifact's directory cannot hold",
        ),
        ("schema = 1\n[sources]\nimatrix = 1", "3:11: sources.imatrix must be a string, not an integer"),
        (
            "schema = 1\n[sources]\n'a=b' = 'x'",
            "3:1: a source cannot be called 'a=b': --source NAME=PATH could not name it",
        ),
        (
            "schema = 1\n[defaults]\nF16 = 'q4_g64_fp16'",
            "3:7: unknown direct format 'q4_g64_fp16'. Known: bf16, fp32, int32",
        ),
        ("schema = 1\nassign = 1", "2:10: assign must be an array of tables, [[assign]], not an integer"),
        (
            "schema = 1\n[assign]\nselect = '*'",
            "2:2: [[assign]] is an array of tables: write it with two brackets",
        ),
        ("schema = 1\nassign = [1]", "2:11: [[assign]] must be a table, not an integer"),
        ("schema = 1\n[[assign]]\nformat = 'bf16'", "2:3: [[assign]] needs the key select"),
        (
            "schema = 1\n[[assign]]\nselect = '*'\nwhere = {rank = 2}",
            "2:3: an assign decides something: give one of format, layout, method, parameters, source, tensor, "
            "transpose, requantize, misfit, non_finite, activation_policy",
        ),
        (
            "schema = 1\n[[assign]]\nselect = {}\nformat = 'bf16'",
            "3:10: select must be a string or a list of strings, not a table",
        ),
        ("schema = 1\n[[assign]]\nselect = []\nformat = 'bf16'", "3:10: select is an empty list: give at least one"),
        ("schema = 1\n[[assign]]\nselect = ''\nformat = 'bf16'", "3:10: select is empty"),
        (
            "schema = 1\n[[assign]]\nselect = [\n 'a',\n 5,\n]\nformat = 'bf16'",
            "5:2: select must be a string or a list of strings, not an integer",
        ),
        (
            "schema = 1\n[[assign]]\nselect = ['a', 'b{3..1}']\nformat = 'bf16'",
            "3:16: select: 'b{3..1}' has the range {3..1}, which descends",
        ),
        (f"schema = 1\n{ASSIGN}optional = 1\nformat = 'bf16'", "4:12: optional must be true or false, not an integer"),
        (f"schema = 1\n{ASSIGN}where = 'x'\nformat = 'bf16'", "4:9: where must be a table, not a string"),
        (
            f"schema = 1\n{ASSIGN}where = {{ rank = true }}\nformat = 'bf16'",
            "4:18: where.rank must be a whole number, not a boolean",
        ),
        (
            f"schema = 1\n{ASSIGN}where = {{ rank = [2, '3'] }}\nformat = 'bf16'",
            "4:22: where.rank must be a whole number, not a string",
        ),
        (
            f"schema = 1\n{ASSIGN}where.rank = []\nformat = 'bf16'",
            "4:14: where.rank is an empty list: give at least one",
        ),
        (
            f"schema = 1\n{ASSIGN}where.min_rows = -1\nformat = 'bf16'",
            "4:18: where.min_rows must be at least 0, not -1",
        ),
        (
            f"schema = 1\n{ASSIGN}where.multiple_of = 0\nformat = 'bf16'",
            "4:21: where.multiple_of must be at least 1, not 0",
        ),
        (
            f"schema = 1\n{ASSIGN}where.depth = 0.5\nformat = 'bf16'",
            "4:15: where.depth must be two numbers [begin, end), not a float",
        ),
        (
            f"schema = 1\n{ASSIGN}where.depth = [0, '1']\nformat = 'bf16'",
            "4:19: where.depth must be a number, not a string",
        ),
        (
            f"schema = 1\n{ASSIGN}where.depth = [0.5, 1.5]\nformat = 'bf16'",
            "4:21: where.depth must be between 0 and 1, not 1.5",
        ),
        (
            f"schema = 1\n{ASSIGN}where.depth = [nan, 1]\nformat = 'bf16'",
            "4:16: where.depth must be between 0 and 1, not nan",
        ),
        (
            f"schema = 1\n{ASSIGN}where.depth = [0.5, 0.5]\nformat = 'bf16'",
            "4:15: where.depth = [0.5, 0.5] holds no layer: the end is not part of it",
        ),
        (
            f"schema = 1\n{ASSIGN}rows = 4\nformat = 'bf16'",
            "4:8: rows must be two whole numbers [begin, end), not an integer",
        ),
        (
            f"schema = 1\n{ASSIGN}rows = [1]\nformat = 'bf16'",
            "4:8: rows must be two whole numbers [begin, end), not an array",
        ),
        (f"schema = 1\n{ASSIGN}rows = [-1, 4]\nformat = 'bf16'", "4:9: rows must be at least 0, not -1"),
        (f"schema = 1\n{ASSIGN}rows = [0, true]\nformat = 'bf16'", "4:12: rows must be a whole number, not a boolean"),
        (
            f"schema = 1\n{ASSIGN}rows = [4, 4]\nformat = 'bf16'",
            "4:8: rows = [4, 4] holds no row: the end is not part of it",
        ),
        (f"schema = 1\n{ASSIGN}parameters = 'x'", "4:14: parameters must be a table, not a string"),
        (
            f"schema = 1\n{ASSIGN}parameters = {{ a = [inf] }}",
            "4:21: parameters.a is inf, which the artifact's directory cannot hold",
        ),
        (
            f"schema = 1\n{ASSIGN}non_finite = 'kep'",
            "4:14: unknown non_finite 'kep'; did you mean keep? Known: warn, keep, refuse",
        ),
        (
            f"schema = 1\n{ASSIGN}rows = [0, 1]\ntranspose = true",
            "5:13: transpose is about a whole parameter and cannot stand beside rows",
        ),
        (
            f"schema = 1\n{ASSIGN}activation_policy = 'AllowA8'\nrows = [0, 1]",
            "4:21: activation_policy is about a whole parameter and cannot stand beside rows",
        ),
        (f"schema = 1\n{ASSIGN}requantize = 'yes'", "4:14: requantize must be true or false, not a string"),
        (f"schema = 1\n{ASSIGN}source = ''", "4:10: source is empty"),
        (
            f"schema = 1\n{ASSIGN}activation_policy = 'AllowA6'",
            "4:21: unknown activation_policy 'AllowA6'; did you mean AllowA8 or AllowA4? "
            "Known: A16Only, AllowA8, AllowA4",
        ),
        (
            f"schema = 1\n{ASSIGN}tensor = 'a.\\2'",
            "4:10: tensor refers to \\2, and the glob has fewer stars",
        ),
        (
            "schema = 1\n[[assign]]\nselect = ['*', 'b']\ntensor = 'a.\\1'",
            "4:10: tensor refers to \\1, which only a select of one glob captures",
        ),
        (
            "schema = 1\ncomponents = 'text'",
            "2:14: components must be a list of components, not a string",
        ),
        ("schema = 1\ncomponents = []", "2:14: components is an empty list: give at least one"),
        ("schema = 1\ncomponents = ['text', 'mtp', 'text']", "2:30: components lists text twice"),
        (
            "schema = 1\n[[group]]\nselect = ['a*', 'b']",
            "2:3: the globs of a [[group]] have equally many stars, not 0 and 1",
        ),
        ("schema = 1\n[[group]]\nselect = 'a{b*,c}'", "3:10: select: a * within braces cannot be a capture"),
        ("schema = 1\n[[group]]\nselect = '**********'", "3:10: select has 10 stars; 9 are the most"),
        (
            "schema = 1\n[[group]]\nselect = 'a'\nshape = 4",
            "4:9: shape must be a list of whole numbers, not an integer",
        ),
        ("schema = 1\n[[group]]\nselect = 'a'\nshape = [4, 0]", "4:13: shape must be at least 1, not 0"),
        ("schema = 1\n[[separate]]\noptional = true", "2:3: [[separate]] needs the key select"),
        ("schema = 1\n[[share]]\nparameter = 'a'", "2:3: [[share]] needs the key with"),
        (
            "schema = 1\n[[share]]\nparameter = 'a'\nwith = 'b*'",
            "2:3: the globs of a [[share]] have equally many stars, not 0 and 1",
        ),
        (
            "schema = 1\n[[share]]\nparameter = 'a?'\nwith = 'b'",
            "3:13: parameter is a name with captured texts for its stars: escape ? and { by a backslash",
        ),
        ("schema = 1\n[[use]]\nparameter = 'a'", "2:3: [[use]] needs the key input"),
        (
            "schema = 1\n[[use]]\nparameter = 'a*b*'\ninput = 'c*'",
            "2:3: the globs of a [[use]] have equally many stars, not 1 and 2",
        ),
        (
            "schema = 1\n[[use]]\nparameter = 'a*b*'\ninput = 'c'\nauxiliaries.hadamard_signs = 's/*'",
            "2:3: the globs of a [[use]] have equally many stars, not 1 and 2",
        ),
        (
            "schema = 1\n[[use]]\nparameter = 'a'\ninput = 'c'\nauxiliaries = { activation_input_divisor = true }",
            "5:44: auxiliaries.activation_input_divisor must be a parameter's name or a positive number, not a boolean",
        ),
        (
            "schema = 1\n[[use]]\nparameter = 'a'\ninput = 'c'\nauxiliaries = { activation_input_divisor = -1.5 }",
            "5:44: auxiliaries.activation_input_divisor must be positive and finite in binary32, not -1.5",
        ),
        (
            "schema = 1\n[[use]]\nparameter = 'a'\ninput = 'c'\nauxiliaries = { activation_input_divisor = 1e39 }",
            "5:44: auxiliaries.activation_input_divisor must be positive and finite in binary32, not 1e+39",
        ),
        ("schema = 1\n[[resource]]\ncomponent = 'text'\nrole = 'r'", "2:3: [[resource]] needs the key path"),
        (
            "schema = 1\n[[resource]]\ncomponent = 'text'\nrole = 'r'\npath = '/etc/passwd'",
            "5:8: path is absolute: name a file inside the checkpoint's folder",
        ),
        (
            "schema = 1\n[[resource]]\ncomponent = 'text'\nrole = 'r'\npath = 'C:x'",
            "5:8: path is absolute: name a file inside the checkpoint's folder",
        ),
        (
            "schema = 1\n[[resource]]\ncomponent = 'text'\nrole = 'r'\npath = 'a/../../b'",
            "5:8: path leaves the checkpoint's folder by ..",
        ),
        ("schema = 1\n[[skip]]\nselect = 'a'", "2:3: [[skip]] needs the key reason"),
        ("schema = 1\n[[skip]]\nselect = 'a'\nreason = ''", "4:10: reason is empty"),
        ("schema = 1\n[[rename]]\nto = 'a'", "2:3: [[rename]] needs the key match"),
        (
            "schema = 1\n[[rename]]\nmatch = 'a('\nto = 'a'",
            "3:9: match is not a regular expression: missing ), unterminated subpattern at position 1",
        ),
        (
            "schema = 1\n[[rename]]\nmatch = '(?x)a # (b)'\nto = '\\1'",
            "4:6: to cannot be filled from match: invalid group reference 1 at position 1",
        ),
        (
            "schema = 1\n[[rename]]\nmatch = 'a'\nto = '\\g<n>'",
            "4:6: to cannot be filled from match: unknown group name 'n'",
        ),
    ],
)
def test_a_fault_its_place_and_its_message(tmp_path: Path, text: str, expected: str) -> None:
    assert messages(tmp_path, text) == [expected]


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("schema = 1\nnmae = 't'", "2:1: unknown key 'nmae' in a recipe; did you mean name?"),
        ("schema = 1\n[groups]", "2:2: unknown key 'groups' in a recipe; did you mean group?"),
        (f"schema = 1\n{ASSIGN}formt = 'bf16'", "4:1: unknown key 'formt' in [[assign]]; did you mean format?"),
        (
            f"schema = 1\n{ASSIGN}format = 'bf16'\n[assign.where]\nmin_colums = 4",
            "6:1: unknown key 'min_colums' in where; did you mean min_columns",
        ),
        ("schema = 1\n[[skip]]\nselect = 'a'\nreason = 'b'\nwhere = {}", "5:1: unknown key 'where' in [[skip]]"),
        (
            "schema = 1\n[[rename]]\nmatch = 'a'\nto = 'b'\nselect = 'c'",
            "5:1: unknown key 'select' in [[rename]]",
        ),
        (
            "schema = 1\n[defaults]\nF61 = 'fp32'",
            "3:1: unknown stored type 'F61' in [defaults]; did you mean F64 or F16?",
        ),
        ("schema = 1\n[defaults]\nF8_E4M3 = 'fp32'", "3:1: unknown stored type 'F8_E4M3' in [defaults]"),
        (f"schema = 1\n{ASSIGN}format = 'q4'", "4:10: unknown format 'q4'; did you mean q4_g64_fp16"),
        (f"schema = 1\n{ASSIGN}format = 'Q4_K'", "4:10: unknown format 'Q4_K'"),
        (
            f"schema = 1\n{ASSIGN}layout = 'row_split'",
            "4:10: unknown layout 'row_split'; did you mean row_split_k128_v1",
        ),
        (f"schema = 1\n{ASSIGN}layout = 'raw_bytes_v1'", "4:10: unknown layout 'raw_bytes_v1'"),
        (f"schema = 1\n{ASSIGN}method = 'absmax'", "4:10: unknown method 'absmax'; did you mean grouped_absmax"),
        (f"schema = 1\n{ASSIGN}method = 'x.py:'", "4:10: unknown method 'x.py:'"),
        (f"schema = 1\n{ASSIGN}format = 'nvfp4'\nmisfit = 'bf61'", "5:10: unknown format 'bf61'; did you mean bf16"),
        ("schema = 1\n[proposal]\nsource = 'ranking'", "2:2: unknown key 'proposal' in a recipe"),
        ("schema = 1\n[[group]]\nselect = 'a'\nwhere = {}", "4:1: unknown key 'where' in [[group]]"),
        ("schema = 1\n[[share]]\nparameter = 'a'\nwith = 'b'\nto = 'c'", "5:1: unknown key 'to' in [[share]]"),
        ("schema = 1\n[[use]]\nparameter = 'a'\ninput = 'b'\npolicy = 'c'", "5:1: unknown key 'policy' in [[use]]"),
        (
            f"schema = 1\n{ASSIGN}format = 'bf16'\nwhere.dtype = ['BF16', 'bfloat']",
            "5:24: unknown type 'bfloat'; did you mean float",
        ),
    ],
)
def test_an_unknown_word_its_place_and_the_nearest(tmp_path: Path, text: str, begin: str) -> None:
    (message,) = messages(tmp_path, text)
    assert message.startswith(begin)
    assert "Known: " in message


def test_all_faults_of_a_file_come_together_and_in_its_order(tmp_path: Path) -> None:
    text = (
        "nonsense = 1\n"
        "[[assign]]\n"
        "select = '{'\n"
        "format = 'q4'\n"
        "where = { rank = 'x', min_rows = true, sort = 1 }\n"
        "[[skip]]\n"
        "[defaults]\n"
        "F16 = 'f16'\n"
    )
    assert placed(refused(lambda: load(tmp_path, text))) == [
        ("missing-key", None, None),
        ("unknown-key", 1, 1),
        ("bad-glob", 3, 10),
        ("unknown-format", 4, 10),
        ("wrong-type", 5, 18),
        ("wrong-type", 5, 34),
        ("unknown-key", 5, 40),
        ("missing-key", 6, 3),
        ("missing-key", 6, 3),
        ("unknown-direct-format", 8, 7),
    ]


def test_the_builtin_recipes_read_without_a_fault() -> None:
    for builtin in builtin_recipes():
        load_recipe(str(builtin.path))
