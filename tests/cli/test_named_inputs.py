"""--source, --resource and --components: what is given by name beside INPUT."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ninfer_convert.container import open_artifact
from ninfer_convert.errors import SourceError
from ninfer_convert.sources import open_checkpoint
from tests.cli.checkpoints import make
from tests.cli.program import ok, run
from tests.support import TINY_LLAMA

RECIPE = """schema = 1
name = "t"
[sources]
other = "a second checkpoint"
[[assign]]
select = "*q_proj.weight"
source = "other"
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "t.toml"
    path.write_text(RECIPE)
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--source", "other"], "'other' is not NAME=PATH"),
        (["--source", "=x"], "'=x' is not NAME=PATH"),
        (["--source", "other="], "'other=' is not NAME=PATH"),
        (["--source", "other=a", "--source", "other=b"], "'other' is given twice"),
        (["--resource", "x"], "'x' is not ROLE=PATH"),
        (["--components", "text,,mtp"], "is not a list of different names"),
        (["--components", "text,text"], "is not a list of different names"),
    ],
)
def test_malformed_options_are_wrong_usage(arguments: list[str], message: str, recipe: Path) -> None:
    done = run("plan", TINY_LLAMA, "-r", recipe, *arguments)
    assert done.status == 2
    assert message in done.stderr


def test_a_source_is_read(recipe: Path) -> None:
    done = run("plan", TINY_LLAMA, "-r", recipe, "--source", f"other={TINY_LLAMA}", "--json")
    assert done.status == 0, done.stderr
    assert json.loads(done.stdout)["parameters"]


def test_a_source_that_is_not_given_or_not_declared_is_refused(recipe: Path) -> None:
    missing = run("plan", TINY_LLAMA, "-r", recipe)
    assert missing.status == 1
    assert "--source other=PATH" in missing.stderr
    undeclared = run("plan", TINY_LLAMA, "-r", "q4", "--source", "third=x")
    assert undeclared.status == 1
    assert "declares no source of that name" in undeclared.stderr


def test_a_resource_takes_the_place_of_the_checkpoints(tmp_path: Path) -> None:
    given = tmp_path / "mine.json"
    given.write_text("{}")
    out = tmp_path / "a.ninfer"
    assert run(TINY_LLAMA, "-r", "bf16", "-o", out, "--resource", f"tokenizer.json={given}").status == 0
    shown = json.loads(run("info", out, "--json").stdout)
    text = json.dumps(shown)
    assert '"mine.json"' in text
    missing = run(TINY_LLAMA, "-r", "bf16", "-o", tmp_path / "b.ninfer", "--resource", "tokenizer.json=absent")
    assert missing.status == 1
    assert "absent: does not exist; it was given for the role tokenizer.json" in missing.stderr


def test_an_unknown_component_is_answered_with_those_that_exist() -> None:
    done = run("plan", TINY_LLAMA, "-r", "q4", "--components", "text,mtp")
    assert done.status == 1
    assert "unknown component 'mtp' of generic. Known: text" in done.stderr


def test_a_file_that_is_not_there_is_told_in_the_same_words_by_every_command(tmp_path: Path) -> None:
    folder = make(tmp_path)
    ok("model.safetensors", "-r", "r.toml", cwd=folder)
    for command in (
        "info {}",
        "verify {}",
        "export {} -o out.safetensors",
        "check {} model.safetensors -r r.toml",
        "check model.ninfer {} -r r.toml",
        "compare {} model.safetensors",
        "compare model.ninfer {}",
        "plan {} -r r.toml",
    ):
        ran = run(*command.format("modle.ninfer").split(), cwd=folder)
        assert (ran.status, ran.stdout) == (1, "")
        assert ran.stderr.startswith("error: modle.ninfer: does not exist; did you mean model.ninfer")


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("modle", "no-such-file", "does not exist; did you mean model?"),
        ("absent/m.ninfer", "no-such-file", "does not exist"),
        ("pipe", "not-a-file", "is a pipe, device or socket, where a {} is needed"),
        ("link", "broken-link", "is a link to gone, which does not exist: download the file itself again"),
        ("a\0b", "unreadable", "cannot be read: its name holds a null character"),
    ],
)
@pytest.mark.parametrize(("reader", "needed"), [(open_artifact, ".ninfer file"), (open_checkpoint, "file")])
def test_what_stands_in_the_way_is_told_alike_for_artifacts_and_checkpoints(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reader: Callable[[str], object],
    needed: str,
    name: str,
    code: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model").write_bytes(b"")
    os.mkfifo("pipe")
    os.symlink("gone", "link")
    with pytest.raises(SourceError) as caught:
        reader(name)
    told = [(each.path, each.code, each.message) for each in caught.value.problems]
    assert told == [(name, code, said.format(needed))]
