"""Formats, methods, layouts, ranks and shapes that go together, or are refused (recipes.md, Deciding to Quantizing)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ninfer_convert.formats import FORMATS
from ninfer_convert.layouts import LAYOUTS
from ninfer_convert.methods import METHODS
from tests.recipe.support import HEAD, Parameter, formats, placed, refused, solve

if TYPE_CHECKING:
    from ninfer_convert.errors import Problem


def assigned(folder: Path, says: str, *parameters: Parameter, select: str = "*", **flags: bool) -> tuple[Problem, ...]:
    """What is wrong with one assign, whose first field stands on line 7."""
    text = f"{HEAD}[[assign]]\nselect = '{select}'\n{says}\n"
    return refused(lambda: solve(folder, text, parameters or (Parameter("a"),), **flags))


@pytest.mark.parametrize(
    ("format", "method"),
    [
        ("bf16", "cast_direct"),
        ("fp32", "cast_direct"),
        ("int32", "cast_direct"),
        ("q4_g64_fp16", "grouped_absmax"),
        ("q5_g64_fp16", "grouped_absmax"),
        ("q6_g64_fp16", "grouped_absmax"),
        ("q8_g32_fp16", "grouped_absmax"),
        ("fp8_e4m3fn_row_bf16", "fp8_row_maxabs"),
        ("fp8_e4m3fn_row_fp16", "fp8_row_maxabs"),
    ],
)
def test_the_usual_method_and_layout(tmp_path: Path, format: str, method: str) -> None:
    text = f"{HEAD}[[assign]]\nselect = '*'\nformat = '{format}'\n"
    (piece,) = solve(tmp_path, text, [Parameter("a")]).decisions["a"]
    assert piece.method.name == method
    assert format in LAYOUTS[piece.layout].formats


@pytest.mark.parametrize(
    ("stored", "exact", "format", "method"),
    [
        ("Q8_0", ("gguf_q8_0", "q8_g32_fp16"), "q8_g32_fp16", "import_encoded"),
        ("Q2_0", ("gguf_q2_0", "q2_g64_fp16"), "q2_g64_fp16", "import_encoded"),
        ("TQ2_0", ("t2_g128_fp16",), "t2_g128_fp16", "import_encoded"),
        ("NVFP4", ("nvfp4",), "nvfp4", "import_encoded"),
        ("FP8_ROW", ("fp8_e4m3fn_row_bf16",), "fp8_e4m3fn_row_bf16", "import_encoded"),
        ("FP8_ROW", ("fp8_e4m3fn_row_bf16",), "fp8_e4m3fn_row_fp16", "fp8_row_maxabs"),
        ("Q8_0", ("gguf_q8_0", "q8_g32_fp16"), "q6_g64_fp16", "grouped_absmax"),
        ("Q8_0", ("gguf_q8_0", "q8_g32_fp16"), "fp32", "cast_direct"),
    ],
)
def test_what_the_encoding_reaches_exactly_is_imported(
    tmp_path: Path, stored: str, exact: tuple[str, ...], format: str, method: str
) -> None:
    text = f"{HEAD}[[assign]]\nselect = '*'\nformat = '{format}'\n"
    resolution = solve(tmp_path, text, [Parameter("a", stored=stored, exact=exact)], requantize=True)
    assert [piece.method.name for piece in resolution.decisions["a"]] == [method]


@pytest.mark.parametrize("format", ["nvfp4", "q2_g64_fp16", "t2_g128_fp16", "gguf_q4_k", "gguf_iq1_s"])
def test_no_built_in_method_makes_these_from_values(tmp_path: Path, format: str) -> None:
    (problem,) = assigned(tmp_path, f"format = '{format}'", Parameter("a"), Parameter("b"))
    assert placed([problem]) == [("no-method", 7, 10)]
    assert problem.message == (
        f"a, b: no built-in method makes {format} from values: take a grouped format such as q6_g64_fp16, a checkpoint "
        "that holds it already, or a method of your own"
    )


def test_a_method_that_does_not_make_the_format_is_refused_where_it_stands(tmp_path: Path) -> None:
    (problem,) = assigned(tmp_path, "format = 'fp32'\nmethod = 'grouped_absmax'")
    assert placed([problem]) == [("method-format", 8, 10)]
    made = ", ".join(METHODS["grouped_absmax"].formats)
    assert problem.message == f"method grouped_absmax does not make fp32; it makes {made}"


def test_a_method_is_checked_against_the_format_that_is_kept(tmp_path: Path) -> None:
    assert placed(assigned(tmp_path, "method = 'grouped_absmax'")) == [("method-format", 7, 10)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_that_does_not_store_the_format_is_refused_where_it_stands(tmp_path: Path, layout: str) -> None:
    format = "q4_g64_fp16" if "q4_g64_fp16" not in LAYOUTS[layout].formats else "bf16"
    (problem,) = assigned(tmp_path, f"format = '{format}'\nlayout = '{layout}'", Parameter("a"), Parameter("b"))
    assert placed([problem]) == [("layout-format", 8, 10)]
    stored = ", ".join(LAYOUTS[layout].formats)
    assert problem.message == f"{layout} does not store {format}; it stores {stored}"


def test_a_callable_needs_allow_code(tmp_path: Path) -> None:
    (problem,) = assigned(tmp_path, "format = 'q4_g64_fp16'\nmethod = 'x.py:f'", Parameter("a"), Parameter("b"))
    assert placed([problem]) == [("code-not-allowed", 8, 10)]
    assert problem.message == "method x.py:f runs the recipe's own code: pass --allow-code"


def test_a_callable_must_stand_beside_the_recipe(tmp_path: Path) -> None:
    (problem,) = assigned(tmp_path, "format = 'q4_g64_fp16'\nmethod = 'x.py:f'", allow_code=True)
    assert placed([problem]) == [("bad-callable", 8, 10)]
    assert problem.message == f"method x.py:f: {tmp_path / 'x.py'} does not exist"


def test_a_parameter_that_the_method_does_not_take_is_refused(tmp_path: Path) -> None:
    (problem,) = assigned(tmp_path, "format = 'bf16'\nparameters = { imatrix = 'i' }")
    assert placed([problem]) == [("bad-parameter", 8, 14)]
    assert problem.message == "cast_direct takes no parameters, and imatrix is one"


def test_quantizing_again_needs_the_flag(tmp_path: Path) -> None:
    parameters = (Parameter("a", stored="Q8_0", exact=("gguf_q8_0", "q8_g32_fp16")), Parameter("b", stored="FP8_ROW"))
    problems = assigned(tmp_path, "format = 'q4_g64_fp16'", *parameters)
    assert placed(problems) == [("requantize", 7, 10)]
    assert problems[0].message == (
        "a, b (1 Q8_0, 1 FP8_ROW): grouped_absmax would quantize decoded values once more: "
        "say requantize = true, or pass --requantize, if that is meant"
    )
    text = f"{HEAD}[[assign]]\nselect = '*'\nformat = 'q4_g64_fp16'\n"
    assert formats(solve(tmp_path, text, parameters, requantize=True)) == dict.fromkeys("ab", "q4_g64_fp16")


def test_decoding_to_a_direct_format_needs_no_flag(tmp_path: Path) -> None:
    parameters = [Parameter("a", stored="Q8_0", exact=("gguf_q8_0", "q8_g32_fp16"))]
    text = f"{HEAD}[[assign]]\nselect = '*'\nformat = 'bf16'\n"
    assert formats(solve(tmp_path, text, parameters)) == {"a": "bf16"}


@pytest.mark.parametrize("shape", [(), (256,), (2, 2, 64, 128), (2, 2, 2, 64, 128)])
def test_a_two_dimensional_format_refuses_other_ranks_and_proposes_where(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    (problem,) = assigned(
        tmp_path, "format = 'q4_g64_fp16'", Parameter("m"), Parameter("a", shape), Parameter("b", shape)
    )
    assert placed([problem]) == [("rank", 7, 10)]
    assert problem.message == (
        f"a, b: rank {len(shape)}, but q4_g64_fp16 takes matrices of rank 2 and banks of rank 3; "
        "keep others out with where = { rank = [2, 3] }"
    )


def test_direct_formats_take_every_rank_as_it_is(tmp_path: Path) -> None:
    shapes: list[tuple[int, ...]] = [(), (3,), (3, 5), (2, 3, 5), (1152, 3, 2, 14, 14), (1,) * 16]
    parameters = [Parameter(f"p{rank}", shape) for rank, shape in enumerate(shapes)]
    text = f"{HEAD}[[assign]]\nselect = '*'\nformat = 'bf16'\n"
    decisions = solve(tmp_path, text, parameters).decisions
    assert [pieces[0].shape for pieces in decisions.values()] == shapes


def test_rank_seventeen_is_refused(tmp_path: Path) -> None:
    (problem,) = refused(lambda: solve(tmp_path, HEAD, [Parameter("a", (1,) * 17)]))
    assert (problem.code, problem.line) == ("misfit", None)
    assert "rank" in problem.message


def test_banks_fold_into_rows(tmp_path: Path) -> None:
    text = f"{HEAD}[[assign]]\nselect = '*'\nformat = 'q4_g64_fp16'\n"
    (piece,) = solve(tmp_path, text, [Parameter("e", (4, 128, 64))]).decisions["e"]
    assert (piece.shape, piece.rows) == ((512, 64), None)


@pytest.mark.parametrize("columns", [1, 32, 63, 64, 65, 100, 4304])
@pytest.mark.parametrize("format", [name for name, format in FORMATS.items() if name[:2] in ("q4", "q8")])
def test_grouped_formats_take_any_number_of_rows_and_columns(tmp_path: Path, columns: int, format: str) -> None:
    text = f"{HEAD}[[assign]]\nselect = '*'\nformat = '{format}'\n"
    assert formats(solve(tmp_path, text, [Parameter("a", (49, columns))])) == {"a": format}


def test_a_tensor_without_elements_cannot_be_stored_unless_skipped(tmp_path: Path) -> None:
    parameters = [Parameter("a", (0, 256)), Parameter("b")]
    (problem,) = refused(lambda: solve(tmp_path, HEAD, parameters))
    assert (problem.code, problem.line, problem.tensor) == ("zero-elements", None, "a")
    assert problem.message == "a: shape [0, 256] has no elements and cannot be stored; leave it out with [[skip]]"
    text = f"{HEAD}[[skip]]\nselect = 'a'\nreason = 'empty'\n"
    assert formats(solve(tmp_path, text, parameters)) == {"b": "bf16"}


def test_everything_that_is_wrong_comes_at_once_and_in_file_order(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("schema = 1\n[[assign]]\nselect = 'none'\nformat = 'bf16'\n")
    text = (
        "schema = 1\nextends = 'base.toml'\n"
        "[[assign]]\nselect = 'v'\nformat = 'q4_g64_fp16'\n"
        "[[assign]]\nselect = ['m', 'x*']\nrows = [0, 999]\nformat = 'nvfp4'\n"
        "[[assign]]\nselect = 'm'\nformat = 'q4_g64_fp16'\nmethod = 'cast_direct'\nlayout = 'row_scale_v1'\n"
        "[[skip]]\nselect = 'y'\nreason = 'r'\n"
    )
    parameters = [Parameter("v", (256,)), Parameter("m"), Parameter("h", stored="F16")]
    problems = refused(lambda: solve(tmp_path, text, parameters, "z:format=bf16"))
    assert [(Path(problem.path or "").name, problem.code, problem.line) for problem in problems] == [
        ("base.toml", "nothing-matches", 3),
        ("r.toml", "rank", 5),
        ("r.toml", "nothing-matches", 7),
        ("r.toml", "rows-end", 8),
        ("r.toml", "method-format", 13),
        ("r.toml", "layout-format", 14),
        ("r.toml", "nothing-matches", 16),
        ("r.toml", "no-default", None),
        ("--set z:format=bf16", "nothing-matches", None),
    ]
