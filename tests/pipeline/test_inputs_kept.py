"""What a conversion or an export reads is never what it writes over, forced or not."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from ninfer_convert import convert, export
from ninfer_convert.errors import NinferConvertError, OutputError
from ninfer_convert.pipeline.planned import Shaping
from ninfer_convert.pipeline.run import Running
from tests.pipeline import artifacts
from tests.pipeline.callables import SCALE, assign, written
from tests.pipeline.converting import checkpoint, lines, weights
from tests.support import write_safetensors

CONVERTED = {
    "model/one.safetensors": "the checkpoint",
    "model/model.safetensors.index.json": "the checkpoint",
    "model/config.json": "the checkpoint",
    "model/tokenizer.json": "the checkpoint",
    "recipe.toml": "the recipe",
    "base.toml": "the recipe",
    "code/own.py": "the recipe's code",
    "code/table.txt": "the recipe's code",
    "imatrix.dat": "source im",
    "unweighted.dat": "the importance matrix",
    "other.safetensors": "source other",
    "tk.json": "the resource tokenizer_config.json",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, a recipe that reads everything a recipe can, and all that it reads."""
    folder = tmp_path_factory.mktemp("inputs")
    checkpoint(folder / "model" / "one.safetensors", {"a": weights(4, 64), "b": weights(4, 64), "c": weights(4, 64)})
    index = {"weight_map": dict.fromkeys("abc", "one.safetensors")}
    for name, value in {"model.safetensors.index.json": index, "config.json": {}, "tokenizer.json": {}}.items():
        (folder / "model" / name).write_text(json.dumps(value))
    (folder / "tk.json").write_text("{}")
    checkpoint(folder / "other.safetensors", {"c": weights(4, 64, seed=1)})
    for name in ("imatrix.dat", "unweighted.dat"):
        entries = [struct.pack("<i1sii", 1, entry, 1, 64) + np.ones(64, "<f4").tobytes() for entry in (b"a", b"b")]
        (folder / name).write_bytes(struct.pack("<i", len(entries)) + b"".join(entries))
    written(folder, name="code/own.py")
    (folder / "code" / "table.txt").write_text("1")
    search = ['format = "q4_g64_fp16"', 'method = "grouped_search"']
    (folder / "base.toml").write_text(lines("schema = 1", "[sources]", 'im = "weights"', 'other = "another"'))
    (folder / "recipe.toml").write_text(
        lines("schema = 1", 'extends = "base.toml"')
        + lines("[[assign]]", 'select = "a"', *search, 'parameters = { imatrix = "im" }')
        + lines("[[assign]]", 'select = "b"', *search, 'parameters = { imatrix = "unweighted.dat" }')
        + lines("[[assign]]", 'select = "c"', 'source = "other"')
        + assign("c", method="code/own.py:rounded", parameters='{ scale = 0.005, table = "table.txt" }')
    )
    return folder


def shaping(folder: Path) -> Shaping:
    return Shaping(
        sources={"im": str(folder / "imatrix.dat"), "other": str(folder / "other.safetensors")},
        resources={"tokenizer_config.json": str(folder / "tk.json")},
        allow_code=True,
    )


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", CONVERTED)
def test_no_input_of_a_conversion_is_replaced(folder: Path, name: str, force: bool) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(OutputError) as caught:
        convert(
            folder / "model",
            folder / "recipe.toml",
            folder / name,
            shaping=shaping(folder),
            running=Running(force=force),
        )
    (problem,) = caught.value.problems
    assert (problem.code, problem.path) == ("is-input", str(folder / name))
    assert problem.message == f"is a file of {CONVERTED[name]} itself, and is not replaced; choose another name"
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_link_to_an_input_is_no_other_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.ninfer").symlink_to(folder / "tk.json")
    with pytest.raises(OutputError, match="is a file of the resource"):
        convert(
            folder / "model",
            folder / "recipe.toml",
            tmp_path / "a.ninfer",
            shaping=shaping(folder),
            running=Running(force=True),
        )


def test_what_is_no_input_is_replaced(folder: Path, tmp_path: Path) -> None:
    """Beside the checkpoint too."""
    (folder / "model" / "README.md").write_text("older")
    output = folder / "model" / "README.md"
    convert(folder / "model", folder / "recipe.toml", output, shaping=shaping(folder), running=Running(force=True))
    assert output.read_bytes().startswith(b"NINFER")
    output.unlink()


def test_a_built_in_recipe_is_no_file_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint(Path("m.safetensors"), {"a": weights(4, 64)})
    Path("elsewhere").mkdir()
    Path("elsewhere/r.toml").write_text(lines("schema = 1", 'extends = "bf16"'))
    Path("bf16.toml").write_text("older")
    convert("m.safetensors", "elsewhere/r.toml", "bf16.toml", running=Running(force=True))
    assert Path("bf16.toml").read_bytes().startswith(b"NINFER")


@pytest.mark.parametrize("standing", ["file", "folder", "full"])
def test_the_destination_is_refused_before_any_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standing: str
) -> None:
    model = checkpoint(tmp_path / "m.safetensors", {"a": weights(4, 64)})
    written(tmp_path)
    (tmp_path / "r.toml").write_text(lines("schema = 1") + assign("a", **SCALE))
    if standing == "file":
        (tmp_path / "a.ninfer").write_text("older")
    elif standing == "folder":
        (tmp_path / "a.ninfer").mkdir()
    else:
        monkeypatch.setattr("shutil.disk_usage", lambda folder: type("", (), {"free": 100})())
    with pytest.raises(OutputError):
        convert(model, tmp_path / "r.toml", tmp_path / "a.ninfer", shaping=Shaping(allow_code=True))
    assert not (tmp_path / "own.py.ran").exists()


LIKE = {"w": ("F32", (2, 2), np.arange(4.0, dtype="<f4").tobytes())}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return artifacts.write(tmp_path / "a.ninfer", {"w": artifacts.floats("fp32", np.arange(4.0).reshape(2, 2))})


def refused(artifact: Path, output: Path, like: Path) -> tuple[str, str | None]:
    """What is said of an export that would replace an input, and leaves all as it is."""
    before = {path: path.read_bytes() for path in output.parent.rglob("*") if path.is_file()}
    found = set()
    for force in (False, True):
        with pytest.raises(NinferConvertError) as caught:
            export(artifact, output, like=like, force=force)
        (problem,) = caught.value.problems
        found.add((problem.code, problem.message, problem.path))
    assert {path: path.read_bytes() for path in output.parent.rglob("*") if path.is_file()} == before
    ((code, message, path),) = found
    assert message == "is a file of the checkpoint itself, and is not replaced; choose another name"
    return code, path


def test_an_export_does_not_replace_the_checkpoint_that_it_is_like(small: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    write_safetensors(model / "model.safetensors", LIKE)
    for output in (model, model / "model.safetensors"):
        assert refused(small, output, model) == ("is-input", str(model / "model.safetensors"))


def test_nor_its_config(small: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    write_safetensors(model / "w.safetensors", LIKE)
    (model / "config.json").write_text('{"model_type": "another"}')
    assert refused(small, model, model / "w.safetensors") == ("is-input", str(model / "config.json"))


def test_nor_shards_of_it_that_would_be_in_the_way(small: Path, tmp_path: Path) -> None:
    """An export's folder keeps no weights of another model, and takes them away."""
    model = tmp_path / "model"
    model.mkdir()
    shard = "model-00001-of-00001.safetensors"
    write_safetensors(model / shard, LIKE)
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": shard}}))
    assert refused(small, model, model) == ("is-input", str(model / shard))
