"""Resources and components of a recipe and of the command line (recipes.md, Tables)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.converting import (
    checkpoint,
    convert,
    ids,
    lines,
    messages,
    planned,
    refused,
    weights,
)

if TYPE_CHECKING:
    from tests.oracle.container import Container


def resource(component: str, role: str, path: str) -> str:
    return lines("[[resource]]", f"component = '{component}'", f"role = '{role}'", f"path = '{path}'")


BLOCKS = Path(__file__).parent.parent / "golden" / "gguf" / "blocks.gguf"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint with files beside it."""
    found = tmp_path / "model"
    checkpoint(found / "model.safetensors", {"w": weights(2, 64)})
    (found / "sub").mkdir()
    for name, text in {"tokenizer.json": "{}", "sub/tokens.txt": "a b", "other.json": "[]", "empty": ""}.items():
        (found / name).write_text(text)
    return found


def resources(artifact: Container) -> dict[str, bytes]:
    roles = artifact.directory["components"]["text"].get("resources", {})
    return {role: artifact.object_bytes(id) for role, id in roles.items()}


def test_a_resource_is_a_file_of_the_folder_behind_the_usual_ones(folder: Path, tmp_path: Path) -> None:
    artifact = convert(folder, resource("text", "tokens", "sub/tokens.txt"), tmp_path)
    assert resources(artifact) == {"tokenizer.json": b"{}", "tokens": b"a b"}
    assert ids(artifact) == ["resource/text/tokenizer.json", "resource/text/tokens", "weight/000000"]
    assert artifact.directory["provenance"]["objects"]["resource/text/tokens"]["file"] == "tokens.txt"


def test_a_resource_takes_the_place_of_the_usual_file_and_the_option_its(folder: Path, tmp_path: Path) -> None:
    recipe = resource("text", "tokenizer.json", "other.json")
    assert resources(convert(folder, recipe, tmp_path)) == {"tokenizer.json": b"[]"}
    given = tmp_path / "given.json"
    given.write_text('{"mine": 1}')
    artifact = convert(folder, recipe, tmp_path, resources={"tokenizer.json": str(given), "extra": str(given)})
    assert resources(artifact) == {"tokenizer.json": b'{"mine": 1}', "extra": b'{"mine": 1}'}
    assert artifact.directory["provenance"]["objects"]["resource/text/extra"]["file"] == "given.json"


def test_resources_that_cannot_be_are_refused_together(folder: Path, tmp_path: Path) -> None:
    recipe = resource("text", "a", "absent") + resource("vision", "b", "other.json")
    assert messages(refused(folder, recipe, tmp_path)) == [
        f"2: there is no {folder}/absent for the role a",
        "6: unknown component 'vision' of generic. Known: text",
    ]
    (problem,) = refused(folder, resource("text", "c", "sub"), tmp_path).problems
    assert (problem.path, problem.message) == (f"{folder}/sub", "is a folder, where a file is needed")


def test_an_empty_resource_is_passed_by_with_a_warning(folder: Path, tmp_path: Path) -> None:
    recipe = resource("text", "nothing", "empty") + resource("text", "tokenizer.json", "empty")
    plan = planned(folder, recipe, tmp_path)
    warnings = [(warning.code, warning.path) for warning in plan.warnings if warning.code == "empty-resource"]
    assert warnings == [("empty-resource", f"{folder}/empty")] * 2
    assert resources(convert(folder, recipe, tmp_path)) == {}


def test_the_metadata_of_a_gguf_can_be_replaced_too(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"own")
    artifact = convert(BLOCKS, "gguf", tmp_path, resources={"gguf_metadata": str(tmp_path / "mine")})
    assert resources(artifact) == {"gguf_metadata": b"own"}


def test_unknown_components_are_answered_with_those_that_exist(folder: Path, tmp_path: Path) -> None:
    recipe = "components = ['text', 'mtp', 'dflash']\n"
    assert messages(refused(folder, recipe, tmp_path)) == [
        "2: unknown component 'mtp' of generic. Known: text",
        "2: unknown component 'dflash' of generic. Known: text",
    ]
    (problem,) = refused(folder, recipe, tmp_path, components=("vision",)).problems
    assert str(problem) == "--components: unknown component 'vision' of generic. Known: text"
    assert list(convert(folder, recipe, tmp_path, components=("text",)).directory["components"]) == ["text"]


def test_an_unknown_architecture_is_told_with_its_line(folder: Path, tmp_path: Path) -> None:
    assert messages(refused(folder, "architecture = 'lama'\n", tmp_path)) == [
        "2: unknown architecture 'lama'; did you mean llama? Known: auto, generic, llama, qwen3_5"
    ]
