"""However it is installed, the package finds its built-in recipes and its program runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support import REPOSITORY, TINY_LLAMA

RECIPES = sorted(path.stem for path in (REPOSITORY / "recipes").glob("*.toml"))


def run(*arguments: str | Path, folder: Path) -> str:
    """Standard output of a command that must succeed, run in `folder`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [os.fspath(argument) for argument in arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist of the repository, and the wheel built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, REPOSITORY, folder=folder)
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return {"sdist": sdist, "wheel": wheel}


def install(folder: Path, *requirement: str | Path) -> Path:
    """A new environment with the package installed; its folder of programs.

    Dependencies and build backend are borrowed from this environment, behind what the new one has itself.
    """
    venv.create(folder / "env", with_pip=False)
    programs = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    packages = run(programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder)
    (Path(packages.strip()) / "zz_borrowed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet"]
    run(*pip, "--no-deps", "--ignore-installed", "--no-build-isolation", "--no-index", *requirement, folder=folder)
    return programs


@pytest.mark.parametrize("how", ["wheel", "sdist", "editable"])
def test_the_recipes_are_found(how: str, built: dict[str, Path], tmp_path: Path) -> None:
    programs = install(tmp_path, *(["-e", REPOSITORY] if how == "editable" else [built[how]]))
    code = "import ninfer_convert.recipe as r; print(*(b.name for b in r.builtin_recipes()), r.__file__)"
    *names, module = run(programs / "python", "-c", code, folder=tmp_path).split()
    assert sorted(names) == RECIPES
    assert Path(module).is_relative_to(REPOSITORY if how == "editable" else tmp_path)
    listed = run(programs / "ninfer-convert", "recipes", folder=tmp_path)
    assert all(name in listed for name in RECIPES)
    extended = run(programs / "ninfer-convert", "recipes", "check", "qwen3_6_27b", folder=tmp_path)
    assert "no faults" in extended


def test_a_package_that_nothing_can_be_written_beside_converts_too(tmp_path: Path) -> None:
    """Kernels are compiled anew where there is no folder to keep them in: here files stand in the place of all."""
    shutil.copytree(REPOSITORY / "ninfer_convert", tmp_path / "ninfer_convert", ignore=shutil.ignore_patterns("__py*"))
    shutil.copytree(REPOSITORY / "recipes", tmp_path / "ninfer_convert" / "recipes")
    for folder in (tmp_path / "ninfer_convert").rglob("*.py"):
        (folder.parent / "__pycache__").touch()
    home = tmp_path / "home"
    home.touch()
    nowhere = dict.fromkeys(("HOME", "USERPROFILE", "LOCALAPPDATA", "XDG_CACHE_HOME"), os.fspath(home))
    for name, more in (("usual", {}), ("nowhere", {**nowhere, "PYTHONPATH": os.fspath(tmp_path)})):
        command = (sys.executable, "-m", "ninfer_convert", TINY_LLAMA, "-r", "q4", "-o", tmp_path / f"{name}.ninfer")
        subprocess.run(command, cwd=tmp_path if more else REPOSITORY, env={**os.environ, **more}, check=True)
    assert (tmp_path / "nowhere.ninfer").read_bytes() == (tmp_path / "usual.ninfer").read_bytes()
    assert not home.read_bytes()


def test_the_sdist_carries_what_its_tests_need(built: dict[str, Path], tmp_path: Path) -> None:
    names = run("tar", "tzf", built["sdist"], folder=tmp_path)
    for path in ("tests/golden/layouts.json", "examples/tiny-llama/model.safetensors", "LICENSE", "CHANGELOG.md"):
        assert f"/{path}\n" in names


def test_the_package_is_typed(built: dict[str, Path], tmp_path: Path) -> None:
    names = run(sys.executable, "-m", "zipfile", "-l", built["wheel"], folder=tmp_path)
    assert "ninfer_convert/py.typed" in names
