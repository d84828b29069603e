"""Small models by every built-in recipe: an engine binds them, each parameter to its part of the source, encoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ninfer_convert import Shaping, convert
from ninfer_convert.recipe import builtin_recipes
from tests.architectures import importances, small
from tests.oracle import binder, container
from tests.oracle import objects as oracle

if TYPE_CHECKING:
    from tests.architectures.small import Array
    from tests.oracle.binder import Bound

GENERIC = [builtin.name for builtin in builtin_recipes() if not builtin.name.startswith("qwen")]
QWEN = [builtin.name for builtin in builtin_recipes() if builtin.name.startswith("qwen")]
KINDS, RECIPES = ("dense", "experts in banks"), ("bf16", "q4")
"""Of these every combination is tried with the quick tests."""
CASES = [
    pytest.param(kind, recipe, marks=() if kind in KINDS or recipe in RECIPES else pytest.mark.slow)
    for kind in small.KINDS
    for recipe in (*GENERIC, *(recipe for recipe in QWEN if ("a3b" in recipe) == small.KINDS[kind].experts))
]


@dataclass(frozen=True)
class Source:
    """A checkpoint in a folder with an importance matrix beside it, and the values of its logical parameters."""

    folder: Path
    expected: dict[str, Array]
    matrix: Path
    entries: dict[str, importances.Array]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    made = {}
    for name, kind in small.KINDS.items():
        folder = tmp_path_factory.mktemp("model")
        entries = importances.vectors()
        matrix = importances.write(folder / "imatrix.dat", entries)
        made[name] = Source(folder, small.expected(kind, small.write(folder, kind)), matrix, entries)
    return made


def held_by(bound: Bound) -> Iterator[tuple[dict[str, object], list[str]]]:
    """Each object and the parameters that lie in it one behind the other, all of it covered once."""
    pieces: dict[str, list[tuple[int, int, str]]] = {}
    records = {}
    for name, found in bound.parameters.items():
        (piece,) = found
        records[piece.object["id"]] = piece.object
        pieces.setdefault(piece.object["id"], []).append((piece.begin, piece.end, name))
    for id, record in records.items():
        end = 0
        for begin, following, _ in sorted(pieces[id]):
            assert begin == end
            end = following
        assert end == np.prod(record["shape"])
        yield record, [name for _, _, name in sorted(pieces[id])]


def encoded(record: dict[str, object], names: list[str], source: Source, recipe: str) -> bytes:
    """What an object of these parameters holds."""
    format = str(record["format"])
    values = [source.expected[name] for name in names]
    weighed = "imatrix" in recipe
    if format in oracle.GROUPED and (weighed or "search" in recipe):
        vectors = [importances.of(name, source.entries) if weighed else None for name in names]
        found = [
            oracle.searched(array, format, vector, negative_scales=weighed)
            for array, vector in zip(values, vectors, strict=True)
        ]
        codes, scales = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return oracle.row_split(codes, scales, oracle.GROUPED[format][0])
    joined = np.concatenate([array.reshape(-1, array.shape[-1]) for array in values])
    return oracle.object_bytes(format, "F32", joined.shape, joined.astype("<f4").tobytes())


@pytest.mark.parametrize(("kind", "recipe"), CASES)
def test_every_parameter_is_bound_to_its_values(
    tmp_path: Path, sources: dict[str, Source], kind: str, recipe: str
) -> None:
    source = sources[kind]
    given = {"imatrix": str(source.matrix)} if "imatrix" in recipe else {}
    convert(source.folder, recipe, tmp_path / "a.ninfer", shaping=Shaping(sources=given))
    bound = binder.load(tmp_path / "a.ninfer")
    held = container.read(tmp_path / "a.ninfer")
    assert bound.parameters.keys() == source.expected.keys()
    for name, array in source.expected.items():
        assert bound.shapes[name] == array.shape
    for record, names in held_by(bound):
        assert held.object_bytes(str(record["id"])) == encoded(record, names, source, recipe), names
    assert {use.policy for use in bound.uses.values()} == {"A16Only"}
    for role, content in bound.resources.items():
        assert content == (source.folder / role).read_bytes()
