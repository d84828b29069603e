"""Which architecture a checkpoint is of, and what asking for another one is answered (recipes.md, generic)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ninfer_convert.architectures import Request, choose
from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.config import read_config
from tests.architectures import small
from tests.architectures.building import build, refusal, write_files, write_headers
from tests.support import REPOSITORY

GGUF = REPOSITORY / "tests" / "golden" / "gguf" / "q2_0.gguf"


def chosen(folder: Path, name: str = "auto") -> str:
    checkpoint = open_checkpoint(folder)
    return choose(name, checkpoint, read_config(checkpoint)).name


def with_classes(folder: Path, classes: Any) -> Path:
    write_headers(folder, {"w.weight": (2, 2)})
    write_files(folder, {"config.json": {"architectures": classes}})
    return folder


@pytest.mark.parametrize(
    ("classes", "name"),
    [
        (["LlamaForCausalLM"], "generic"),
        (["Qwen3ForCausalLM"], "generic"),
        (["Qwen3_5ForCausalLM"], "qwen3_5"),
        (["Qwen3_5ForConditionalGeneration"], "qwen3_5"),
        (["Qwen3_5MoeForCausalLM"], "qwen3_5"),
        (["Qwen3_5MoeForConditionalGeneration"], "qwen3_5"),
        (["Qwen2ForCausalLM"], "generic"),
        (["LlamaForSequenceClassification"], "generic"),
        ([], "generic"),
        ("LlamaForCausalLM", "generic"),
        ([None, 3], "generic"),
        (None, "generic"),
    ],
)
def test_auto_goes_by_the_classes_of_the_config(tmp_path: Path, classes: Any, name: str) -> None:
    assert chosen(with_classes(tmp_path, classes)) == name


@pytest.mark.parametrize("classes", [["LlamaForCausalLM"], ["Qwen3ForCausalLM"]])
def test_what_no_engine_binds_is_taken_only_where_it_is_named(tmp_path: Path, classes: list[str]) -> None:
    assert chosen(with_classes(tmp_path, classes), "llama") == "llama"


def test_auto_is_generic_without_a_config(tmp_path: Path) -> None:
    write_headers(tmp_path, {"w.weight": (2, 2)})
    assert chosen(tmp_path) == "generic"


def test_generic_fits_every_checkpoint(tmp_path: Path) -> None:
    assert chosen(with_classes(tmp_path, ["LlamaForCausalLM"]), "generic") == "generic"


def test_an_unknown_name_is_answered_with_all(tmp_path: Path) -> None:
    with pytest.raises(LookupError) as caught:
        chosen(with_classes(tmp_path, None), "qwen3.5")
    assert str(caught.value) == (
        "unknown architecture 'qwen3.5'; did you mean qwen3_5? Known: auto, generic, llama, qwen3_5"
    )


@pytest.mark.parametrize(
    ("classes", "found"),
    [
        (["BertModel"], "describes BertModel"),
        (["A", "B"], "describes A, B"),
        (None, "names no architectures"),
        ([], "names no architectures"),
    ],
)
def test_a_checkpoint_of_another_architecture_than_is_named(tmp_path: Path, classes: Any, found: str) -> None:
    with_classes(tmp_path, classes)
    message = f"{found}, and the recipe is for llama (LlamaForCausalLM, Qwen3ForCausalLM); take another, such as q4"
    assert refusal(tmp_path, "llama") == [("other-architecture", message)]


def test_a_checkpoint_without_a_config(tmp_path: Path) -> None:
    write_headers(tmp_path, {"w.weight": (2, 2)})
    message = (
        "does not exist, and the recipe is for llama, which needs it: put it there, or give a folder that holds it by "
        "--source base=FOLDER"
    )
    assert refusal(tmp_path, "llama") == [("no-config", message)]


def test_logical_names_are_not_made_of_a_gguf(tmp_path: Path) -> None:
    file = shutil.copy(GGUF, tmp_path / "m.gguf")
    write_files(tmp_path, {"config.json": {"architectures": ["LlamaForCausalLM"]}})
    checkpoint = open_checkpoint(file)
    assert choose("auto", checkpoint, read_config(checkpoint)).name == "generic"
    message = (
        "is a GGUF of llama, and the recipe is for llama, which is read from safetensors only; take another, such as q4"
    )
    assert refusal(Path(file), "llama") == [("other-architecture", message)]


def test_the_one_component_may_be_named(tmp_path: Path) -> None:
    small.write(tmp_path, small.KINDS["dense"])
    named = build(tmp_path, request=Request(components=("text",)))
    assert [p.name for p in named.parameters] == [p.name for p in build(tmp_path).parameters]
    assert [component.name for component in named.components] == ["text"]
