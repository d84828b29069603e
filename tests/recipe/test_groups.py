"""Parents: captures, what may join, shapes, automatic groups (recipes.md, Selecting; qwen35.md 4.1 to 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer_convert.recipe import Parent, resolve
from tests.recipe.support import HEAD, Parameter, formats, load, placed, refused, solve

LAYERS = [
    Parameter(f"layers/{layer}/{kind}", (rows, 256))
    for layer in (10, 2, 0)
    for kind, rows in (("v", 64), ("q", 128), ("k", 64), ("norm", 1))
]


def members(folder: Path, text: str, parameters: Sequence[Parameter] = LAYERS) -> list[tuple[str, ...]]:
    return [parent.members for parent in solve(folder, HEAD + text, parameters).groups]


def group(select: str, *more: str) -> str:
    return "\n".join(["[[group]]", f"select = {select}", *more, ""])


def test_one_parent_for_each_captured_text_in_natural_order(tmp_path: Path) -> None:
    assert members(tmp_path, group("['layers/*/q', 'layers/*/k']")) == [
        ("layers/0/q", "layers/0/k"),
        ("layers/2/q", "layers/2/k"),
        ("layers/10/q", "layers/10/k"),
    ]


def test_members_come_in_list_order_then_in_natural_order(tmp_path: Path) -> None:
    assert members(tmp_path, group("['layers/*/q', 'layers/*/{v,k}']"))[0] == ("layers/0/q", "layers/0/k", "layers/0/v")
    assert members(tmp_path, group("['layers/{2,10,0}/q']")) == [("layers/0/q", "layers/2/q", "layers/10/q")]
    assert members(tmp_path, group("'layers/*/?'"))[2] == ("layers/10/k", "layers/10/q", "layers/10/v")


def test_two_stars_make_tuples_in_natural_order(tmp_path: Path) -> None:
    parameters = [Parameter(f"{a}/{b}/{kind}") for a in ("m10", "m9") for b in ("2", "10") for kind in "xy"]
    assert members(tmp_path, group("['*/*/x', '*/*/y']"), parameters) == [
        (f"{a}/{b}/x", f"{a}/{b}/y") for a in ("m9", "m10") for b in ("2", "10")
    ]


def test_a_group_of_one_is_an_object_of_its_own(tmp_path: Path) -> None:
    resolution = solve(tmp_path, HEAD + group("'layers/2/q'"), LAYERS)
    (parent,) = resolution.groups
    assert parent.rule is not None
    assert parent == Parent(("layers/2/q",), (128, 256), "bf16", "contiguous_le_v1", 1, parent.rule)
    assert (parent.rule.place.line, parent.rule.select) == (5, "layers/2/q")


def test_groups_come_in_the_order_of_their_tables_and_decisions_in_the_parameters(tmp_path: Path) -> None:
    text = HEAD + group("'layers/2/v'") + group("['layers/0/q', 'layers/0/v']")
    resolution = solve(tmp_path, text, LAYERS)
    assert [parent.members for parent in resolution.groups] == [("layers/2/v",), ("layers/0/q", "layers/0/v")]
    assert list(resolution.decisions) == [parameter.name for parameter in LAYERS]


# Shapes.


@pytest.mark.parametrize(
    ("format", "shapes", "shape", "parent", "pieces"),
    [
        ("bf16", [(8, 256)], None, (8, 256), [(8, 256)]),
        ("bf16", [()], None, (), [()]),
        ("bf16", [(2, 3, 5)], None, (2, 3, 5), [(2, 3, 5)]),
        ("bf16", [(4,), (6,)], None, (10,), [(4,), (6,)]),
        ("bf16", [(4, 8), (6, 8)], None, (10, 8), [(4, 8), (6, 8)]),
        ("bf16", [(4, 8), (3,)], [35], (35,), [(4, 8), (3,)]),
        ("bf16", [(4,), (6,)], [2, 5], (2, 5), [(4,), (6,)]),
        ("q4_g64_fp16", [(4, 256), (6, 256)], None, (10, 256), [(4, 256), (6, 256)]),
        ("q4_g64_fp16", [(4, 8, 256)], None, (32, 256), [(32, 256)]),
        ("q4_g64_fp16", [(4, 8, 256), (4, 2, 256)], [40, 256], (40, 256), [(32, 256), (8, 256)]),
        ("q4_g64_fp16", [(4, 256), (2, 512)], [4, 512], (4, 512), [(2, 512), (2, 512)]),
    ],
)
def test_the_parents_shape_and_what_each_member_fills(
    tmp_path: Path,
    format: str,
    shapes: list[tuple[int, ...]],
    shape: list[int] | None,
    parent: tuple[int, ...],
    pieces: list[tuple[int, ...]],
) -> None:
    parameters = [Parameter(f"p{number}", shape) for number, shape in enumerate(shapes)]
    text = f"{HEAD}[[assign]]\nselect = '*'\nformat = '{format}'\n" + group("'p?'")
    resolution = solve(tmp_path, text + (f"shape = {shape}\n" if shape else ""), parameters)
    (found,) = resolution.groups
    assert (found.shape, found.format, found.divisors) == (parent, format, 1)
    assert [piece.shape for (piece,) in resolution.decisions.values()] == pieces


JOIN = "vectors join by themselves, and matrices of equally many columns; others need a shape"


@pytest.mark.parametrize(
    ("format", "shapes", "shape", "why"),
    [
        (
            "bf16",
            [(4, 8), (4, 6)],
            None,
            JOIN,
        ),
        (
            "bf16",
            [(4, 8), (8,)],
            None,
            JOIN,
        ),
        (
            "bf16",
            [(1, 4, 8), (1, 4, 8)],
            None,
            JOIN,
        ),
        ("bf16", [(4, 8), (4, 8)], [9, 8], "shape = [9, 8] holds 72 elements, and they have 64"),
        (
            "q4_g64_fp16",
            [(1, 256), (3, 256)],
            [2, 512],
            "a member of shape [1, 256] does not fill whole rows of [2, 512]",
        ),
    ],
)
def test_a_shape_that_cannot_be(
    tmp_path: Path, format: str, shapes: list[tuple[int, ...]], shape: list[int] | None, why: str
) -> None:
    parameters = [Parameter(f"p{number}", shape) for number, shape in enumerate(shapes)]
    text = f"{HEAD}[[assign]]\nselect = '*'\nformat = '{format}'\n" + group("'p?'")
    text += f"shape = {shape}\n" if shape else ""
    (problem,) = refused(lambda: solve(tmp_path, text, parameters))
    assert placed([problem]) == [("group", 9, 10)]
    assert problem.message == f"p0, p1: cannot be one object: {why}"
    assert solve(tmp_path, text + "optional = true", parameters).groups == ()


def test_a_shape_that_the_layout_does_not_take_is_a_misfit(tmp_path: Path) -> None:
    text = f"{HEAD}[[assign]]\nselect = 'a'\nformat = 'q4_g64_fp16'\n" + group("'a'", "shape = [65536]")
    (problem,) = refused(lambda: solve(tmp_path, text, [Parameter("a")]))
    assert placed([problem]) == [("misfit", 7, 10)]


def test_a_rank_that_a_member_may_not_have_is_said_once(tmp_path: Path) -> None:
    text = f"{HEAD}[[assign]]\nselect = '*'\nformat = 'q4_g64_fp16'\n" + group("['a', 'b']")
    problems = refused(lambda: solve(tmp_path, text, [Parameter("a", (8,)), Parameter("b", (8,))]))
    assert placed(problems) == [("rank", 7, 10)]


# What fails.


@pytest.mark.parametrize(
    ("tables", "parameters", "made", "names", "why"),
    [
        (group("['l.*.a', 'l.*.b']"), ["l.0.a", "l.0.b", "l.1.a"], 1, "l.1.a", "nothing matches 'l.*.b' beside them"),
        (group("'l.0.*'") + group("['l.0.a']"), ["l.0.a"], 1, "l.0.a", "l.0.a is in a group already"),
        (group("['l.0.?', 'l.{0,1}.a']"), ["l.0.a", "l.0.b"], 0, "l.0.a, l.0.b", "one is selected twice"),
        (group("['a', 'b']") + "[[skip]]\nselect = 'b'\nreason = 'r'", ["a", "b"], 0, "a, b", "b is skipped"),
        (
            group("['a', 'b']") + "[[share]]\nparameter = 'b'\nwith = 'a'",
            ["a", "b"],
            0,
            "a, b",
            "b is an alias of a by [[share]]",
        ),
        (
            group("['a', 'b']") + "[[assign]]\nselect = 'a'\nrows = [0, 8]\nformat = 'fp32'",
            ["a", "b"],
            0,
            "a, b",
            "a is cut by rows",
        ),
        (
            group("['a', 'b']") + "[[assign]]\nselect = 'a'\nformat = 'fp32'",
            ["a", "b"],
            0,
            "a, b",
            "they differ in format: a has fp32, b bf16",
        ),
        (
            group("['a', 'b']")
            + "[[assign]]\nselect = '*'\nformat = 'q4_g64_fp16'\n[[assign]]\nselect = 'b'\nmethod = 'grouped_search'",
            ["a", "b"],
            0,
            "a, b",
            "they differ in method: a has grouped_absmax, b grouped_search",
        ),
        (
            group("['a', 'b']")
            + "[[assign]]\nselect = '*'\nformat = 'q4_g64_fp16'\nmethod = 'grouped_search'\n"
            + "[[assign]]\nselect = 'b'\nparameters = { negative_scales = true }",
            ["a", "b"],
            0,
            "a, b",
            "they differ in parameters: a has {}, b {'negative_scales': True}",
        ),
    ],
)
def test_a_group_that_fails_says_why_or_is_passed_by(
    tmp_path: Path, tables: str, parameters: list[str], made: int, names: str, why: str
) -> None:
    subjects = [Parameter(name) for name in parameters]
    (problem,) = refused(lambda: solve(tmp_path, HEAD + tables, subjects))
    assert problem.code == "group"
    assert problem.message == f"{names}: cannot be one object: {why}"
    passed = solve(tmp_path, HEAD + tables.replace("[[group]]", "[[group]]\noptional = true"), subjects)
    assert len(passed.groups) == made


def test_an_optional_group_leaves_its_members_to_later_ones(tmp_path: Path) -> None:
    text = "[[assign]]\nselect = 'layers/*/v'\nformat = 'q8_g32_fp16'\n"
    text += group("['layers/*/q', 'layers/*/k', 'layers/*/v']", "optional = true") + group(
        "['layers/*/q', 'layers/*/k']"
    )
    assert members(tmp_path, text)[0] == ("layers/0/q", "layers/0/k")


def test_a_glob_that_matches_nothing_is_an_error_unless_optional(tmp_path: Path) -> None:
    text = HEAD + group("['layers/*/q', 'layers/*/z']")
    assert placed(refused(lambda: solve(tmp_path, text, LAYERS))) == [("nothing-matches", 6, 25)]
    assert solve(tmp_path, text + "optional = true", LAYERS).groups == ()


def test_a_member_with_an_error_of_its_own_is_not_blamed_twice(tmp_path: Path) -> None:
    text = "schema = 1\n" + group("['a', 'b']")
    problems = refused(lambda: solve(tmp_path, text, [Parameter("a", stored="F16"), Parameter("b")]))
    assert placed(problems) == [("no-default", None, None)]


# nvfp4.


def nvfp4(name: str, divisor: float | None, rows: int = 128) -> Parameter:
    return Parameter(name, (rows, 64), "NVFP4", ("nvfp4",), divisors=() if divisor is None else (divisor,))


IMPORT = "[[assign]]\nselect = '*'\nformat = 'nvfp4'\n"


@pytest.mark.parametrize(
    ("divisors", "count"), [((2.0, 2.0, 2.0), 1), ((2.0, 3.0, 2.0), 3), ((2.0, None, 2.0), 1), ((None, None, None), 1)]
)
def test_divisors_that_differ_are_kept_one_for_each_member(
    tmp_path: Path, divisors: tuple[float | None, ...], count: int
) -> None:
    parameters = [nvfp4(f"p{number}", divisor) for number, divisor in enumerate(divisors)]
    (parent,) = solve(tmp_path, HEAD + IMPORT + group("'p?'"), parameters).groups
    assert (parent.divisors, parent.shape) == (count, (384, 64))


def test_divisors_that_differ_take_equally_many_rows(tmp_path: Path) -> None:
    parameters = [nvfp4("p0", 2.0), nvfp4("p1", 3.0, 256)]
    (problem,) = refused(lambda: solve(tmp_path, HEAD + IMPORT + group("'p?'"), parameters))
    assert problem.message == (
        "p0, p1: cannot be one object: they have weight divisors of their own, which takes equally many rows of each"
    )


@pytest.mark.parametrize(("divisors", "count"), [((2.0, 2.0), 1), ((2.0, 3.0), 2)])
def test_a_bank_keeps_the_divisors_of_its_experts(tmp_path: Path, divisors: tuple[float, ...], count: int) -> None:
    bank = Parameter("e", (2, 128, 64), "NVFP4", ("nvfp4",), divisors=divisors)
    (piece,) = solve(tmp_path, HEAD + IMPORT, [bank]).decisions["e"]
    assert (piece.shape, piece.divisors) == ((256, 64), count)
    more = replace(bank, name="f", divisors=(2.0, 2.0))
    (parent,) = solve(tmp_path, HEAD + IMPORT + group("['e', 'f']", "shape = [512, 64]"), [bank, more]).groups
    assert parent.divisors == (1 if count == 1 else 4)


def test_a_region_of_a_bank_keeps_its_experts_divisors(tmp_path: Path) -> None:
    bank = Parameter("e", (4, 128, 64), "NVFP4", ("nvfp4",), divisors=(2.0, 3.0, 3.0, 5.0))
    text = HEAD + IMPORT + "[[assign]]\nselect = '*'\nrows = [1, 3]\nnon_finite = 'keep'\nformat = 'nvfp4'\n"
    assert [piece.divisors for piece in solve(tmp_path, text, [bank]).decisions["e"]] == [4]
    text = HEAD + "[[assign]]\nselect = '*'\nrows = [1, 3]\nformat = 'nvfp4'\n"
    text += "[[assign]]\nselect = '*'\nrows = [0, 1]\nformat = 'bf16'\n"
    text += "[[assign]]\nselect = '*'\nrows = [3, 4]\nformat = 'fp32'"
    pieces = solve(tmp_path, text, [bank]).decisions["e"]
    assert [(piece.rows, piece.divisors) for piece in pieces] == [((0, 1), 1), ((1, 3), 1), ((3, 4), 1)]


# Automatic groups.

CANDIDATES = [["a", "b", "c"], ["a", "b"], ["c", "d"], ["d", "e"]]


def automatic(folder: Path, text: str, parameters: Sequence[Parameter]) -> list[tuple[str, ...]]:
    resolution = resolve(load(folder, HEAD + text), parameters, candidates=CANDIDATES)
    return [parent.members for parent in resolution.groups]


ABCDE = [Parameter(name) for name in "edcba"]


def test_the_first_candidates_that_qualify_take_their_members(tmp_path: Path) -> None:
    assert automatic(tmp_path, "", ABCDE) == [("a", "b", "c"), ("d", "e")]
    text = "[[assign]]\nselect = '{a,b}'\nformat = 'q4_g64_fp16'\n"
    assert automatic(tmp_path, text, ABCDE) == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[separate]]\nselect = 'a'\n", [("c", "d")]),
        ("[[separate]]\nselect = '{a,c}'\n", [("d", "e")]),
        ("[[skip]]\nselect = 'c'\nreason = 'r'\n", [("a", "b"), ("d", "e")]),
        ("[[share]]\nparameter = 'c'\nwith = 'd'\n", [("a", "b"), ("d", "e")]),
        (group("['e', 'a']"), [("e", "a"), ("c", "d")]),
        ("[[assign]]\nselect = 'b'\nrows = [0, 8]\nformat = 'fp32'\n", [("c", "d")]),
    ],
)
def test_what_keeps_a_candidate_from_being_packed(tmp_path: Path, text: str, expected: list[tuple[str, ...]]) -> None:
    assert automatic(tmp_path, text, ABCDE) == expected


def test_a_candidate_that_lacks_a_member_is_passed_by(tmp_path: Path) -> None:
    assert automatic(tmp_path, "", [Parameter("a"), Parameter("b"), Parameter("d")]) == [("a", "b")]
    cut = "[[assign]]\nselect = 'd'\nrows = [0, 8]\nformat = 'fp32'\n"
    assert automatic(tmp_path, cut, [Parameter("d")]) == []


def test_candidates_that_do_not_join_are_passed_by(tmp_path: Path) -> None:
    parameters = [Parameter("a"), Parameter("b", (8, 8)), Parameter("c"), Parameter("d")]
    assert automatic(tmp_path, "", parameters) == [("c", "d")]


@pytest.mark.parametrize(
    ("divisors", "packed"), [((2.0, 2.0), True), ((2.0, 3.0), False), ((2.0, None), False), ((None, None), False)]
)
def test_automatic_nvfp4_parents_have_one_known_divisor(
    tmp_path: Path, divisors: tuple[float | None, float | None], packed: bool
) -> None:
    parameters = [nvfp4("a", divisors[0]), nvfp4("b", divisors[1])]
    assert automatic(tmp_path, IMPORT, parameters) == ([("a", "b")] if packed else [])


def test_automatic_parents_have_no_rule_and_pack_direct_formats_too(tmp_path: Path) -> None:
    resolution = resolve(load(tmp_path, HEAD), ABCDE, candidates=CANDIDATES)
    assert [parent.rule for parent in resolution.groups] == [None, None]
    assert resolution.groups[0].shape == (768, 256)
    assert formats(resolution) == dict.fromkeys("edcba", "bf16")


def test_separate_selects_as_every_table_does(tmp_path: Path) -> None:
    problems = refused(lambda: solve(tmp_path, f"{HEAD}[[separate]]\nselect = 'z'", ABCDE))
    assert placed(problems) == [("nothing-matches", 6, 10)]
    assert solve(tmp_path, f"{HEAD}[[separate]]\nselect = 'z'\noptional = true", ABCDE).groups == ()
