"""The program as a whole: help, version, which word is a command, exit statuses, errors as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ninfer_convert
from ninfer_convert.cli.main import COMMANDS
from tests.cli.checkpoints import make
from tests.cli.program import environment, ok, run


def test_help_lists_every_command_and_the_bare_form() -> None:
    page = ok("--help").stdout
    assert "ninfer-convert model.safetensors --recipe q4" in page
    for command in COMMANDS:
        assert f"\n  {command} " in page


@pytest.mark.parametrize("command", [*((each,) for each in COMMANDS), ("recipes", "show"), ("recipes", "check")])
def test_every_command_has_help_with_an_example_and_json(command: tuple[str, ...]) -> None:
    page = ok(*command, "--help").stdout
    assert f"\n  ninfer-convert {' '.join(command)}" in page
    assert "--json" in page
    assert ok(*command, "-h").stdout == page


def test_version() -> None:
    assert ok("--version").stdout == f"ninfer-convert {ninfer_convert.__version__}\n"


def test_nothing_to_do_is_wrong_usage_and_shows_the_help() -> None:
    ran = run()
    assert (ran.status, ran.stdout) == (2, "")
    assert ran.stderr == ok("--help").stdout


def test_commands_of_later_versions_are_unknown(tmp_path: Path) -> None:
    assert run("doctor", "a", "b", cwd=tmp_path).status == 2


@pytest.mark.parametrize("option", ["--resume", "--digest-sources", "--error-on", "--tensors"])
def test_options_that_do_not_exist_are_wrong_usage(option: str) -> None:
    ran = run("model.safetensors", "-r", "q4", option)
    assert ran.status == 2
    assert ran.stderr.startswith("error: No such option")
    assert option in ran.stderr


def test_a_misspelt_command_is_answered_with_the_nearest() -> None:
    ran = run("verfy", "model.ninfer")
    assert ran.status == 2
    assert ran.stderr == ("error: unknown command 'verfy'; did you mean verify?\nTry 'ninfer-convert --help'.\n")
    ran = run("help")
    assert ran.status == 2
    assert ran.stderr.startswith("error: unknown command 'help'; --help lists the commands")


def test_surplus_arguments_are_wrong_usage(tmp_path: Path) -> None:
    for name in ("in-1.gguf", "in-2.gguf", "in-3.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    before = sorted(tmp_path.iterdir())
    for words in (("convert",), (), ("plan",)):
        ran = run(*words, "in-1.gguf", "in-2.gguf", "in-3.gguf", "-r", "q4", cwd=tmp_path)
        assert ran.status == 2
        assert "in-2.gguf in-3.gguf" in ran.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_a_missing_recipe_says_where_to_find_one() -> None:
    ran = run("model.safetensors")
    assert ran.status == 2
    assert "'ninfer-convert recipes' lists them" in ran.stderr
    assert ran.stderr.endswith("Try 'ninfer-convert convert --help'.\n")


@pytest.mark.parametrize("jobs", ["0", "-1", "many", "100000", "٣"])
def test_jobs_must_be_a_sensible_number(jobs: str) -> None:
    ran = run("model.safetensors", "-r", "q4", "--jobs", jobs)
    assert ran.status == 2
    assert "--jobs" in ran.stderr


@pytest.mark.parametrize("size", ["0", "-5", "32G", "1.5", "GB", "4 XB", "0.0001kB", "", "nan"])
def test_a_size_must_be_a_positive_number_of_bytes(size: str) -> None:
    ran = run("model.safetensors", "-r", "q4", f"--max-file-bytes={size}")
    assert ran.status == 2
    assert "--max-file-bytes" in ran.stderr


def test_empty_texts_are_wrong_usage() -> None:
    for option in ("--name", "-o"):
        ran = run("model.safetensors", "-r", "q4", option, "")
        assert ran.status == 2
        assert "must not be empty" in ran.stderr


def test_usage_errors_are_json_with_json() -> None:
    ran = run("plan", "--json", "a", "b")
    assert ran.status == 2
    assert ran.failure["warnings"] == []
    (error,) = ran.failure["errors"]
    assert list(error) == ["code", "message", "file", "tensor", "line", "column"]
    assert error["code"] == "usage"


def test_the_first_word_is_a_command_only_if_it_is_exactly_one(tmp_path: Path) -> None:
    """`./plan` is a file; an option in front belongs to convert."""
    (tmp_path / "plan").write_bytes(b"")
    ran = run("./plan", "-r", "q4", cwd=tmp_path)
    assert (ran.status, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: ./plan: is empty")
    ran = run("--recipe", "q4", "missing.gguf", cwd=tmp_path)
    assert ran.status == 1
    assert ran.stderr.startswith("error: missing.gguf: does not exist")
    ran = run("--", "-missing.gguf", cwd=tmp_path)
    assert ran.status == 2
    assert "recipe" in ran.stderr


def test_control_characters_of_an_argument_are_escaped(tmp_path: Path) -> None:
    ran = run("info", "evil\x1b[31m\nname", cwd=tmp_path)
    assert ran.status == 1
    assert "\x1b" not in ran.stderr
    assert "evil\\x1b[31m\\nname" in ran.stderr
    ran = run("plan", "x", "evil\x1b[31m\nname", "-r", "q4", cwd=tmp_path)
    assert ran.status == 2
    assert "(evil\\x1b[31m\\nname)\n" in ran.stderr


@pytest.mark.parametrize("file", ["absent", "empty"])
def test_control_characters_of_a_role_are_escaped(tmp_path: Path, file: str) -> None:
    (make(tmp_path) / "empty").touch()
    said = run("plan", "model.safetensors", "-r", "q4", "--resource", f"a\nb={file}", "--json", cwd=tmp_path)
    messages = json.loads(said.stderr or said.stdout)
    told = [problem["message"] for problem in (*messages.get("errors", ()), *messages["warnings"])]
    assert any(message.endswith(" a\\nb") for message in told)


def test_the_traceback_comes_with_debug_alone(tmp_path: Path) -> None:
    assert "Traceback" not in run("info", "missing", cwd=tmp_path).stderr
    assert "Traceback" in run("info", "missing", "--debug", cwd=tmp_path).stderr
    failure = run("info", "missing", "--debug", "--json", cwd=tmp_path).failure
    assert "Traceback" in failure["traceback"]


def test_an_exception_of_no_known_kind_asks_for_a_report(tmp_path: Path) -> None:
    """A module that shadows one of ours stands for a fault in the program."""
    (tmp_path / "sitecustomize.py").write_text("import ninfer_convert.formats\nninfer_convert.formats.FORMATS = None\n")
    ran = run("formats", env=environment(PYTHONPATH=str(tmp_path)))
    assert (ran.status, ran.stdout) == (1, "")
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith("error: this is a fault of ninfer-convert itself (TypeError: ")
    assert "--debug" in ran.stderr


UNMAPPED = "lib.so: failed to map segment from shared object"


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (
            f"raise ImportError('a bad install\\n\\nOriginal error was: {UNMAPPED}\\n')",
            f"was: {UNMAPPED}): there is too",
        ),
        (
            f"try: raise OSError('{UNMAPPED}')\n  except OSError: raise OSError('not found')",
            f"({UNMAPPED}): there is too",
        ),
        ("raise MemoryError", "memory ran out; "),
        ("raise OSError(errno.ENOMEM, 'no memory')", "memory ran out; "),
        ('raise RuntimeError("can\'t allocate lock")', "memory ran out; "),
        ("raise ImportError('lib.so: undefined symbol')", "a fault of ninfer-convert itself"),
        ("raise OSError('not found')", "the system does not let the program go on: not found"),
    ],
)
def test_too_little_memory_is_told_as_that(tmp_path: Path, fails: str, told: str) -> None:
    """A registry that cannot be listed stands for a library that cannot be loaded."""
    module = f"import errno, ninfer_convert.formats\nclass Formats:\n def __iter__(self):\n  {fails}\n"
    (tmp_path / "sitecustomize.py").write_text(f"{module}ninfer_convert.formats.FORMATS = Formats()\n")
    ran = run("formats", env=environment(PYTHONPATH=str(tmp_path)))
    assert (ran.status, ran.stdout) == (1, "")
    assert ran.stderr.count("\n") == 1
    assert told in ran.stderr
