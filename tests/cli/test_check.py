"""check, and verify --against: 0 for what the inputs give, 3 for anything else, 1 where nothing can be said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import ok, run
from tests.support import TINY_LLAMA

INPUTS = ("model.safetensors", "-r", "r.toml", "--name", "A model")


@pytest.mark.parametrize(
    ("options", "said"),
    [((), "as far as its directory tells; --full compares every byte"), (("--full",), "to the byte")],
)
def test_what_the_inputs_give(converted: Path, options: tuple[str, ...], said: str) -> None:
    before = sorted(path.name for path in converted.iterdir())
    ran = ok("check", "model.ninfer", *INPUTS, *options, cwd=converted)
    assert ran.stdout == f"model.ninfer: what model.safetensors gives with tiny, {said}\n"
    assert ok("check", "model.ninfer", *INPUTS, *options, "--quiet", cwd=converted).stdout == ""
    assert ok("check", "model.ninfer", *INPUTS, *options, "--json", cwd=converted).result == {
        "path": "model.ninfer",
        "input": "model.safetensors",
        "recipe": "tiny",
        "full": bool(options),
        "ok": True,
        "differences": [],
        "warnings": [],
    }
    assert sorted(path.name for path in converted.iterdir()) == before


def test_other_options_that_shape_the_result(converted: Path) -> None:
    ran = run("check", "model.ninfer", "model.safetensors", "-r", "r.toml", "--quiet", cwd=converted)
    assert ran.status == 3
    assert ran.stdout == (
        "model.ninfer: not what model.safetensors gives with tiny: 1 difference\n"
        '  metadata is not in the plan; it is {"name": "A model"}\n'
    )
    ran = run("check", "model.ninfer", *INPUTS, "--set", "*:method=magic", cwd=converted)
    assert (ran.status, ran.stdout) == (1, "")
    assert "magic" in ran.stderr


def test_long_lists_are_cut_with_the_total(converted: Path) -> None:
    ran = run("check", "parts.ninfer", TINY_LLAMA, "-r", "q4", cwd=converted)
    assert ran.status == 3
    head, *lines = ran.stdout.splitlines()
    total = int(head.split(": ")[-1].split()[0])
    result = run("check", "parts.ninfer", TINY_LLAMA, "-r", "q4", "--json", cwd=converted).result
    assert len(result["differences"]) == total
    assert [f"  {each['message']}" for each in result["differences"][:20]] == lines[:-1]
    assert lines[-1] == f"  ... and {total - 20} more"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_changed_byte(converted: Path) -> None:
    flip(converted / "model.ninfer")
    ok("check", "model.ninfer", *INPUTS, cwd=converted)
    ran = run("check", "model.ninfer", *INPUTS, "--full", "--json", cwd=converted)
    assert (ran.status, ran.stderr) == (3, "")
    (difference,) = ran.result["differences"]
    message = difference.pop("message")
    assert difference == {
        "code": "payload",
        "object": "weight/000003",
        "parameter": "layers.0.up.weight",
        "rows": [5, 6],
        "byte": 535,
    }
    assert message.startswith(
        "weight/000003 (layers.0.up.weight): 1 byte differs in rows [5, 6); the first is byte 535"
    )


def test_verify_against_says_both(converted: Path) -> None:
    inputs = ("--against", *INPUTS)
    id = (converted / "model.ninfer").read_bytes()[16:32].hex()
    ran = ok("verify", "model.ninfer", *inputs, cwd=converted)
    assert ran.stdout == (
        f"model.ninfer: no faults, id {id}\nmodel.ninfer: what model.safetensors gives with tiny, to the byte\n"
    )
    assert ok("verify", "model.ninfer", *inputs, "--quiet", cwd=converted).stdout == ""
    result = ok("verify", "model.ninfer", *inputs, "--json", cwd=converted).result
    assert (result["ok"], result["total"]) == (True, 0)
    assert result["against"] == {
        "input": "model.safetensors",
        "recipe": "tiny",
        "full": True,
        "ok": True,
        "differences": [],
    }
    flip(converted / "model.ninfer")
    ran = run("verify", "model.ninfer", *inputs, cwd=converted)
    assert ran.status == 3
    assert [line.split(": ")[0] for line in ran.stdout.splitlines()] == [
        "model.ninfer",
        "  weight/000003",
        "model.ninfer",
        "  weight/000003 (layers.0.up.weight)",
    ]


def test_verify_against_something_else(converted: Path) -> None:
    inputs = ("--against", "model.safetensors", "-r", "r.toml")
    ran = run("verify", "model.ninfer", *inputs, "--quiet", cwd=converted)
    assert ran.status == 3
    assert ran.stdout.startswith("model.ninfer: not what model.safetensors gives with tiny: 1 difference\n")
    result = run("verify", "model.ninfer", *inputs, "--json", cwd=converted).result
    assert (result["ok"], result["total"], result["faults"], result["against"]["ok"]) == (False, 0, [], False)


def test_wrong_usage(converted: Path) -> None:
    for words in (
        ("check", "model.ninfer", "model.safetensors"),
        ("check", "model.ninfer", "-r", "r.toml"),
        ("check", "model.ninfer", *INPUTS, "more"),
        ("check", "model.ninfer", *INPUTS, "-o", "x"),
        ("verify", "model.ninfer", "--against", "model.safetensors"),
        ("verify", "model.ninfer", "-r", "r.toml"),
        ("verify", "model.ninfer", "--requantize"),
        ("verify", "model.ninfer", "--name", "A model"),
    ):
        assert run(*words, cwd=converted).status == 2, words
    ran = run("verify", "model.ninfer", "--against", "model.safetensors", cwd=converted)
    assert ran.stderr.startswith("error: --against needs the recipe to convert by: -r RECIPE\n")


def test_what_cannot_be_read(converted: Path) -> None:
    for words in (
        ("check", "none.ninfer", *INPUTS),
        ("check", "model.ninfer", "none.safetensors", "-r", "r.toml"),
        ("check", "model.ninfer", "model.safetensors", "-r", "none.toml"),
        ("verify", "model.ninfer", "--against", "none.safetensors", "-r", "r.toml"),
    ):
        ran = run(*words, cwd=converted)
        assert (ran.status, ran.stdout) == (1, "")
        assert "none." in ran.stderr


def test_a_damaged_artifact_is_none_of_these(converted: Path) -> None:
    path = converted / "model.ninfer"
    path.write_bytes(path.read_bytes()[:-1])
    ran = run("check", "model.ninfer", *INPUTS, cwd=converted)
    assert ran.status == 3
    assert "1 difference\n  model.ninfer: is " in ran.stdout
