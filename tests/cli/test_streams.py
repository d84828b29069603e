"""What goes where: results to stdout, the rest to stderr, in any locale, into pipes and terminals."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.cli.checkpoints import make
from tests.cli.program import PROGRAM, decoded, environment, ok, run
from tests.support import bf16, gaussian, write_safetensors

ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}


def on_terminal(*arguments: str, cwd: Path, **changes: str | None) -> str:
    """What a run prints on a terminal, both streams together."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=cwd,
        env=environment(**{"TERM": "xterm-256color", "COLUMNS": "200", **changes}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            more = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        shown += more
    os.close(ours)
    assert process.wait(timeout=60) in (0, 1, 2, 3)
    return decoded(shown)


@pytest.mark.parametrize("changes", [ASCII, {}], ids=["ascii", "utf-8"])
def test_any_name_works_in_any_locale(tmp_path: Path, changes: dict[str, str]) -> None:
    name = "-модель 模型 [attn] :smile: ü\t"
    folder = make(tmp_path / name, f"{name}.safetensors")
    env = environment(**changes)
    given = f"./{name}.safetensors"
    ok(given, "-r", "r.toml", cwd=folder, env=env)
    artifact = folder / f"{name}.ninfer"
    assert artifact.is_file()
    for command in (("info",), ("verify",)):
        assert ok(*command, f"./{name}.ninfer", cwd=folder, env=env).stdout
    document = ok("info", "--json", f"./{name}.ninfer", cwd=folder, env=env).result
    assert os.fsencode(document["path"]) == os.fsencode(f"./{name}.ninfer")
    refused = run(given, "-r", "r.toml", cwd=folder, env=env)
    assert refused.status == 1
    assert "exists already" in refused.stderr


@pytest.mark.parametrize("changes", [ASCII, {}], ids=["ascii", "utf-8"])
def test_paths_that_are_not_utf8_work_and_are_printed_escaped(tmp_path: Path, changes: dict[str, str]) -> None:
    raw = os.path.join(os.fsencode(tmp_path), b"m\xff\xfedel")
    folder = make(Path(os.fsdecode(raw)))
    env = environment(**changes)
    ran = ok(folder, "-r", folder / "r.toml", cwd=tmp_path, env=env)
    assert "m\\udcff\\udcfedel.ninfer" in ran.stdout
    document = ok("info", "--json", folder, env=env).result
    assert os.fsencode(document["path"]) == raw


def test_texts_are_utf8_in_every_locale(tmp_path: Path) -> None:
    """Names of files and models are recorded alike, and a glob meets the names it spells."""
    folder = make(tmp_path / "модель", "имя.safetensors")
    write_safetensors(folder / "имя.safetensors", {"вес": ("BF16", (2, 64), bf16(gaussian((2, 64))))})
    (folder / "р.toml").write_text("schema = 1\n", encoding="utf-8")
    options = ("-r", "р.toml", "--name", "имя", "--set", "вес:format=q8_g32_fp16", "--json", "-o")
    for changes, out in ((ASCII, "a.ninfer"), ({}, "b.ninfer")):
        ok("имя.safetensors", *options, out, cwd=folder, env=environment(**changes))
    assert (folder / "a.ninfer").read_bytes() == (folder / "b.ninfer").read_bytes()
    shown = ok("info", "a.ninfer", "--parameter", "вес", cwd=folder, env=environment(**ASCII)).stdout
    assert "q8_g32_fp16" in shown
    ran = run("имя.safetensors", "-r", "р.toml", "--name", os.fsdecode(b"\xff"), cwd=folder)
    assert ran.status == 2
    assert "is not UTF-8" in ran.stderr


def test_names_inside_a_file_are_printed_escaped_and_not_as_markup(tmp_path: Path) -> None:
    names = ["[bold red]x[/]", "\x1b[31mred", "a\nb", "имя", ":smile:", "tab\t"]
    data = bf16(gaussian((4, 64)))
    write_safetensors(tmp_path / "m.safetensors", dict.fromkeys(names, ("BF16", (4, 64), data)))
    for env in (environment(), environment(**ASCII)):
        shown = ok("info", "m.safetensors", "--tensors", cwd=tmp_path, env=env).stdout
        assert "\x1b" not in shown
        assert "\t" not in shown
        for expected in ("[bold red]x[/]", "\\x1b[31mred", "a\\nb", ":smile:"):
            assert expected in shown
    listed = ok("info", "m.safetensors", "--json", cwd=tmp_path, env=environment(**ASCII)).result["tensors"]
    assert [tensor["name"] for tensor in listed] == names


def test_a_reader_that_goes_away_is_no_fault(tmp_path: Path) -> None:
    folder = make(tmp_path)
    for command in (("plan", "model.safetensors", "-r", "r.toml"), ("formats",), ("--help",), ("formats", "--json")):
        read, write = os.pipe()
        os.close(read)
        process = subprocess.Popen(
            [*PROGRAM, *command], cwd=folder, env=environment(), stdout=write, stderr=subprocess.PIPE
        )
        os.close(write)
        _, stderr = process.communicate(timeout=60)
        assert (process.returncode, stderr) == (0, b"")


def test_a_broken_pipe_does_not_change_a_judgement(tmp_path: Path) -> None:
    (tmp_path / "bad.ninfer").write_bytes(b"NINFER\x00\x03")
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen([*PROGRAM, "verify", "bad.ninfer"], cwd=tmp_path, env=environment(), stdout=write)
    os.close(write)
    assert process.wait(timeout=60) == 3


def test_a_conversion_goes_on_when_nobody_reads_what_it_says(tmp_path: Path) -> None:
    folder = make(tmp_path)
    read, write = os.pipe()
    os.close(read)
    command = [*PROGRAM, "model.safetensors", "-r", "r.toml"]
    process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=write, stderr=write)
    os.close(write)
    assert process.wait(timeout=60) == 0
    assert ok("verify", "model.ninfer", cwd=folder)


def test_a_full_device_under_stdout_is_told() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*PROGRAM, "formats"], env=environment(), stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert done.returncode == 1
    assert decoded(done.stderr) == "error: standard output cannot be written: No space left on device\n"


def test_a_help_page_on_a_full_device_is_told() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*PROGRAM, "--help"], env=environment(), stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert done.returncode == 1
    expected = "error: the system does not let the program go on: [Errno 28] No space left on device\n"
    assert decoded(done.stderr) == expected


def test_closed_streams_are_no_fault() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *PROGRAM, "formats"], env=environment(), check=False, timeout=60
    )
    assert done.returncode == 0


def test_colour_is_for_terminals_alone(tmp_path: Path) -> None:
    assert "\x1b[31m\x1b[1merror:" in on_terminal("info", "missing", cwd=tmp_path)
    assert "\x1b" not in on_terminal("info", "missing", cwd=tmp_path, NO_COLOR="1")
    assert "\x1b" not in on_terminal("info", "missing", cwd=tmp_path, TERM="dumb")
    assert "\x1b" not in run("info", "missing", cwd=tmp_path, env=environment(FORCE_COLOR="1")).stderr


def test_a_terminal_shows_a_bar_and_then_the_result(tmp_path: Path) -> None:
    folder = make(tmp_path)
    shown = on_terminal("model.safetensors", "-r", "r.toml", cwd=folder)
    assert "converting" in shown
    assert "bits per weight" in shown
    quiet = on_terminal("model.safetensors", "-r", "r.toml", "--force", "--quiet", cwd=folder)
    assert quiet == ""
    plain = on_terminal("model.safetensors", "-r", "r.toml", "--force", cwd=folder, NO_COLOR="1")
    assert "converting" in plain
    assert not any(code in plain for code in ("\x1b[1m", "\x1b[3", "\x1b[9", "\x1b[2m"))


def test_warnings_go_to_stderr_a_line_each_or_into_the_json(tmp_path: Path) -> None:
    folder = make(tmp_path, recipe='schema = 1\n[defaults]\nF16 = "fp32"\n')
    ran = ok("plan", "model.safetensors", "-r", "r.toml", cwd=folder)
    assert ran.stderr.startswith("warning: r.toml: no assign decides 100% of the elements")
    assert ran.stderr.count("\n") == 1
    ran = ok("plan", "model.safetensors", "-r", "r.toml", "--json", cwd=folder)
    assert ran.stderr == ""
    (warning,) = ran.result["warnings"]
    assert warning["code"] == "untouched"
    assert ran.stdout.count("\n") == 1
    json.dumps(ran.result, allow_nan=False)


def test_many_warnings_of_one_kind_are_cut_with_their_number_but_not_in_json(tmp_path: Path) -> None:
    again = '[[assign]]\nselect = "*.norm.weight"\nformat = "bf16"\n'
    folder = make(tmp_path, recipe='schema = 1\n[defaults]\nF16 = "fp32"\n' + again * 13)
    ran = ok("plan", "model.safetensors", "-r", "r.toml", cwd=folder)
    lines = ran.stderr.splitlines()
    assert [line.split(":")[1:3] for line in lines[:10]] == [[" r.toml", str(4 + 3 * number)] for number in range(10)]
    assert lines[10] == "... and 2 more of this kind; --json shows all of them"
    assert [line.startswith("warning: r.toml: no assign decides") for line in lines[11:]] == [True]
    warnings = ok("plan", "model.safetensors", "-r", "r.toml", "--json", cwd=folder).result["warnings"]
    assert [warning["code"] for warning in warnings] == ["overridden"] * 12 + ["untouched"]
