"""Where keys and values stand, judged by a writer that knows and by the parsed document's own shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tomli
from hypothesis import given, settings

from ninfer_convert.recipe.positions import Lines, Spot, locate
from tests.recipe.toml_writer import Path, Place, Written, documents


def places(text: str) -> dict[Path, tuple[Place, Place]]:
    lines = Lines(text)

    def walk(spot: Spot, path: Path) -> Iterator[tuple[Path, tuple[Place, Place]]]:
        for key, child in spot.children.items():
            yield (*path, key), (lines.place(child.key), lines.place(child.value))
            yield from walk(child, (*path, key))

    return dict(walk(locate(text), ()))


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict):
        members: Any = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    else:
        return
    for key, member in members:
        yield (*path, key)
        yield from paths(member, (*path, key))


@settings(max_examples=200)
@given(documents())
def test_every_place_is_the_writers(written: Written) -> None:
    assert set(paths(tomli.loads(written.text))) == set(written.places)
    assert places(written.text) == written.places


@pytest.mark.parametrize(
    ("text", "path", "key", "value"),
    [
        ("a = 1\nb = 2", ("b",), (2, 1), (2, 5)),
        ("a = 1\r\n\r\nb=2\r\n", ("b",), (3, 1), (3, 3)),
        ("x.y.z = 1", ("x", "y"), (1, 3), (1, 3)),
        ("x.y.z = 1", ("x", "y", "z"), (1, 5), (1, 9)),
        ("[[t]]\na = 1\n[[t]]\na = 2", ("t", 1, "a"), (4, 1), (4, 5)),
        ("[[t]]\n[t.w]\na = 1\n[[t]]\n[t.w]\na = 2", ("t", 1, "w", "a"), (6, 1), (6, 5)),
        ("[[t]]\n[[t.u]]\n[[t.u]]\na = 1", ("t", 0, "u", 1, "a"), (4, 1), (4, 5)),
        ("[a.b]\nc = 1\n[a]\nd = 2", ("a", "d"), (4, 1), (4, 5)),
        ("s = [\n  'x',  # one\n  'y',\n]", ("s", 1), (3, 3), (3, 3)),
        ("s = [[1, 2], [3]]", ("s", 1, 0), (1, 15), (1, 15)),
        ("w = { a.b = { c = [1] } }", ("w", "a", "b", "c", 0), (1, 20), (1, 20)),
        ('"a.b".c = """\nx\n"""\nd = 1', ("d",), (4, 1), (4, 5)),
        (r'"\"" = 1', ('"',), (1, 1), (1, 8)),
        ("'\"a\"' = 1", ('"a"',), (1, 1), (1, 9)),
        ("é = 1".replace("é", '"é"') + "\nb = 1", ("b",), (2, 1), (2, 5)),
        ("a = 1 # b = 2\nb = 3", ("b",), (2, 1), (2, 5)),
    ],
)
def test_a_place(text: str, path: Path, key: Place, value: Place) -> None:
    assert set(paths(tomli.loads(text))) == set(places(text))
    assert places(text)[path] == (key, value)


def test_an_empty_document_has_no_places() -> None:
    assert places("") == places("# nothing\n") == {}
