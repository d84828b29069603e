"""`[[share]]`: one parameter bound to what another is stored as (recipes.md, Selecting, and Share under Skips)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recipe.support import HEAD, Parameter, formats, placed, refused, solve


def share(parameter: str, target: str, *more: str) -> str:
    return "\n".join(["[[share]]", f"parameter = '{parameter}'", f"with = '{target}'", *more, ""])


def shares(folder: Path, text: str, *names: str) -> list[tuple[str, str, bool]]:
    resolution = solve(folder, HEAD + text, [Parameter(name) for name in names])
    return [(alias.name, alias.target, alias.stored) for alias in resolution.shares]


def test_a_stored_parameter_becomes_an_alias_and_is_decided_no_more(tmp_path: Path) -> None:
    text = HEAD + share("head", "embedding") + "[[assign]]\nselect = '*'\nformat = 'q4_g64_fp16'\n"
    resolution = solve(tmp_path, text, [Parameter("embedding"), Parameter("head")])
    assert formats(resolution) == {"embedding": "q4_g64_fp16"}
    (alias,) = resolution.shares
    assert (alias.name, alias.target, alias.stored, alias.rule.place.line, alias.rule.select) == (
        "head",
        "embedding",
        True,
        5,
        "head",
    )
    assert resolution.untouched == 0


def test_a_parameter_may_be_absent(tmp_path: Path) -> None:
    assert shares(tmp_path, share("head", "embedding"), "embedding") == [("head", "embedding", False)]


def test_captured_texts_name_the_aliases(tmp_path: Path) -> None:
    text = share("draft/*/context_key", "draft/*/key") + share("draft/*/*/x", "*/*/y", "optional = true")
    assert shares(tmp_path, text, "draft/10/key", "draft/9/key") == [
        ("draft/9/context_key", "draft/9/key", False),
        ("draft/10/context_key", "draft/10/key", False),
    ]


def test_a_chain_ends_at_what_is_stored(tmp_path: Path) -> None:
    text = share("c", "b") + share("b", "a") + share("d", "c")
    assert shares(tmp_path, text, "a", "b", "c") == [("c", "a", True), ("b", "a", True), ("d", "a", False)]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (share("a", "a"), 6, "sharing goes in a circle: a -> a"),
        (share("a", "b") + share("b", "c") + share("c", "a"), 6, "sharing goes in a circle: a -> b -> c -> a"),
        (share("a", "b") + share("a", "c"), 9, "a: is an alias of b already"),
        (share("small", "a"), 6, "small: has shape [8, 8] and cannot be shared with a of shape [256, 256]"),
        (share("x", "{a,b}"), 7, "a, b: match with alike; one can be shared"),
        (
            share("b", "a") + "[[skip]]\nselect = 'a'\nreason = 'r'",
            5,
            "b: cannot be shared with a, which is skipped",
        ),
        (
            share("b", "a") + "[[assign]]\nselect = 'a'\nrows = [0, 8]\nformat = 'fp32'",
            5,
            "b: cannot be shared with a, which is cut by rows",
        ),
        (share("x", "none"), 7, "'none' matches no parameter; optional = true allows an empty selection"),
    ],
)
def test_what_cannot_be_shared(tmp_path: Path, text: str, line: int, message: str) -> None:
    parameters = [Parameter("a"), Parameter("b"), Parameter("c"), Parameter("small", (8, 8))]
    (problem,) = refused(lambda: solve(tmp_path, HEAD + text, parameters))
    assert (problem.line, problem.message) == (line, message)


def test_an_optional_share_without_a_target_is_passed_by(tmp_path: Path) -> None:
    assert shares(tmp_path, share("x", "none", "optional = true"), "a") == []


def test_a_skipped_alias_is_left_out(tmp_path: Path) -> None:
    text = HEAD + share("b", "a") + "[[skip]]\nselect = 'b'\nreason = 'r'\n"
    resolution = solve(tmp_path, text, [Parameter("a"), Parameter("b")])
    assert resolution.shares == ()
    assert [skip.name for skip in resolution.skipped] == ["b"]


@pytest.mark.parametrize("names", [["a", "b"], ["a"]])
@pytest.mark.parametrize(("glob", "format"), [("*", "fp32"), ("?", "fp32"), ("{b,a}", "fp32"), ("{b}", "bf16")])
def test_a_wildcard_passes_aliases_by(tmp_path: Path, names: list[str], glob: str, format: str) -> None:
    text = f"{HEAD}{share('b', 'a')}[[assign]]\nselect = '{glob}'\nformat = 'fp32'\n"
    assert formats(solve(tmp_path, text, [Parameter(name) for name in names])) == {"a": format}


@pytest.mark.parametrize("names", [["a", "b"], ["a"]])
@pytest.mark.parametrize(
    "says", ["format = 'fp32'", "non_finite = 'keep'", "tensor = 'q'", "rows = [0, 1]\nformat = 'fp32'"]
)
def test_to_decide_an_alias_by_name_is_an_error(tmp_path: Path, names: list[str], says: str) -> None:
    text = f"{HEAD}{share('b', 'a')}[[assign]]\nselect = 'b'\n{says}\n"
    (problem,) = refused(lambda: solve(tmp_path, text, [Parameter(name) for name in names]))
    assert placed([problem]) == [("locked", 9, 10)]
    assert problem.message == "b: is an alias of a by [[share]]"
