"""config.json: an object, read strictly, or absent (recipes.md, The generic architecture)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninfer_convert.errors import SourceError
from ninfer_convert.sources import Checkpoint, open_checkpoint
from ninfer_convert.sources.config import read_config
from tests.oracle import safetensors as oracle


def checkpoint(folder: Path) -> Checkpoint:
    (folder / "m.safetensors").write_bytes(oracle.build({"t": oracle.tensor("U8", (1,))}))
    return open_checkpoint(folder)


def test_its_object_and_its_absence(tmp_path: Path) -> None:
    assert read_config(checkpoint(tmp_path)) is None
    (tmp_path / "config.json").write_text('{"a": {"b": [1, 2.5, "é", null, true]}}', encoding="utf-8")
    assert read_config(checkpoint(tmp_path)) == {"a": {"b": [1, 2.5, "é", None, True]}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"rope": {"factor": NaN}}', "holds NaN at rope.factor, which is not JSON"),
        ('{"a": [0, -Infinity]}', "holds -Infinity at a[1], which is not JSON"),
        ('{"eps": 1e400}', "holds the number 1e400 at eps, beyond binary64"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "has the member 'c' twice"),
        ("[]", "is no JSON object"),
        ("null", "is no JSON object"),
        ("", "is not JSON"),
        ("{'a': 1}", "is not JSON"),
        ('\ufeff{"a": 1}', "begins with a byte order mark"),
    ],
)
def test_what_is_refused_names_the_file_and_the_member(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(SourceError) as caught:
        read_config(checkpoint(tmp_path))
    (problem,) = caught.value.problems
    assert problem.path == str(tmp_path / "config.json")
    assert expected in problem.message


def test_a_config_that_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(SourceError, match=r"config\.json: is a folder, where a file is needed"):
        read_config(checkpoint(tmp_path))
