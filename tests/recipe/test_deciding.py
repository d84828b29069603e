"""Which table decides, and what an untouched parameter becomes (recipes.md, Deciding)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninfer_convert.recipe import Rule
from ninfer_convert.recipe.model import Place
from tests.recipe.support import HEAD, Parameter, formats, placed, refused, solve

TWO = [Parameter("a"), Parameter("b")]


def assigns(*tables: str) -> str:
    return HEAD + "".join(f"[[assign]]\n{table}\n" for table in tables)


def warned(folder: Path, text: str, parameters: list[Parameter], *overrides: str) -> list[tuple[str, int | None]]:
    warnings = solve(folder, text, parameters, *overrides).warnings
    return [(warning.code, warning.line) for warning in warnings if warning.code != "untouched"]


# The last that speaks.


@pytest.mark.parametrize("first", ["*", "a"])
def test_the_last_that_speaks_decides_wide_or_narrow(tmp_path: Path, first: str) -> None:
    second = "a" if first == "*" else "*"
    text = assigns(f"select = '{first}'\nformat = 'q8_g32_fp16'", f"select = '{second}'\nformat = 'q4_g64_fp16'")
    others = "q8_g32_fp16" if first == "*" else "q4_g64_fp16"
    assert formats(solve(tmp_path, text, TWO)) == {"a": "q4_g64_fp16", "b": others}


def test_the_rule_is_the_one_that_gave_the_format(tmp_path: Path) -> None:
    text = assigns(
        "select = '*'\nformat = 'q4_g64_fp16'",
        "select = ['a', 'b']\nmethod = 'grouped_absmax'",
        "select = 'a'\nlayout = 'auto'",
    )
    path = str(tmp_path / "r.toml")
    for pieces in solve(tmp_path, text, TWO).decisions.values():
        assert pieces[0].rule == Rule(Place(path, 5, 3), "*")


def test_without_a_format_the_rule_is_the_last_that_spoke(tmp_path: Path) -> None:
    text = assigns("select = ['a', '?']\nmethod = 'cast_direct'", "select = 'a'\nlayout = 'auto'")
    decisions = solve(tmp_path, text, [*TWO, Parameter("untouched")]).decisions
    lines = {
        name: (piece.rule.place.line, piece.rule.select) if piece.rule else None for name, (piece,) in decisions.items()
    }
    assert lines == {"a": (8, "a"), "b": (5, "a, ?"), "untouched": None}


def test_a_rule_equal_to_the_default_decides_all_the_same(tmp_path: Path) -> None:
    (piece,) = solve(tmp_path, assigns("select = 'a'\nformat = 'bf16'"), TWO).decisions["a"]
    assert piece.rule is not None


def test_a_rule_that_says_what_holds_already_stands_against_the_wider_ones_before_it(tmp_path: Path) -> None:
    parameters = [Parameter("l.0.attn.q_proj"), Parameter("l.0.attn.k_proj"), Parameter("l.0.mlp")]
    default, wider, own = (
        "select = '*'\nformat = 'q4_g64_fp16'",
        "select = '*attn*'\nformat = 'q6_g64_fp16'",
        "select = '*.q_proj'\nformat = 'q4_g64_fp16'",
    )
    for order, format in (((default, wider, own), "q4_g64_fp16"), ((default, own, wider), "q6_g64_fp16")):
        (piece,) = solve(tmp_path, assigns(*order), parameters).decisions["l.0.attn.q_proj"]
        assert (piece.format, piece.rule and piece.rule.place.line) == (format, 11)


def test_a_format_takes_back_layout_method_and_parameters(tmp_path: Path) -> None:
    text = assigns(
        "select = '*'\nformat = 'bf16'\nlayout = 'contiguous_le_v1'\nmethod = 'cast_direct'\nparameters = {}",
        "select = 'a'\nformat = 'q4_g64_fp16'",
    )
    (piece,) = solve(tmp_path, text, TWO).decisions["a"]
    assert (piece.layout, piece.method.name) == ("row_split_k128_v1", "grouped_absmax")


def test_a_format_leaves_its_own_assigns_method_and_later_ones(tmp_path: Path) -> None:
    text = assigns(
        "select = 'a'\nformat = 'bf16'\nlayout = 'row_scale_v1'\nmethod = 'grouped_absmax'",
        "select = 'a'\nmethod = 'cast_direct'",
    )
    problems = refused(lambda: solve(tmp_path, text, TWO))
    assert placed(problems) == [("layout-format", 8, 10)]


def test_a_method_alone_keeps_the_format(tmp_path: Path) -> None:
    text = assigns("select = '*'\nformat = 'q6_g64_fp16'", "select = 'a'\nmethod = 'grouped_absmax'")
    (piece,) = solve(tmp_path, text, TWO).decisions["a"]
    assert (piece.format, piece.method.name) == ("q6_g64_fp16", "grouped_absmax")


def test_non_finite_survives_a_later_format(tmp_path: Path) -> None:
    text = assigns("select = '*'\nnon_finite = 'keep'", "select = '*'\nformat = 'fp32'")
    (piece,) = solve(tmp_path, text, TWO).decisions["a"]
    assert piece.non_finite == "keep"


@pytest.mark.parametrize("said", ["warn", "keep", "refuse"])
def test_quantized_pieces_always_refuse_non_finite_values(tmp_path: Path, said: str) -> None:
    text = assigns(f"select = '*'\nnon_finite = '{said}'", "select = 'a'\nformat = 'q4_g64_fp16'")
    decisions = solve(tmp_path, text, TWO).decisions
    assert decisions["a"][0].non_finite == "refuse"
    assert decisions["b"][0].non_finite == said


def test_non_finite_is_warn_by_default(tmp_path: Path) -> None:
    assert solve(tmp_path, HEAD, TWO).decisions["a"][0].non_finite == "warn"


# Rows.


def test_cut_points_of_all_assigns_divide_and_equal_neighbours_are_one(tmp_path: Path) -> None:
    text = assigns(
        "select = 'a'\nrows = [0, 100]\nformat = 'q4_g64_fp16'",
        "select = 'a'\nrows = [50, 200]\nformat = 'q6_g64_fp16'",
        "select = 'a'\nrows = [150, 180]\nformat = 'q6_g64_fp16'",
        "select = 'a'\nrows = [190, 210]\nformat = 'bf16'",
    )
    assert formats(solve(tmp_path, text, TWO))["a"] == [
        ((0, 50), "q4_g64_fp16"),
        ((50, 190), "q6_g64_fp16"),
        ((190, 256), "bf16"),
    ]


def test_pieces_that_come_to_the_same_are_no_cut(tmp_path: Path) -> None:
    text = assigns("select = 'a'\nrows = [0, 100]\nformat = 'bf16'", "select = 'b'\nrows = [0, 256]\nformat = 'fp32'")
    decisions = solve(tmp_path, text, TWO).decisions
    assert [(piece.rows, piece.shape) for piece in decisions["a"]] == [(None, (256, 256))]
    assert [(piece.rows, piece.format) for piece in decisions["b"]] == [(None, "fp32")]


def test_a_region_has_no_precedence(tmp_path: Path) -> None:
    text = assigns("select = 'a'\nrows = [0, 10]\nformat = 'q4_g64_fp16'", "select = 'a'\nformat = 'q8_g32_fp16'")
    assert formats(solve(tmp_path, text, TWO))["a"] == "q8_g32_fp16"


def test_neighbours_that_differ_in_any_field_stay_apart(tmp_path: Path) -> None:
    text = assigns("select = 'a'\nrows = [0, 10]\nnon_finite = 'keep'")
    assert formats(solve(tmp_path, text, TWO))["a"] == [((0, 10), "bf16"), ((10, 256), "bf16")]


def test_rows_of_a_bank_are_experts_and_fold(tmp_path: Path) -> None:
    text = assigns("select = 'e'\nrows = [1, 3]\nformat = 'q4_g64_fp16'")
    pieces = solve(tmp_path, text, [Parameter("e", (4, 256, 192))]).decisions["e"]
    assert [(piece.rows, piece.shape) for piece in pieces] == [
        ((0, 1), (1, 256, 192)),
        ((1, 3), (512, 192)),
        ((3, 4), (1, 256, 192)),
    ]


def test_rows_of_a_vector_are_elements(tmp_path: Path) -> None:
    text = assigns("select = 'v'\nrows = [1, 3]\nformat = 'fp32'")
    assert formats(solve(tmp_path, text, [Parameter("v", (4,))]))["v"] == [
        ((0, 1), "bf16"),
        ((1, 3), "fp32"),
        ((3, 4), "bf16"),
    ]


def test_rows_beyond_the_end_and_of_a_scalar_are_errors(tmp_path: Path) -> None:
    parameters = [Parameter("a"), Parameter("b", (8, 8)), Parameter("c", (8, 4)), Parameter("s", ())]
    problems = refused(lambda: solve(tmp_path, assigns("select = '*'\nrows = [4, 9]\nformat = 'bf16'"), parameters))
    assert placed(problems) == [("rows-end", 7, 8), ("rows-end", 7, 8)]
    assert [problem.message for problem in problems] == [
        "b, c: rows = [4, 9] ends beyond the first axis, which is 8 long",
        "s: a scalar has no rows",
    ]


# Untouched.


@pytest.mark.parametrize(
    ("stored", "exact", "format", "method"),
    [
        ("BF16", (), "bf16", "cast_direct"),
        ("F32", (), "fp32", "cast_direct"),
        ("I32", (), "int32", "cast_direct"),
        ("Q4_K", ("gguf_q4_k",), "gguf_q4_k", "import_encoded"),
        ("Q8_0", ("gguf_q8_0", "q8_g32_fp16"), "gguf_q8_0", "import_encoded"),
        ("FP8_ROW", ("fp8_e4m3fn_row_bf16",), "fp8_e4m3fn_row_bf16", "import_encoded"),
        ("F16", (), "fp32", "cast_direct"),
        ("I64", (), "int32", "cast_direct"),
    ],
)
def test_untouched_parameters_keep_their_words_or_take_a_default(
    tmp_path: Path, stored: str, exact: tuple[str, ...], format: str, method: str
) -> None:
    identical = exact[0] if exact else None
    (piece,) = solve(tmp_path, HEAD, [Parameter("a", stored=stored, exact=exact, identical=identical)]).decisions["a"]
    assert (piece.format, piece.method.name, piece.rule) == (format, method, None)


@pytest.mark.parametrize(
    ("parameter", "default"),
    [
        (Parameter("a", (512,), "Q4_K", ("gguf_q4_k",)), "bf16"),
        (Parameter("a", (2, 2, 2, 256), "Q4_K", ("gguf_q4_k",)), "bf16"),
        (Parameter("a", (8, 256), "TQ1_0", ("t2_g128_fp16",)), "fp32"),
        (Parameter("a", (128, 256), "FP8_ROW", ()), "bf16"),
        (Parameter("a", (100, 64), "NVFP4", ("nvfp4",), identical="nvfp4"), "bf16"),
        (Parameter("a", (2, 64, 64), "NVFP4", ("nvfp4",), identical="nvfp4", divisors=(2.0, 3.0)), "bf16"),
        (Parameter("a", (128, 64), "NVFP4", ("nvfp4",)), "bf16"),
    ],
)
def test_encoded_words_that_cannot_be_kept_need_a_default(tmp_path: Path, parameter: Parameter, default: str) -> None:
    assert placed(refused(lambda: solve(tmp_path, HEAD, [parameter]))) == [("no-default", None, None)]
    resolution = solve(tmp_path, f'{HEAD}{parameter.stored} = "{default}"', [parameter])
    assert formats(resolution) == {"a": default}
    assert resolution.defaults_applied == {parameter.stored: 1}


def test_defaults_are_counted_and_apply_to_nothing_else(tmp_path: Path) -> None:
    parameters = [
        Parameter("a", stored="F16"),
        Parameter("b", stored="F16"),
        Parameter("c"),
        Parameter("d", stored="I64"),
    ]
    resolution = solve(tmp_path, f"{HEAD}[[assign]]\nselect = 'a'\nformat = 'bf16'", parameters)
    assert formats(resolution) == {"a": "bf16", "b": "fp32", "c": "bf16", "d": "int32"}
    assert resolution.defaults_applied == {"F16": 1, "I64": 1}


def test_a_cut_parameter_takes_its_default_once(tmp_path: Path) -> None:
    text = assigns("select = 'a'\nrows = [10, 20]\nformat = 'q4_g64_fp16'")
    resolution = solve(tmp_path, text, [Parameter("a", stored="F16")])
    assert formats(resolution)["a"] == [((0, 10), "fp32"), ((10, 20), "q4_g64_fp16"), ((20, 256), "fp32")]
    assert resolution.defaults_applied == {"F16": 1}


def test_the_architectures_direct_format_comes_before_the_stored_words(tmp_path: Path) -> None:
    parameters = [Parameter("a", stored="F16", direct="fp32"), Parameter("b", stored="F32", direct="bf16")]
    resolution = solve(tmp_path, "schema = 1", parameters)
    assert formats(resolution) == {"a": "fp32", "b": "bf16"}
    assert resolution.defaults_applied == {}
    assert resolution.decisions["b"][0].method.name == "cast_direct"


@pytest.mark.parametrize(
    ("stored", "line"),
    [
        ("F16", 'F16 = "fp32"'),
        ("F64", 'F64 = "fp32"'),
        ("I64", 'I64 = "int32"'),
        ("BOOL", 'BOOL = "int32"'),
        ("U8", 'U8 = "int32"'),
        ("TQ1_0", 'TQ1_0 = "bf16"'),
        ("Q5_1", 'Q5_1 = "bf16"'),
        ("FP8_BLOCK", 'FP8_BLOCK = "bf16"'),
    ],
)
def test_what_has_no_format_of_its_own_says_which_line_to_add(tmp_path: Path, stored: str, line: str) -> None:
    parameters = [Parameter(name, stored=stored) for name in "abcde"]
    (problem,) = refused(lambda: solve(tmp_path, "schema = 1", parameters))
    assert (problem.code, problem.path, problem.line, problem.tensor) == (
        "no-default",
        str(tmp_path / "r.toml"),
        None,
        "a",
    )
    assert problem.message == (
        f"a, b, c and 2 more: no assign gives a format, and none keeps what is stored as {stored}; "
        f"add {line} under [defaults], or assign one"
    )
    (piece,) = solve(tmp_path, f"schema = 1\n[defaults]\n{line}", parameters).decisions["a"]
    assert line == f'{stored} = "{piece.format}"'


def test_a_default_that_never_applies_is_a_warning(tmp_path: Path) -> None:
    resolution = solve(tmp_path, "schema = 1\n[defaults]\nBF16 = 'fp32'", TWO)
    assert formats(resolution) == {"a": "bf16", "b": "bf16"}
    warning = next(warning for warning in resolution.warnings if warning.code == "idle-default")
    assert (warning.line, warning.column) == (3, 8)
    assert warning.message == (
        "BF16 under [defaults] has no effect: BF16 is kept as bf16 where no assign decides; "
        'assign with where = { dtype = "BF16" } instead'
    )


def test_a_share_of_untouched_elements_above_a_fifth_names_the_largest(tmp_path: Path) -> None:
    parameters = [Parameter("small", (3, 64)), Parameter("large", (6, 64)), Parameter("rest", (27, 64))]
    text = assigns("select = 'rest'\nformat = 'bf16'")
    resolution = solve(tmp_path, text, parameters)
    assert resolution.untouched == 0.25
    (warning,) = resolution.warnings
    assert (warning.code, warning.path, warning.line) == ("untouched", str(tmp_path / "r.toml"), None)
    assert warning.message == (
        "no assign decides 25% of the elements; the largest parameters among them are large, small"
    )


def test_a_fifth_is_no_warning_and_regions_count_their_elements(tmp_path: Path) -> None:
    text = assigns("select = 'a'\nrows = [0, 8]\nformat = 'fp32'")
    resolution = solve(
        tmp_path,
        text,
        [Parameter("a", (10, 64)), Parameter("s", (1000, 64))],
    )
    assert resolution.untouched == 1002 / 1010
    resolution = solve(tmp_path, text, [Parameter("a", (10, 64))])
    assert resolution.untouched == 0.2
    assert resolution.warnings == ()


def test_nothing_at_all_is_not_untouched(tmp_path: Path) -> None:
    assert solve(tmp_path, "schema = 1", []).untouched == 0


# Skips.


def test_skips_are_applied_last_and_recorded(tmp_path: Path) -> None:
    text = f"{HEAD}[[skip]]\nselect = 'a'\nreason = 'buffer'\n[[assign]]\nselect = '*'\nformat = 'fp32'\n"
    text += "[[skip]]\nselect = ['a', 's*']\nreason = 'other'\n"
    resolution = solve(tmp_path, text, [Parameter("s10"), Parameter("a"), Parameter("b"), Parameter("s9")])
    assert list(resolution.decisions) == ["b"]
    assert [(skip.name, skip.reason, skip.rule.place.line) for skip in resolution.skipped] == [
        ("s10", "other", 11),
        ("a", "buffer", 5),
        ("s9", "other", 11),
    ]
    assert resolution.untouched == 0


def test_what_is_skipped_raises_no_error(tmp_path: Path) -> None:
    text = (
        "schema = 1\n[[skip]]\nselect = '*'\nreason = 'r'\n[[assign]]\nselect = '*'\nrows = [0, 9]\nformat = 'nvfp4'\n"
    )
    parameters = [Parameter("a", (8,)), Parameter("b", (0, 8)), Parameter("c", stored="F16")]
    assert solve(tmp_path, text, parameters).decisions == {}


def test_an_assign_whose_every_match_is_skipped_is_a_warning(tmp_path: Path) -> None:
    text = assigns(
        "select = 'a'\nformat = 'fp32'",
        "select = '*'\nformat = 'bf16'",
        "select = 'none'\noptional = true\nformat = 'bf16'",
    )
    text += "[[skip]]\nselect = 'a'\nreason = 'r'\n"
    resolution = solve(tmp_path, text, TWO)
    (warning,) = resolution.warnings
    assert (warning.code, warning.line, warning.column) == ("all-skipped", 5, 3)
    assert warning.message == "every parameter that this assign selects is skipped"


# Wholly overridden.


def test_an_assign_wholly_overridden_in_its_file_is_a_warning(tmp_path: Path) -> None:
    text = assigns("select = '?'\nformat = 'fp32'", "select = 'a'\nformat = 'bf16'", "select = 'b'\nformat = 'bf16'")
    resolution = solve(tmp_path, text, TWO)
    (warning,) = resolution.warnings
    assert (warning.code, warning.line, warning.column) == ("overridden", 5, 3)
    assert warning.message == "later assigns of this file take back everything that this one decides"


@pytest.mark.parametrize(
    ("first", "second", "is_overridden"),
    [
        ("format = 'fp32'", "format = 'bf16'", True),
        ("method = 'cast_direct'", "format = 'bf16'", True),
        ("parameters = {}", "format = 'bf16'", True),
        ("layout = 'auto'", "layout = 'auto'", True),
        ("non_finite = 'keep'", "format = 'bf16'", False),
        ("format = 'fp32'\nnon_finite = 'keep'", "format = 'bf16'", False),
        ("format = 'fp32'", "method = 'cast_direct'", False),
        ("format = 'fp32'", "rows = [0, 255]\nformat = 'bf16'", False),
        ("rows = [8, 9]\nformat = 'fp32'", "rows = [0, 255]\nformat = 'bf16'", True),
    ],
)
def test_overridden_means_every_field_everywhere(tmp_path: Path, first: str, second: str, is_overridden: bool) -> None:
    text = assigns(f"select = '*'\n{first}", f"select = '*'\n{second}")
    assert warned(tmp_path, text, TWO) == ([("overridden", 5)] if is_overridden else [])


def test_another_files_assigns_and_overrides_take_back_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("schema = 1\n[[assign]]\nselect = '*'\nformat = 'fp32'\n")
    text = "extends = 'base.toml'\n" + assigns("select = '*'\nformat = 'bf16'")
    assert warned(tmp_path, text, TWO, "*:format=q4_g64_fp16") == []
