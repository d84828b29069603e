"""Importance matrices of a Qwen3.5 model: each logical parameter is weighed by what llama.cpp measured at its input."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninfer_convert import Shaping, plan
from tests.architectures import importances, small


@pytest.mark.parametrize("kind", ["dense", "experts of their own", "experts in banks"])
def test_each_parameter_takes_the_vector_of_its_input(tmp_path: Path, kind: str) -> None:
    small.write(tmp_path, small.KINDS[kind])
    entries = importances.vectors()
    matrix = importances.write(tmp_path / "m.dat", entries)
    planned = plan(tmp_path, "q4_imatrix", Shaping(sources={"imatrix": str(matrix)}))
    weighed = 0
    for member in (member for tensor in planned.tensors for member in tensor.members):
        searched = member.method.name == "grouped_search"
        expected = importances.of(member.parameter, entries) if searched else None
        found = member.importance
        assert (None if found is None else found.tolist()) == (None if expected is None else expected.tolist())
        weighed += found is not None
    assert weighed == {"dense": 32}.get(kind, 68)
