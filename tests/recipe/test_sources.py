"""`source`, `tensor`, `transpose`, `requantize`, `misfit` (recipes.md, Skips, Ranks, Quantizing again, Misfit)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ninfer_convert.recipe import Resolution, Subject, resolve
from tests.recipe.support import HEAD, Parameter, formats, load, placed, refused, solve

if TYPE_CHECKING:
    from ninfer_convert.errors import Problem

SOURCES = '[sources]\nquantized = "the codes"\nother = "unused"\n'

STORED: Mapping[str | None, Mapping[str, Parameter]] = {
    None: {name: Parameter(name) for name in ("a", "b", "l.0.w", "l.1.w")} | {"t": Parameter("t", (64, 256))},
    "quantized": {
        "a": Parameter("a", stored="Q8_0", exact=("gguf_q8_0", "q8_g32_fp16")),
        "b": Parameter("b", (8, 8)),
        "x.0": Parameter("x.0", stored="F32"),
        "x.1": Parameter("x.1", stored="F32"),
        "t": Parameter("t", (256, 64)),
    },
}


def locate(parameter: Subject, source: str | None, tensor: str | None) -> Subject | str:
    found = STORED[source].get(tensor or parameter.name)
    return replace(found, name=parameter.name) if found else f"there is no tensor {tensor or parameter.name}"


def run(folder: Path, text: str, *, sources: Sequence[str] = ("quantized",)) -> Resolution:
    recipe = load(folder, HEAD + SOURCES + text)
    parameters = list(STORED[None].values())
    return resolve(recipe, parameters, sources=sources, locate=locate, requantize=False)


def problems(folder: Path, text: str, **given: Sequence[str]) -> list[str]:
    return [
        f"{problem.line}:{problem.column}: {problem.message}" for problem in refused(lambda: run(folder, text, **given))
    ]


def assign(select: str, *says: str) -> str:
    return "\n".join(["[[assign]]", f"select = {select}", *says, ""])


def test_a_source_alone_takes_the_same_name_there(tmp_path: Path) -> None:
    (piece,) = run(tmp_path, assign("'a'", "source = 'quantized'", "format = 'q8_g32_fp16'")).decisions["a"]
    assert (piece.source, piece.tensor, piece.method.name) == ("quantized", None, "import_encoded")


def test_an_untouched_format_is_that_of_the_source(tmp_path: Path) -> None:
    resolution = run(tmp_path, assign("'a'", "source = 'quantized'"))
    assert formats(resolution)["a"] == "gguf_q8_0"


def test_a_source_survives_a_later_format_and_a_rule_is_kept(tmp_path: Path) -> None:
    text = assign("'a'", "source = 'quantized'") + assign("'*'", "format = 'bf16'")
    (piece,) = run(tmp_path, text).decisions["a"]
    assert (piece.source, piece.format, piece.method.name) == ("quantized", "bf16", "cast_direct")


def test_a_tensor_is_named_for_one_parameter_or_by_the_stars(tmp_path: Path) -> None:
    (piece,) = run(tmp_path, assign("'a'", "source = 'quantized'", "tensor = 'x.0'")).decisions["a"]
    assert (piece.source, piece.tensor, piece.format) == ("quantized", "x.0", "fp32")
    (piece,) = run(tmp_path, assign("'a'", "tensor = 'b'")).decisions["a"]
    assert (piece.source, piece.tensor) == (None, "b")
    resolution = run(tmp_path, assign("'l.*.w'", "source = 'quantized'", r"tensor = 'x.\1'"))
    assert [resolution.decisions[f"l.{layer}.w"][0].tensor for layer in (0, 1)] == ["x.0", "x.1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (assign("'a'", "source = 'other'"), "10:10: source other is not given: pass --source other=PATH"),
        (
            assign("'a'", "source = 'quantised'"),
            "10:10: unknown source 'quantised'; did you mean quantized? Known: quantized, other, base",
        ),
        (assign("'a'", "source = 'quantized'", "tensor = 'y'"), "11:10: a: there is no tensor y"),
        (assign("'l.0.w'", "source = 'quantized'"), "10:10: l.0.w: there is no tensor l.0.w"),
        (assign("'b'", "source = 'quantized'"), "10:10: b: has shape [8, 8] there, not [256, 256]"),
        (
            assign("['a', 'b']", "tensor = 'x.0'"),
            "10:10: tensor names one tensor for 2 parameters; select one, or refer to its stars by \\1",
        ),
    ],
)
def test_a_source_or_tensor_that_cannot_be_read(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in problems(tmp_path, text)


def test_a_given_source_must_be_declared_unless_it_is_base(tmp_path: Path) -> None:
    expected = "None:None: --source vision is given, and the recipe declares no source of that name"
    assert problems(tmp_path, "", sources=["quantized", "base", "vision"]) == [expected]
    assert run(tmp_path, "", sources=["quantized", "base"])


def test_a_checkpoint_that_stands_alone_has_nothing_elsewhere(tmp_path: Path) -> None:
    text = HEAD + assign("'a'", "tensor = 'b'")
    (problem,) = refused(lambda: solve(tmp_path, text, [Parameter("a")]))
    assert problem.message == "a: cannot be read from elsewhere"


# Transpose.


def test_transpose_swaps_the_last_two_axes(tmp_path: Path) -> None:
    parameters = [Parameter("m", (64, 256)), Parameter("e", (4, 64, 256))]
    text = HEAD + assign("'*'", "transpose = true") + assign("'e'", "format = 'q4_g64_fp16'")
    decisions = solve(tmp_path, text, parameters).decisions
    assert [(piece.shape, piece.transpose, piece.format) for (piece,) in decisions.values()] == [
        ((256, 64), True, "bf16"),
        ((1024, 64), True, "q4_g64_fp16"),
    ]


def test_where_sees_the_stored_shape(tmp_path: Path) -> None:
    text = HEAD + assign("'*'", "where.min_columns = 256", "transpose = true", "format = 'fp32'")
    decisions = solve(tmp_path, text, [Parameter("m", (64, 256)), Parameter("n", (256, 64))]).decisions
    assert [pieces[0].shape for pieces in decisions.values()] == [(256, 64), (256, 64)]
    assert [pieces[0].transpose for pieces in decisions.values()] == [True, False]


def test_a_source_may_store_the_other_way_round(tmp_path: Path) -> None:
    (piece,) = run(tmp_path, assign("'t'", "source = 'quantized'", "transpose = true")).decisions["t"]
    assert (piece.shape, piece.transpose) == ((64, 256), True)


@pytest.mark.parametrize(
    ("parameter", "text", "line", "message"),
    [
        (
            Parameter("a", stored="Q8_0", exact=("gguf_q8_0",)),
            assign("'a'", "transpose = true"),
            7,
            "a: transpose moves values, and import_encoded copies encoded words as they stand",
        ),
        (
            Parameter("a", (8,)),
            assign("'a'", "transpose = true"),
            7,
            "a: transpose swaps the last two axes, and rank 1 has fewer",
        ),
        (
            Parameter("a"),
            assign("'a'", "transpose = true") + assign("'a'", "rows = [0, 8]", "format = 'fp32'"),
            7,
            "a: transpose is about a whole parameter, and rows cut this one",
        ),
    ],
)
def test_what_cannot_be_transposed(tmp_path: Path, parameter: Parameter, text: str, line: int, message: str) -> None:
    found = {(problem.line, problem.message) for problem in refused(lambda: solve(tmp_path, HEAD + text, [parameter]))}
    assert found == {(line, message)}


def test_decoded_values_may_be_transposed(tmp_path: Path) -> None:
    text = HEAD + assign("'a'", "transpose = true", "format = 'bf16'")
    (piece,) = solve(tmp_path, text, [Parameter("a", (8, 32), "Q8_0", ("gguf_q8_0",))]).decisions["a"]
    assert piece.shape == (32, 8)


# Quantizing again.


def test_requantize_in_the_assign_is_enough_and_survives_a_later_format(tmp_path: Path) -> None:
    parameters = [Parameter(name, stored="Q8_0", exact=("gguf_q8_0",)) for name in "ab"]
    text = HEAD + assign("'*'", "requantize = true") + assign("'*'", "format = 'q4_g64_fp16'")
    assert formats(solve(tmp_path, text, parameters)) == dict.fromkeys("ab", "q4_g64_fp16")
    text += assign("'b'", "requantize = false")
    found = refused(lambda: solve(tmp_path, text, parameters))
    assert [(problem.code, problem.line, problem.tensor) for problem in found] == [("requantize", 10, "b")]


# Misfit.


def nvfp4(name: str, shape: tuple[int, int]) -> Parameter:
    return Parameter(name, shape, "NVFP4", ("nvfp4",), divisors=(2.0,))


def misfits(folder: Path, text: str, *parameters: Parameter, **flags: bool) -> tuple[Problem, ...]:
    return refused(lambda: solve(folder, HEAD + text, parameters, **flags))


def test_a_misfit_names_rule_shape_and_way_out(tmp_path: Path) -> None:
    text = assign("'*'", "format = 'nvfp4'")
    found = misfits(tmp_path, text, nvfp4("fits", (128, 64)), nvfp4("n", (100, 64)), nvfp4("k", (128, 80)))
    assert placed(found) == [("misfit", 7, 10), ("misfit", 7, 10)]
    for problem, name, number, rule in zip(found, ("n", "k"), ("100", "80"), ("128", "64"), strict=True):
        assert problem.message.startswith(f"{name}: ")
        assert number in problem.message
        assert rule in problem.message
        assert 'say misfit = "bf16" (or another format) for it, or choose another format' in problem.message


def test_blocks_fit_rows_of_whole_blocks_alone(tmp_path: Path) -> None:
    """Only a group's own shape can cut them."""
    text = assign("'*'", "format = 'gguf_q8_0'") + "[[group]]\nselect = '*'\nshape = [16, 16]\n"
    (problem,) = misfits(tmp_path, text, Parameter("a", (4, 64), "Q8_0", ("gguf_q8_0",)))
    assert placed([problem]) == [("misfit", 7, 10)]
    assert problem.message.startswith("a: ")
    assert "32" in problem.message
    assert 'say misfit = "bf16"' in problem.message


def test_misfit_applies_to_just_those_and_is_counted(tmp_path: Path) -> None:
    text = HEAD + assign("'*'", "format = 'nvfp4'", "misfit = 'bf16'", "non_finite = 'keep'")
    resolution = solve(tmp_path, text, [nvfp4("a", (128, 64)), nvfp4("b", (100, 64)), nvfp4("c", (3, 64))])
    assert formats(resolution) == {"a": "nvfp4", "b": "bf16", "c": "bf16"}
    (piece,) = resolution.decisions["b"]
    assert (piece.method.name, piece.layout, piece.instead_of) == ("cast_direct", "contiguous_le_v1", "nvfp4")
    assert (piece.parameters, piece.non_finite, piece.shape) == ({}, "keep", (100, 64))
    assert resolution.decisions["a"][0].instead_of is None
    assert resolution.misfits == {"nvfp4": 2}


def test_a_quantizing_misfit_quantizes_again(tmp_path: Path) -> None:
    text = assign("'*'", "format = 'nvfp4'", "misfit = 'q8_g32_fp16'")
    assert placed(misfits(tmp_path, text, nvfp4("b", (100, 64)))) == [("requantize", 8, 10)]
    resolution = solve(tmp_path, HEAD + text, [nvfp4("b", (100, 64))], requantize=True)
    assert formats(resolution) == {"b": "q8_g32_fp16"}


def test_a_misfit_that_no_method_makes_is_refused_where_it_stands(tmp_path: Path) -> None:
    text = assign("'*'", "format = 'nvfp4'", "misfit = 'gguf_q8_0'")
    assert placed(misfits(tmp_path, text, nvfp4("b", (100, 64)))) == [("no-method", 8, 10)]


def test_a_later_format_takes_the_misfit_back(tmp_path: Path) -> None:
    text = assign("'*'", "format = 'bf16'", "misfit = 'bf16'") + assign("'*'", "format = 'nvfp4'")
    assert placed(misfits(tmp_path, text, nvfp4("b", (100, 64)))) == [("misfit", 11, 10)]


def test_a_piece_is_judged_by_itself(tmp_path: Path) -> None:
    text = HEAD + assign("'*'", "format = 'nvfp4'", "misfit = 'bf16'")
    text += assign("'*'", "rows = [128, 130]", "format = 'fp32'")
    resolution = solve(tmp_path, text, [nvfp4("a", (130, 64)), nvfp4("b", (258, 64))])
    assert formats(resolution) == {
        "a": [((0, 128), "nvfp4"), ((128, 130), "fp32")],
        "b": [((0, 128), "nvfp4"), ((128, 130), "fp32"), ((130, 258), "nvfp4")],
    }


def test_a_parent_is_judged_whole_and_takes_the_misfit_whole(tmp_path: Path) -> None:
    text = HEAD + assign("'*'", "format = 'nvfp4'", "misfit = 'bf16'") + "[[group]]\nselect = ['*/x', '*/y']\n"
    parameters = [nvfp4("a/x", (96, 64)), nvfp4("a/y", (32, 64)), nvfp4("b/x", (128, 64)), nvfp4("b/y", (32, 64))]
    resolution = solve(tmp_path, text, parameters)
    assert [(parent.members[0], parent.format, parent.shape, parent.divisors) for parent in resolution.groups] == [
        ("a/x", "nvfp4", (128, 64), 1),
        ("b/x", "bf16", (160, 64), 1),
    ]
    assert formats(resolution) == {"a/x": "nvfp4", "a/y": "nvfp4", "b/x": "bf16", "b/y": "bf16"}
    assert resolution.misfits == {"nvfp4": 1}


def test_members_must_name_the_same_misfit(tmp_path: Path) -> None:
    text = assign("'*'", "format = 'nvfp4'", "misfit = 'bf16'") + assign("'b'", "misfit = 'fp32'")
    text += "[[group]]\nselect = ['a', 'b']\n"
    found = misfits(tmp_path, text, nvfp4("a", (96, 64)), nvfp4("b", (96, 64)))
    assert placed(found) == [("misfit", 7, 10)]
    assert found[0].message.startswith("a, b: ")
