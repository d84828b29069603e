"""Which parameters a table speaks of, and what an empty selection says (recipes.md, Selecting)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ninfer_convert.recipe import load_recipe, resolve
from tests.recipe.support import HEAD, Parameter, formats, placed, refused, solve

if TYPE_CHECKING:
    from ninfer_convert.errors import Problem

PARAMETERS = [
    Parameter("norm", (256,)),
    Parameter("w.2", (256, 512), "F32"),
    Parameter("w.10", (64, 96), "F16"),
    Parameter("bank", (4, 128, 192)),
    Parameter("conv", (256, 1, 4), "F64"),
    Parameter("scale", (), "F32"),
    Parameter("ids", (1, 512), "I64"),
    Parameter("mask", (8, 8), "BOOL"),
    Parameter("q", (256, 256), "Q4_K", exact=("gguf_q4_k",)),
]
ALL = frozenset(parameter.name for parameter in PARAMETERS)


def touched(folder: Path, assign: str) -> frozenset[str]:
    """The parameters that an assign applies to; all it does is to say what is so anyway."""
    text = f'{HEAD}BOOL = "int32"\nF64 = "fp32"\n[[assign]]\n{assign}\nnon_finite = "warn"\n'
    decisions = solve(folder, text, PARAMETERS).decisions
    return frozenset(name for name, (piece,) in decisions.items() if piece.rule is not None)


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("rank = 2", {"w.2", "w.10", "ids", "mask", "q"}),
        ("rank = [0, 1, 3]", {"scale", "norm", "bank", "conv"}),
        ("dtype = 'F32'", {"w.2", "scale"}),
        ("dtype = ['F16', 'I64']", {"w.10", "ids"}),
        ("dtype = 'Q4_K'", {"q"}),
        ("dtype = 'floating'", ALL - {"ids", "mask"}),
        ("dtype = 'integer'", {"ids"}),
        ("dtype = 'encoded'", {"q"}),
        ("dtype = ['integer', 'BOOL']", {"ids", "mask"}),
        ("min_rows = 257", {"bank"}),
        ("max_rows = 1", {"norm", "scale", "ids"}),
        ("min_columns = 512", {"w.2", "ids"}),
        ("max_columns = 8", {"conv", "scale", "mask"}),
        ("min_elements = 98304", {"w.2", "bank"}),
        ("multiple_of = 64", {"norm", "w.2", "bank", "ids", "q"}),
        ("rank = [2, 3], min_columns = 128, dtype = 'floating'", {"w.2", "bank", "q"}),
    ],
)
def test_where_filters_by_the_logical_parameter(tmp_path: Path, where: str, names: set[str]) -> None:
    assert touched(tmp_path, f"select = '*'\nwhere = {{ {where} }}") == names


@pytest.mark.parametrize(
    ("layers", "depth", "within"),
    [
        (8, "[0, 0.125]", [0]),
        (8, "[0.875, 1]", [7]),
        (8, "[0, 1]", range(8)),
        (8, "[0.25, 0.5]", [2, 3]),
        (22, "[0, 0.125]", [0, 1, 2]),
        (22, "[0.875, 1.0]", [20, 21]),
        (10, "[0.3, 0.7]", [3, 4, 5, 6]),
        (1, "[0, 0.125]", [0]),
        (1, "[0.5, 1]", []),
        (3, "[0, 0.125]", [0]),
        (3, "[0.875, 1]", []),
    ],
)
@pytest.mark.parametrize("stack", ["model.layers.", "blk.", "transformer.h.", "text/layers/", "encoder.block.", ""])
def test_depth_is_a_range_of_a_stack_of_layers(
    tmp_path: Path, stack: str, layers: int, depth: str, within: Sequence[int]
) -> None:
    names = [f"{stack}{layer}.up.7.weight" for layer in range(layers)]
    outside = ["embed.weight", "norm2.weight", "layers_3.weight", "conv1d", "h3.1x.w"]
    text = f"{HEAD}[[assign]]\nselect = '*'\nwhere.depth = {depth}\nformat = 'fp32'\noptional = true\n"
    decided = formats(solve(tmp_path, text, [Parameter(name) for name in [*names, *outside]]))
    assert [name for name, format in decided.items() if format == "fp32"] == [names[layer] for layer in within]


def test_each_stack_counts_its_own_layers_the_skipped_ones_too(tmp_path: Path) -> None:
    names = [
        f"{stack}.{layer}.w" for stack, count in (("v.blk", 2), ("blk", 4), ("mtp.layers", 1)) for layer in range(count)
    ]
    text = f"{HEAD}[[skip]]\nselect = 'blk.3.w'\nreason = 'r'\n"
    text += "[[assign]]\nselect = '*'\nwhere.depth = [0.5, 1]\nformat = 'fp32'\n"
    decided = formats(solve(tmp_path, text, [Parameter(name) for name in names]))
    assert [name for name, format in decided.items() if format == "fp32"] == ["v.blk.1.w", "blk.2.w"]


def test_depth_counts_logical_names(tmp_path: Path) -> None:
    text = f"{HEAD}[[assign]]\nselect = '*'\nwhere = {{ depth = [0, 0.5], rank = 2 }}\nformat = 'fp32'\n"
    parameters = [Parameter("l.0.a"), Parameter("l.0.b", (8,)), Parameter("l.1.a"), Parameter("l.0000001.c")]
    assert formats(solve(tmp_path, text, parameters)) == {
        "l.0.a": "fp32",
        "l.0.b": "bf16",
        "l.1.a": "bf16",
        "l.0000001.c": "bf16",
    }
    long = f"l.{'9' * 5000}.a"
    assert formats(solve(tmp_path, text, [Parameter("l.0.a"), Parameter(long)]))[long] == "bf16"


PLAIN = ["BF16", "F16", "F32", "F64"]
INTEGERS = ["I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64"]
DECODED = [
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ2_XXS", "IQ2_XS"),
    *("IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "Q1_0"),
    *("NVFP4", "FP8_ROW", "FP8_TENSOR", "FP8_BLOCK", "MXFP4", "MXFP8", "INT4_PACKED", "INT8", "GPTQ", "AWQ"),
]


@pytest.mark.parametrize(
    ("dtype", "admitted"),
    [("floating", [*PLAIN, *DECODED]), ("integer", INTEGERS), ("encoded", DECODED)]
    + [(name, [name]) for name in [*PLAIN, *INTEGERS, "BOOL", *DECODED]],
)
def test_a_dtype_is_a_stored_type_or_a_class_of_them(tmp_path: Path, dtype: str, admitted: list[str]) -> None:
    parameters = [Parameter(name, (256, 256), name) for name in [*PLAIN, *INTEGERS, "BOOL", *DECODED]]
    text = "schema = 1\n[[assign]]\nselect = '*'\nformat = 'fp32'\n"
    text += f"[[assign]]\nselect = '*'\nwhere.dtype = '{dtype}'\nnon_finite = 'keep'\n"
    decisions = solve(tmp_path, text, parameters).decisions
    assert [name for name, (piece,) in decisions.items() if piece.non_finite == "keep"] == admitted


def test_a_list_selects_all_that_any_of_its_globs_matches(tmp_path: Path) -> None:
    assert touched(tmp_path, "select = ['w.*', 'bank', '*.2']") == {"w.2", "w.10", "bank"}


def empty(folder: Path, text: str, *names: str) -> tuple[Problem, ...]:
    return refused(lambda: solve(folder, HEAD + text, [Parameter(name) for name in names]))


def test_every_glob_must_match_something(tmp_path: Path) -> None:
    text = "[[assign]]\nselect = [\n'a*',\n'b*',\n'c']\nformat = 'bf16'\n"
    assert placed(empty(tmp_path, text, "a1", "a2")) == [("nothing-matches", 8, 1), ("nothing-matches", 9, 1)]


def test_a_selection_that_where_empties_is_an_error(tmp_path: Path) -> None:
    (problem,) = empty(tmp_path, "[[assign]]\nselect = 'a*'\nwhere.rank = 3\nformat = 'bf16'\n", "a1", "a2")
    assert placed([problem]) == [("nothing-matches", 7, 1)]
    assert (
        problem.message == "where admits none of the 2 selected parameters; optional = true allows an empty selection"
    )


@pytest.mark.parametrize("table", ["[[assign]]\nformat = 'bf16'", "[[skip]]\nreason = 'r'"])
def test_optional_allows_an_empty_selection(tmp_path: Path, table: str) -> None:
    parameters = [Parameter("a")]
    assert solve(tmp_path, f"{HEAD}{table}\nselect = ['b', 'a']\noptional = true", parameters)
    assert solve(tmp_path, f"{HEAD}{table}\nselect = 'b'\noptional = true", parameters)
    assert placed(refused(lambda: solve(tmp_path, f"{HEAD}{table}\nselect = 'b'", parameters))) == [
        ("nothing-matches", 7, 10)
    ]


@pytest.mark.parametrize(
    ("glob", "hint"),
    [
        ("*q_prj.weight", "did you mean layers.0.q_proj.weight?"),
        ("layer.0.*", "did you mean layers.0."),
        ("embed_token.weight", "did you mean embed_tokens.weight?"),
        ("zzz", "'zzz' matches no parameter; optional = true allows an empty selection"),
    ],
)
def test_the_nearest_names_are_shown(tmp_path: Path, glob: str, hint: str) -> None:
    names = ("layers.0.q_proj.weight", "layers.1.q_proj.weight", "layers.0.k_proj.weight", "embed_tokens.weight")
    (problem,) = empty(tmp_path, f"[[assign]]\nselect = '{glob}'\nformat = 'bf16'", *names)
    assert hint in problem.message


def test_names_of_tensors_are_answered_with_those_of_their_parameters(tmp_path: Path) -> None:
    parameters = [
        Parameter(f"layers/{layer}/{part}", tensors=(f"h.{layer}.qkv.weight",))
        for layer in (0, 1)
        for part in ("query", "key")
    ]
    made = "layers/0/query, layers/0/key, and plan lists all"

    def message(glob: str) -> str:
        (problem,) = refused(lambda: solve(tmp_path, "schema = 1", parameters, f"{glob}:format=bf16"))
        return problem.message.removeprefix(f"'{glob}' matches no parameter, but ")

    own = "parameters have names of their own here: h.0.qkv.weight is"
    assert message("*qkv.weight") == f"2 tensors; {own} {made}"
    assert message("h.0.qkv.weight") == f"a tensor; {own} {made}"


def test_an_override_is_not_told_of_keys_that_it_cannot_give(tmp_path: Path) -> None:
    (problem,) = refused(lambda: solve(tmp_path, "schema = 1", [Parameter("b")], "zzz:format=bf16"))
    assert problem.message == "'zzz' matches no parameter"


def test_of_a_built_in_recipe_another_is_to_be_taken(tmp_path: Path) -> None:
    problems = refused(lambda: resolve(load_recipe("qwen3_6_35b_a3b"), [Parameter("text/layers/0/mlp/up")]))
    assert problems[0].path == "qwen3_6_35b_a3b.toml"
    assert {problem.message.partition(" matches no parameter")[2] for problem in problems} == {
        ", so this recipe does not fit the model: take another"
    }


def test_a_control_character_in_a_name_is_escaped_in_messages(tmp_path: Path) -> None:
    text = "[[assign]]\nselect = \"a\\u001b[2K*\"\nformat = 'bf16'"
    (problem,) = empty(tmp_path, text, "a\x1b[2Jx")
    assert "\x1b" not in problem.message
    assert "a\\x1b[2Jx" in problem.message


def test_ten_thousand_assigns_over_a_thousand_parameters(tmp_path: Path) -> None:
    names = [f"model.layers.{layer}.{kind}.weight" for layer in range(100) for kind in "abcdefghij"]
    text = HEAD + "".join(
        f"[[assign]]\nselect = '*layers.{number % 100}.{'abcdefghij'[number % 7]}.*'\n"
        f"format = '{'q4_g64_fp16' if number < 9000 else 'q6_g64_fp16'}'\n"
        for number in range(10_000)
    )
    resolution = solve(tmp_path, text, [Parameter(name) for name in names])
    expected = {name: "q6_g64_fp16" if name.split(".")[3] in "abcdefg" else "bf16" for name in names}
    assert formats(resolution) == expected
