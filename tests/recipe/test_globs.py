"""Globs: matching, captures, what is malformed; natural order (recipes.md, Selecting)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ninfer_convert.natural import natural_key
from ninfer_convert.recipe.globs import GlobFault, parse_glob
from ninfer_convert.recipe.selection import Names
from tests.oracle import globs as oracle


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("a*b", ["ab", "a/b", "a.b", "a\nb", "abb"], ["ab ", "a", "xab"]),
        ("*", ["", "anything", "a/b.c"], []),
        ("a?c", ["abc", "a/c", "a.c", "a*c"], ["ac", "abbc"]),
        ("a[0]", ["a[0]"], ["a0"]),
        ("{a,b}c", ["ac", "bc"], ["c", "abc", "{a,b}c"]),
        ("{a}", ["a"], ["{a}"]),
        ("{a,}c", ["ac", "c"], ["bc"]),
        ("{a{b,c},d}e", ["abe", "ace", "de"], ["ae", "e", "ade"]),
        ("{a*b,c}d", ["abd", "axxbd", "cd"], ["axd"]),
        ("l.{0..1}.w", ["l.0.w", "l.1.w"], ["l.2.w", "l.01.w", "l.00.w", "l.10.w"]),
        ("l.{9..11}.w", ["l.9.w", "l.10.w", "l.11.w"], ["l.1.w", "l.12.w", "l.09.w"]),
        ("l.{1..12}*", ["l.1", "l.12", "l.123"], ["l.0", "l.01"]),
        ("{0..3,60..63}", ["0", "3", "60", "63"], ["4", "59", "64"]),
        ("{5..5}", ["5"], ["4", "55"]),
        ("{a..c}", ["a..c"], ["b"]),
        ("{0..}", ["0.."], ["0"]),
        (r"\*\?\{\}\\", [r"*?{}\ ".strip()], ["a?{}\\"]),
        (r"a\,b", ["a,b"], [r"a\,b"]),
        ("a,b}", ["a,b}"], []),
        ("Ab", ["Ab"], ["ab", "AB"]),
        ("*a*a*a*a*a*a*a*a*a*a*b", [], ["a" * 200]),
        ("{*a,*aa}{*a,*aa}{*a,*aa}{*a,*aa}{*a,*aa}b", ["a" * 60 + "b"], ["a" * 200]),
        ("{0..999999999999999999}", ["0", "999999999999999999"], ["1000000000000000000"]),
    ],
)
def test_what_a_glob_matches(glob: str, yes: list[str], no: list[str]) -> None:
    parsed = parse_glob(glob)
    for name in yes:
        assert parsed.matches(name), name
    for name in no:
        assert not parsed.matches(name), name
    found = Names([*yes, *no]).matching(parsed)
    assert found == frozenset(range(len(yes)))


@pytest.mark.parametrize(
    ("glob", "message"),
    [
        ("a{b", "has a brace at character 2 that is not closed"),
        ("{a,{b}", "has a brace at character 1 that is not closed"),
        ("a{}", "has an empty brace at character 2"),
        ("{3..1}", "has the range {3..1}, which descends"),
        ("{10..9}", "has the range {10..9}, which descends"),
        ("{01..3}", "has the range {01..3} with a leading zero"),
        ("{0..03}", "has the range {0..03} with a leading zero"),
        ("{0..1000000000000000000}", "has a range bound of more than 18 digits"),
        (f"{{{'9' * 5000}..1}}", f"has the range {{{'9' * 5000}..1}}, which descends"),
        ("a\\", "ends in a backslash that escapes nothing"),
        ("{" * 40 + "a" + "}" * 40, "nests braces deeper than 32"),
    ],
)
def test_a_malformed_glob(glob: str, message: str) -> None:
    with pytest.raises(GlobFault) as caught:
        parse_glob(glob)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("glob", "literal"),
    [("a.b", "a.b"), (r"a\*", "a*"), ("a[0]", "a[0]"), ("a*", None), ("a?", None), ("{a}", None), ("{1..2}", None)],
)
def test_a_literal_has_no_star_question_mark_or_brace(glob: str, literal: str | None) -> None:
    assert parse_glob(glob).literal == literal


@pytest.mark.parametrize(
    ("glob", "name", "captured"),
    [
        ("a.*.b", "a.1.b", ("1",)),
        ("a.*.b", "a.1.b.b", ("1.b",)),
        ("*.b*", "a.b.b.c", ("a", ".b.c")),
        ("**", "ab", ("", "ab")),
        ("*a*a", "aaa", ("", "a")),
        ("a*", "a", ("",)),
        ("*b*b", "ab", None),
        ("a", "a", ()),
        ("a*a", "a", None),
    ],
)
def test_a_star_takes_the_shortest_text_that_lets_all_match(
    glob: str, name: str, captured: tuple[str, ...] | None
) -> None:
    assert parse_glob(glob).captures(name) == captured == oracle.captures(glob, name)


pieces = st.sampled_from(["a", "b", "/", "1", "12", "0", "*", "?", "\\*", "\\{", "[", "\n"])
sequences = st.recursive(
    st.lists(pieces, max_size=4).map("".join),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(",".join).filter(bool).map(lambda text: "{" + text + "}"),
        st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda pair: f"{{{min(pair)}..{max(pair)}}}"),
        st.lists(inner, max_size=3).map("".join),
    ),
    max_leaves=6,
)


@given(sequences, st.text(alphabet="ab/012*{[\n", max_size=8))
@example("{,}", "")
@example("{1..12}2", "122")
def test_matching_is_the_oracles(glob: str, name: str) -> None:
    parsed = parse_glob(glob)
    assert parsed.matches(name) == oracle.matches(glob, name)
    assert any(one.matches(name) for one in parsed.spread(1000)) == oracle.matches(glob, name)
    assert Names([name]).matching(parsed) == frozenset({0} if oracle.matches(glob, name) else ())


@given(st.text(alphabet="ab*", max_size=8), st.text(alphabet="ab\n", max_size=12))
def test_captures_are_the_oracles_and_fill_back(glob: str, name: str) -> None:
    parsed = parse_glob(glob)
    captured = parsed.captures(name)
    assert captured == oracle.captures(glob, name)
    if captured is not None:
        assert parsed.filled(captured) == name


@pytest.mark.parametrize(
    ("glob", "name", "captured"),
    [
        ("l.*.{q,k}.w", "l.10.k.w", ("10",)),
        ("*?*", "abc", ("", "bc")),
        ("*{a,ab}*", "abc", ("", "c")),
        ("x{1..12}*", "x123", ("3",)),
        ("{a,b}*", "c", None),
        ("{a,b}", "b", ()),
    ],
)
def test_question_marks_and_braces_capture_nothing(glob: str, name: str, captured: tuple[str, ...] | None) -> None:
    assert parse_glob(glob).captures(name) == captured


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "*", "?", "{a,b}", "{a,ab}", "{0..12}", "1"]), max_size=6).map("".join),
    st.text(alphabet="ab12", max_size=7),
)
def test_what_stars_take_beside_braces_is_the_oracles(glob: str, name: str) -> None:
    captured = parse_glob(glob).captures(name)
    assert (None if captured is None else [len(text) for text in captured]) == oracle.shortest_stars(glob, name)


@given(st.lists(st.text(alphabet="0019aZ~.", max_size=6), unique=True))
def test_natural_order_is_the_oracles(names: list[str]) -> None:
    assert sorted(names, key=natural_key) == oracle.in_natural_order(names)


def test_natural_order_counts() -> None:
    names = ["l.10", "l.9", "l.09", "l.9.a", "l.-1", "l.a", "l.", "l", "l.009", f"l.{'9' * 5000}", "l.٣"]
    ordered = ["l", "l.", "l.-1", "l.9", "l.9.a", "l.09", "l.009", "l.10", f"l.{'9' * 5000}", "l.a", "l.٣"]
    assert sorted(names, key=natural_key) == ordered
