"""verify: 0 for no faults, 3 for any, 1 where it cannot be read."""

from __future__ import annotations

from pathlib import Path

from tests.cli.program import ok, run


def test_a_sound_artifact(converted: Path) -> None:
    path = converted / "model.ninfer"
    id = path.read_bytes()[16:32].hex()
    ran = ok("verify", "model.ninfer", cwd=converted)
    assert ran.stdout == f"model.ninfer: no faults, id {id}\n"
    assert ran.stderr == ""
    assert ok("verify", "model.ninfer", "--quiet", cwd=converted).stdout == ""
    result = ok("verify", "model.ninfer", "--json", cwd=converted).result
    assert result == {
        "path": "model.ninfer",
        "artifact_id": id,
        "ok": True,
        "total": 0,
        "totals": {},
        "faults": [],
        "warnings": [],
    }


def test_every_flipped_byte_is_a_fault(converted: Path) -> None:
    path = converted / "model.ninfer"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    ran = run("verify", "model.ninfer", "--quiet", cwd=converted)
    assert ran.status == 3
    assert ran.stdout.startswith("model.ninfer: 1 fault\n  weight/000003: its bytes have the SHA-256 ")
    ran = run("verify", "model.ninfer", "--json", cwd=converted)
    assert ran.status == 3
    assert ran.result["ok"] is False
    assert [(fault["code"], fault["object"]) for fault in ran.result["faults"]] == [("digest", "weight/000003")]


def test_faults_of_framing_are_a_judgement_too(converted: Path) -> None:
    path = converted / "model.ninfer"
    path.write_bytes(path.read_bytes()[:-1])
    ran = run("verify", "model.ninfer", cwd=converted)
    assert ran.status == 3
    assert "1 fault\n" in ran.stdout
    assert run("verify", "model.safetensors", cwd=converted).status == 3


def test_what_cannot_be_read_is_an_error(converted: Path) -> None:
    ran = run("verify", "missing.ninfer", cwd=converted)
    assert (ran.status, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: missing.ninfer: ")
    assert run("verify", ".", "--json", cwd=converted).failure["errors"][0]["file"] == "."


def test_long_lists_are_cut_with_the_total(converted: Path) -> None:
    path = converted / "model.ninfer"
    data = bytearray(path.read_bytes())
    start = len(data) - 1352 - 128 - 256
    for index in range(start, len(data)):
        data[index] = 0xFF
    path.write_bytes(data)
    ran = run("verify", "model.ninfer", cwd=converted)
    assert ran.status == 3
    lines = ran.stdout.splitlines()
    total = int(lines[0].split()[1])
    assert len(lines) == 22
    assert lines[-1] == f"  ... and {total - 20:,} more"


def test_without_digests_it_warns(converted: Path) -> None:
    ok("model.safetensors", "-r", "r.toml", "--no-digest", "--force", cwd=converted)
    ran = ok("verify", "model.ninfer", cwd=converted)
    assert "word rules alone" in ran.stderr
    assert ran.stderr.startswith("warning: model.ninfer: ")
