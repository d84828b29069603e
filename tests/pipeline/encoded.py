"""Encoded checkpoints, small recipes for them, and what their artifacts hold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ninfer_convert.errors import NinferConvertError
from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.planned import Plan, Shaping
from ninfer_convert.pipeline.run import Running, run
from ninfer_convert.pipeline.verify import verify
from tests.oracle import container, safetensors

GOLDEN = Path(__file__).parent.parent / "golden" / "encoded"
LAYER = "model.layers.0"


def checkpoint(folder: str, into: Path) -> Path:
    """A peer's checkpoint without what the peer decoded it to."""
    return shutil.copytree(GOLDEN / folder, into / folder, ignore=shutil.ignore_patterns("expected*", "ct_div*"))


def written(folder: Path, tensors: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(safetensors.build(tensors))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def recipe(folder: Path, text: str) -> str:
    path = folder / "recipe.toml"
    path.write_text(f'schema = 1\nname = "t"\n{text}', encoding="utf-8")
    return str(path)


def assign(select: str, **says: Any) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in says.items() if key != "parameters"]
    lines += [f"parameters = {{ {says['parameters']} }}"] if "parameters" in says else []
    return "\n".join(["[[assign]]", f'select = "{select}"', *lines, ""])


def planned(input: Path, text: str, folder: Path, **shaping: Any) -> Plan:
    """The plan of `input` by a built-in recipe, or by a recipe of these lines."""
    return make_plan(str(input), text if "\n" not in text else recipe(folder, text), Shaping(**shaping))


def convert(
    input: Path, text: str, folder: Path, name: str = "a.ninfer", running: Running | None = None, **shaping: Any
) -> container.Container:
    run(planned(input, text, folder, **shaping), folder / name, running or Running(force=True))
    assert verify(str(folder / name)).faults == ()
    return container.read(folder / name)


def refused(input: Path, text: str, folder: Path, **shaping: Any) -> NinferConvertError:
    """The error of a plan or conversion; nothing is left behind."""
    with pytest.raises(NinferConvertError) as caught:
        run(planned(input, text, folder, **shaping), folder / "refused.ninfer", Running())
    assert not list(folder.glob("refused*"))
    return caught.value


def bound(artifact: container.Container, name: str) -> tuple[str, bytes]:
    """Format and bytes of the object that a parameter is bound to."""
    id = object_of(artifact, name)
    (record,) = (record for record in artifact.directory["objects"] if record["id"] == id)
    return record["format"], artifact.object_bytes(id)


def object_of(artifact: container.Container, name: str) -> str:
    binding = artifact.directory["bindings"][name]
    id: str = binding["object"] if "object" in binding else binding["parts"][0]["object"]
    return id


def made(artifact: container.Container, name: str) -> dict[str, Any]:
    """The provenance of a parameter's object."""
    record: dict[str, Any] = artifact.directory["provenance"]["objects"][object_of(artifact, name)]
    return record
