"""Whole conversions: every byte of every object, provenance, and what must not change a byte."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ninfer_convert.container import open_artifact
from ninfer_convert.errors import NinferConvertError, NumericError, RecipeError, SourceError
from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.planned import Shaping
from ninfer_convert.pipeline.run import Running, run
from ninfer_convert.recipe import builtin_recipes
from tests.oracle import gguf
from tests.oracle import objects as oracle
from tests.support import TINY_LLAMA, Tensors, bf16, gaussian, write_safetensors

if TYPE_CHECKING:
    from ninfer_convert.pipeline.progress import Progress

PLAIN_RECIPES = ("bf16", "fp32", "q4", "q5", "q6", "q8", "q4_mixed", "q4_search", "fp8")


def convert(
    input: Path, recipe: str | Path, output: Path, running: Running | None = None, **shaping: Any
) -> dict[str, Any]:
    """Convert and return the artifact's directory as plain JSON."""
    plan = make_plan(str(input), str(recipe), Shaping(**shaping))
    run(plan, output, running or Running())
    return directory_of(output)


def directory_of(path: Path) -> dict[str, Any]:
    """The JSON directory, read without the product."""
    data = path.read_bytes()
    length = int.from_bytes(data[8:16], "little")
    directory: dict[str, Any] = json.loads(data[32 : 32 + length])
    return directory


def payload_of(path: Path, directory: dict[str, Any], id: str) -> bytes:
    """An object's bytes in an artifact of one file, read without the product."""
    data = path.read_bytes()
    length = int.from_bytes(data[8:16], "little")
    start = -(-(32 + length) // 4096) * 4096
    record = next(record for record in directory["objects"] if record["id"] == id)
    return data[start + record["offset"] : start + record["offset"] + record["bytes"]]


def recipe_file(folder: Path, text: str) -> Path:
    """A recipe in `folder`."""
    path = folder / "recipe.toml"
    path.write_text(f'schema = 1\nname = "t"\n{text}', encoding="utf-8")
    return path


def refused(input: Path, recipe: str | Path, output: Path) -> NinferConvertError:
    """The error of a conversion that must be refused and leave nothing."""
    before = sorted(output.parent.iterdir())
    with pytest.raises(NinferConvertError) as caught:
        convert(input, recipe, output)
    assert sorted(output.parent.iterdir()) == before
    return caught.value


def test_the_built_in_recipes_are_the_ones_tested_here() -> None:
    assert set(PLAIN_RECIPES) <= {recipe.name for recipe in builtin_recipes()}


@pytest.mark.parametrize("recipe", PLAIN_RECIPES)
def test_every_object_equals_the_oracle(recipe: str, tmp_path: Path) -> None:
    directory = convert(TINY_LLAMA, recipe, tmp_path / "a.ninfer")
    source = oracle.safetensors(TINY_LLAMA / "model.safetensors")
    bound = {name: binding["object"] for name, binding in directory["bindings"].items()}
    assert bound.keys() == source.keys()
    records = {record["id"]: record for record in directory["objects"]}
    for name, id in bound.items():
        expected = oracle.object_bytes(records[id]["format"], *source[name], "search" in recipe)
        assert payload_of(tmp_path / "a.ninfer", directory, id) == expected, name
    for name in ("tokenizer.json", "generation_config.json"):
        id = directory["components"]["text"]["resources"][name]
        assert payload_of(tmp_path / "a.ninfer", directory, id) == (TINY_LLAMA / name).read_bytes()


def test_the_directory_says_where_everything_came_from(tmp_path: Path) -> None:
    recipe = recipe_file(
        tmp_path,
        '[metadata]\nlicense = "mit"\n[[assign]]\nselect = "*q_proj.weight"\nformat = "q4_g64_fp16"\n'
        '[[skip]]\nselect = "*layers.1.*norm.weight"\nreason = "not wanted"\n'
        '[[assign]]\nselect = "model.embed_tokens.weight"\nrows = [0, 32]\nformat = "q8_g32_fp16"\n',
    )
    overrides = ("*k_proj.weight:format=q5_g64_fp16",)
    path = tmp_path / "a.ninfer"
    directory = convert(TINY_LLAMA, recipe, path, overrides=overrides, name="tiny", requantize=True)
    provenance = directory["provenance"]
    model = TINY_LLAMA / "model.safetensors"
    header = model.read_bytes()[: 8 + int.from_bytes(model.read_bytes()[:8], "little")]
    assert provenance["tool"] == {"name": "ninfer-convert", "encoding": 1}
    assert provenance["recipe"] == {
        "name": "t",
        "files": [{"name": "recipe.toml", "sha256": hashlib.sha256(recipe.read_bytes()).hexdigest()}],
    }
    assert provenance["overrides"] == {"set": list(overrides), "requantize": True, "name": "tiny"}
    assert provenance["sources"] == {
        "model": {
            "files": [
                {
                    "name": "model.safetensors",
                    "size": model.stat().st_size,
                    "header_sha256": hashlib.sha256(header).hexdigest(),
                }
            ]
        }
    }
    assert {skip["name"] for skip in provenance["skipped"]} == {
        "model.layers.1.input_layernorm.weight",
        "model.layers.1.post_attention_layernorm.weight",
    }
    assert all(skip["reason"] == "not wanted" for skip in provenance["skipped"])
    assert provenance["activation_scales"] == {}
    assert directory["metadata"] == {"license": "mit", "name": "tiny"}

    parts = directory["bindings"]["model.embed_tokens.weight"]["parts"]
    assert [part["range"] for part in parts] == [[0, 32 * 128], [0, 64 * 128]]
    assert provenance["parameters"] == {"model.embed_tokens.weight": {"shape": [96, 128]}}
    head, tail = (provenance["objects"][part["object"]] for part in parts)
    assert head["method"] == "grouped_absmax"
    assert head["tensors"] == ["model.embed_tokens.weight"]
    assert head["stored"] == ["BF16"]
    assert head["selections"] == ["rows 0:32"]
    assert tail["method"] == "cast_direct"
    assert tail["selections"] == ["rows 32:96"]
    k_proj = directory["bindings"]["model.layers.0.self_attn.k_proj.weight"]["object"]
    assert next(r for r in directory["objects"] if r["id"] == k_proj)["format"] == "q5_g64_fp16"
    for record in directory["objects"]:
        digest = hashlib.sha256(payload_of(path, directory, record["id"])).hexdigest()
        assert provenance["objects"][record["id"]]["sha256"] == digest
    tokenizer = directory["components"]["text"]["resources"]["tokenizer.json"]
    assert provenance["objects"][tokenizer]["file"] == "tokenizer.json"


def test_the_config_is_kept_but_for_what_describes_the_source(tmp_path: Path) -> None:
    directory = convert(TINY_LLAMA, "bf16", tmp_path / "a.ninfer")
    config = json.loads((TINY_LLAMA / "config.json").read_text())
    assert config.pop("torch_dtype") == "bfloat16"
    assert directory["components"] == {
        "text": {
            "config": config,
            "resources": {name: f"resource/text/{name}" for name in ("tokenizer.json", "generation_config.json")},
        }
    }


def test_members_of_the_config_about_storage_are_left_out(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "m.safetensors", {"w": ("F32", (2,), gaussian((2,)).tobytes())})
    assert convert(source, "fp32", tmp_path / "bare.ninfer")["components"] == {"text": {"config": {}}}
    kept = {"model_type": "x", "nested": {"torch_dtype": "float32"}, "list": [1, None]}
    left_out = {
        "torch_dtype": "float32",
        "transformers_version": "5",
        "_name_or_path": "/home/me",
        "quantization_config": {},
    }
    (tmp_path / "config.json").write_text(json.dumps({**left_out, **kept}))
    assert convert(source, "fp32", tmp_path / "a.ninfer")["components"] == {"text": {"config": kept}}


def test_nothing_of_this_machine_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "a.ninfer"
    directory = convert(TINY_LLAMA, "q4", path)
    text = json.dumps(directory)
    assert str(tmp_path) not in text
    assert str(TINY_LLAMA.parent) not in text
    assert not re.search(r"20\d\d-\d\d-\d\d", text)


def test_any_number_of_threads_and_any_piece_size_give_the_same_bytes(tmp_path: Path) -> None:
    tensors: Tensors = {
        "wide.weight": ("BF16", (300, 1000), bf16(gaussian((300, 1000)))),
        "bank": ("F32", (3, 70, 130), gaussian((3, 70, 130), 1).tobytes()),
        "vector": ("F32", (100_003,), gaussian((100_003,), 2).tobytes()),
    }
    source = write_safetensors(tmp_path / "model.safetensors", tensors)
    runs = [Running(), Running(jobs=3), Running(jobs=64), Running(jobs=2, memory=2 << 18), Running(memory=1 << 19)]
    artifacts = []
    for number, running in enumerate(runs):
        path = tmp_path / str(number) / "a.ninfer"
        path.parent.mkdir()
        convert(source, "q5", path, running)
        artifacts.append(path.read_bytes())
    assert len(set(artifacts)) == 1


@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_an_input_that_is_written_to_meanwhile_gives_no_artifact(kind: str, tmp_path: Path) -> None:
    words = gaussian((64, 64)).tobytes()
    source = tmp_path / f"m.{kind}"
    if kind == "gguf":
        source.write_bytes(gguf.File([gguf.Tensor("w", 0, (64, 64), words)]).build())
    else:
        write_safetensors(source, {"w": ("F32", (64, 64), words)})
    plan = make_plan(str(source), "fp32", Shaping())

    def write(progress: Progress) -> None:
        with source.open("r+b") as stream:
            stream.seek(-4, os.SEEK_END)
            stream.write(bytes(4))
        os.utime(source, ns=(0, source.stat().st_mtime_ns + 10**9))

    with pytest.raises(SourceError, match="was written to") as caught:
        run(plan, tmp_path / "a.ninfer", Running(), write)
    assert [(each.code, each.path) for each in caught.value.problems] == [("file-changed", str(source))]
    assert list(tmp_path.iterdir()) == [source]


def test_a_bank_is_folded_to_rows_and_keeps_its_logical_shape(tmp_path: Path) -> None:
    bank = gaussian((3, 70, 130))
    source = write_safetensors(tmp_path / "m.safetensors", {"experts.down_proj": ("F32", bank.shape, bank.tobytes())})
    directory = convert(source, "q4", tmp_path / "a.ninfer")
    (record,) = directory["objects"]
    assert record["shape"] == [210, 130]
    assert directory["bindings"]["experts.down_proj"] == {"parts": [{"object": record["id"], "range": [0, 27300]}]}
    assert directory["provenance"]["parameters"] == {"experts.down_proj": {"shape": [3, 70, 130]}}
    expected = oracle.object_bytes("q4_g64_fp16", "F32", (3, 70, 130), bank.tobytes())
    assert payload_of(tmp_path / "a.ninfer", directory, record["id"]) == expected


def test_scalars_vectors_and_high_ranks_are_kept_as_they_are(tmp_path: Path) -> None:
    shapes: dict[str, tuple[int, ...]] = {"s": (), "v": (5,), "conv": (8, 3, 2, 2), "five": (2, 1, 2, 1, 2)}
    arrays = {name: gaussian(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}
    source = write_safetensors(
        tmp_path / "m.safetensors", {name: ("F32", array.shape, array.tobytes()) for name, array in arrays.items()}
    )
    directory = convert(source, "fp32", tmp_path / "a.ninfer")
    for name, array in arrays.items():
        id = directory["bindings"][name]["object"]
        record = next(record for record in directory["objects"] if record["id"] == id)
        assert (record["shape"], record["format"]) == (list(array.shape), "fp32")
        assert payload_of(tmp_path / "a.ninfer", directory, id) == array.tobytes()


def test_all_bf16_words_survive_a_direct_conversion(tmp_path: Path) -> None:
    words = np.arange(65536, dtype="<u2").tobytes()
    source = write_safetensors(tmp_path / "m.safetensors", {"w": ("BF16", (256, 256), words)})
    plan = make_plan(str(source), "bf16", Shaping())
    result = run(plan, tmp_path / "a.ninfer", Running())
    with open_artifact(tmp_path / "a.ninfer") as artifact:
        assert bytes(artifact.read(0, 131072)) == words
    (warning,) = result.warnings
    assert "w: 256 NaN or infinite values" in warning.message


def test_names_of_any_kind_are_kept_exactly(tmp_path: Path) -> None:
    names = ["mlp.up[0].weight", "with space", "übermaß.重み", "bell\x07\x1b[31m", "x" * 300, "*{a}?"]
    source = write_safetensors(
        tmp_path / "m.safetensors", {name: ("F32", (2,), gaussian((2,)).tobytes()) for name in names}
    )
    directory = convert(source, "fp32", tmp_path / "a.ninfer")
    assert set(directory["bindings"]) == set(names)


def test_a_nan_under_a_quantizing_method_is_refused_with_count_and_place(tmp_path: Path) -> None:
    values = gaussian((64, 256))
    values[3, 17] = np.nan
    values[60, 200] = np.inf
    source = write_safetensors(tmp_path / "m.safetensors", {"a.weight": ("F32", values.shape, values.tobytes())})
    error = refused(source, "q4", tmp_path / "a.ninfer")
    assert isinstance(error, NumericError)
    (problem,) = error.problems
    assert problem.tensor == "a.weight"
    assert "[3, 17]" in problem.message
    assert re.search(r"\b2\b|1 NaN", problem.message)


def test_the_failure_reported_is_the_first_of_the_plan(tmp_path: Path) -> None:
    good, bad = gaussian((64, 256)), gaussian((64, 256))
    bad[0, 0] = np.nan
    arrays = {f"layer.{i}.weight": bad if i in (7, 11, 30) else good for i in range(40)}
    source = write_safetensors(
        tmp_path / "m.safetensors", {name: ("F32", array.shape, array.tobytes()) for name, array in arrays.items()}
    )
    plan = make_plan(str(source), "q4", Shaping())
    for jobs in (1, 2, 8):
        with pytest.raises(NumericError) as caught:
            run(plan, tmp_path / "a.ninfer", Running(jobs=jobs))
        assert [problem.tensor for problem in caught.value.problems] == ["layer.7.weight"]


def test_a_tensor_without_elements_is_refused_unless_skipped(tmp_path: Path) -> None:
    tensors: Tensors = {"empty": ("F32", (0, 64), b""), "w": ("F32", (2,), gaussian((2,)).tobytes())}
    source = write_safetensors(tmp_path / "m.safetensors", tensors)
    error = refused(source, "fp32", tmp_path / "a.ninfer")
    assert isinstance(error, SourceError | RecipeError)
    assert "empty" in str(error)
    assert "[[skip]]" in str(error)
    recipe = recipe_file(tmp_path, '[[skip]]\nselect = "empty"\nreason = "holds nothing"\n')
    assert list(convert(source, recipe, tmp_path / "a.ninfer")["bindings"]) == ["w"]


def test_a_checkpoint_without_tensors_is_refused(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "m.safetensors", {})
    assert "no tensors" in str(refused(source, "bf16", tmp_path / "a.ninfer"))


def test_to_skip_all_that_there_is_is_refused(tmp_path: Path) -> None:
    source = write_safetensors(tmp_path / "m.safetensors", {"w": ("F32", (2,), bytes(8))})
    recipe = recipe_file(tmp_path, '[[skip]]\nselect = "*"\nreason = "not wanted"\n')
    error = refused(source, recipe, tmp_path / "a.ninfer")
    assert isinstance(error, RecipeError)
    assert [problem.code for problem in error.problems] == ["all-skipped"]
    assert "nothing to convert" in str(error)


def test_an_absent_tied_head_is_no_error(tmp_path: Path) -> None:
    directory = convert(TINY_LLAMA, "q4", tmp_path / "a.ninfer")
    assert "lm_head.weight" not in directory["bindings"]


def test_parts_hold_the_same_payload(tmp_path: Path) -> None:
    whole, capped = tmp_path / "whole.ninfer", tmp_path / "capped.ninfer"
    convert(TINY_LLAMA, "q6", whole)
    convert(TINY_LLAMA, "q6", capped, Running(max_file_bytes=40_000))
    with open_artifact(whole) as a, open_artifact(capped) as b:
        assert len(b.directory.files) > 3
        size = a.directory.payload_bytes
        assert bytes(a.read(0, size)) == bytes(b.read(0, size))
        assert a.directory.objects == b.directory.objects
