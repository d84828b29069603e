"""Searches weighed by the peer's importance matrix, from the file to the bytes (recipes.md, Importance matrices)."""

from __future__ import annotations

import hashlib
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from ninfer_convert.errors import RecipeError, SourceError
from tests.oracle import objects, search_loop
from tests.pipeline.converting import (
    Array,
    bound,
    checkpoint,
    convert,
    expected,
    lines,
    made,
    messages,
    planned,
    record,
    refused,
    stored,
    weights,
)

FIXTURE = Path(__file__).parent.parent / "golden" / "imatrix"
VECTORS = load_file(FIXTURE / "expected.safetensors")
SOURCE = lines("[sources]", "imatrix = 'from llama-imatrix'")
LAYER = "model.layers.0"
NAMES = {
    f"{LAYER}.self_attn.q_proj.weight": "blk.0.attn_q.weight",
    f"{LAYER}.self_attn.v_proj.weight": "blk.0.attn_v.weight",
    f"{LAYER}.mlp.down_proj.weight": "blk.0.ffn_down.weight",
    f"{LAYER}.mlp.experts.up_proj": "blk.0.ffn_up_exps.weight",
}


def searched(select: str, format: str = "q4_g64_fp16", more: str = "") -> str:
    parameters = f"parameters = {{ imatrix = 'imatrix'{more} }}"
    return lines("[[assign]]", f"select = {select!r}", f"format = '{format}'", "method = 'grouped_search'", parameters)


def given(suffix: str = "gguf") -> dict[str, dict[str, str]]:
    return {"sources": {"imatrix": str(FIXTURE / f"imatrix.{suffix}")}}


@pytest.fixture
def arrays() -> dict[str, Array]:
    return {
        name: weights(*((4, 12) if VECTORS[entry].ndim == 2 else (12,)), VECTORS[entry].shape[-1], seed=number)
        for number, (name, entry) in enumerate(NAMES.items())
    }


@pytest.fixture
def path(arrays: dict[str, Array], tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "m.safetensors", arrays)


def weighed(format: str, array: Array, vectors: NDArray[np.float64], negative: bool = False) -> bytes:
    """What the oracle of the search stores of bfloat16 words, each bank with its own vector."""
    bits, group, qmin, qmax = objects.GROUPED[format]
    values = (array.astype(np.uint32) << 16).view(np.float32)
    parts = [
        search_loop.search(matrix, vector, group=group, qmin=qmin, qmax=qmax, negative_scales=negative)
        for matrix, vector in zip(
            values.reshape(-1, *values.shape[-2:]), vectors.reshape(-1, values.shape[-1]), strict=True
        )
    ]
    codes = np.concatenate([codes for codes, _ in parts]).astype(np.int64)
    words = np.concatenate([words for _, words in parts])
    physical = -(-values.shape[-1] // 128) * 128
    padded = np.pad(codes, ((0, 0), (0, physical - codes.shape[1]))).reshape(len(codes), -1, group)
    scales = np.pad(words, ((0, 0), (0, physical // group - words.shape[1])))
    return objects.row_split(padded, scales.view(np.float16), bits)


@pytest.mark.parametrize("suffix", ["gguf", "dat"])
@pytest.mark.parametrize("format", ["q4_g64_fp16", "q6_g64_fp16", "q8_g32_fp16"])
def test_every_object_is_that_of_the_weighed_search(
    arrays: dict[str, Array], path: Path, tmp_path: Path, format: str, suffix: str
) -> None:
    plan = planned(path, SOURCE + searched("*", format), tmp_path, **given(suffix))
    assert [warning.code for warning in plan.warnings] == []
    artifact = convert(path, SOURCE + searched("*", format), tmp_path, **given(suffix))
    for name, entry in NAMES.items():
        ((id, _, _),) = bound(artifact, name)
        data = artifact.object_bytes(id)
        assert data == weighed(format, arrays[name], VECTORS[entry]), name
        assert data != expected(format, arrays[name], search=True)


def test_the_matrix_is_recorded_by_name_and_digest(path: Path, tmp_path: Path) -> None:
    artifact = convert(path, SOURCE + searched("*", more=", negative_scales = true"), tmp_path, **given())
    content = (FIXTURE / "imatrix.gguf").read_bytes()
    file = {"name": "imatrix.gguf", "sha256": hashlib.sha256(content).hexdigest()}
    assert artifact.directory["provenance"]["sources"]["imatrix"] == {"files": [{**file, "size": len(content)}]}
    made_by = made(artifact, f"{LAYER}.mlp.down_proj.weight")
    assert made_by["method_parameters"] == {"imatrix": file, "negative_scales": True}
    assert str(FIXTURE) not in artifact.text.decode()


def test_a_path_is_relative_to_the_recipe(arrays: dict[str, Array], path: Path, tmp_path: Path) -> None:
    (tmp_path / "matrices").mkdir()
    shutil.copy(FIXTURE / "imatrix.dat", tmp_path / "matrices" / "mine.dat")
    recipe = searched("*down_proj*", more="").replace("'imatrix'", "'matrices/mine.dat'")
    artifact = convert(path, recipe, tmp_path)
    name = f"{LAYER}.mlp.down_proj.weight"
    assert stored(artifact, name)[2] == weighed("q4_g64_fp16", arrays[name], VECTORS[NAMES[name]])
    assert made(artifact, name)["method_parameters"]["imatrix"]["name"] == "mine.dat"
    assert list(artifact.directory["provenance"]["sources"]) == ["model"]


def test_a_name_is_a_sources_first(arrays: dict[str, Array], path: Path, tmp_path: Path) -> None:
    (tmp_path / "imatrix").write_bytes(b"no matrix at all")
    name = f"{LAYER}.mlp.down_proj.weight"
    artifact = convert(path, SOURCE + searched(name), tmp_path, **given())
    assert stored(artifact, name)[2] == weighed("q4_g64_fp16", arrays[name], VECTORS[NAMES[name]])


def test_a_source_that_is_named_must_be_given_and_a_file_be_there(path: Path, tmp_path: Path) -> None:
    assert messages(refused(path, SOURCE + searched("*"), tmp_path)) == [
        "8: source imatrix is not given; pass --source imatrix=PATH"
    ]
    recipe = searched("*").replace("'imatrix'", "'missing.dat'")
    (problem,) = refused(path, recipe, tmp_path).problems
    assert (problem.path, problem.code) == (str(tmp_path / "missing.dat"), "no-such-file")


def test_rows_of_a_bank_take_their_experts_vectors(arrays: dict[str, Array], path: Path, tmp_path: Path) -> None:
    name = f"{LAYER}.mlp.experts.up_proj"
    recipe = SOURCE + searched(name) + lines("[[assign]]", f"select = '{name}'", "rows = [0, 2]", "format = 'bf16'")
    artifact = convert(path, recipe, tmp_path, **given())
    (_, (id, _, _)) = bound(artifact, name)
    assert record(artifact, id)["shape"] == [24, 128]
    assert artifact.object_bytes(id) == weighed("q4_g64_fp16", arrays[name][2:], VECTORS[NAMES[name]][2:])


def test_rows_of_a_matrix_all_take_its_vector(arrays: dict[str, Array], path: Path, tmp_path: Path) -> None:
    name = f"{LAYER}.self_attn.v_proj.weight"
    recipe = SOURCE + searched(name) + lines("[[assign]]", f"select = '{name}'", "rows = [0, 2]", "format = 'bf16'")
    artifact = convert(path, recipe, tmp_path, **given())
    (_, (id, _, _)) = bound(artifact, name)
    assert artifact.object_bytes(id) == weighed("q4_g64_fp16", arrays[name][2:], VECTORS[NAMES[name]])


def test_members_of_a_parent_keep_their_own_vectors(arrays: dict[str, Array], path: Path, tmp_path: Path) -> None:
    names = [f"{LAYER}.self_attn.{kind}_proj.weight" for kind in "qv"]
    group = lines("[[group]]", f"select = {names}")
    artifact = convert(path, SOURCE + searched("*self_attn*") + group, tmp_path, **given())
    values = [(arrays[name].astype(np.uint32) << 16).view(np.float32) for name in names]
    found = [
        search_loop.search(each, VECTORS[NAMES[name]], group=64, qmin=-8, qmax=7, negative_scales=False)
        for name, each in zip(names, values, strict=True)
    ]
    codes = np.concatenate([codes for codes, _ in found]).astype(np.int64).reshape(24, 2, 64)
    scales = np.concatenate([words for _, words in found]).view(np.float16)
    assert stored(artifact, names[0])[2] == objects.row_split(codes, scales, 4)


def test_a_transposed_weight_is_weighed_along_its_logical_columns(tmp_path: Path) -> None:
    name = f"{LAYER}.mlp.down_proj.weight"
    array = weights(256, 12)
    path = checkpoint(tmp_path / "m.safetensors", {name: array})
    recipe = SOURCE + searched("*") + lines("[[assign]]", "select = '*'", "transpose = true")
    artifact = convert(path, recipe, tmp_path, **given())
    vector = VECTORS[NAMES[name]]
    assert stored(artifact, name)[2] == weighed("q4_g64_fp16", np.ascontiguousarray(array.T), vector)


def test_a_renamed_parameter_finds_its_entry(tmp_path: Path) -> None:
    array = weights(12, 256)
    path = checkpoint(tmp_path / "m.safetensors", {"my.0.ffn": array})
    rename = lines("[[rename]]", r"match = 'my\.(\d+)\.ffn'", r"to = 'blk.\1.ffn_down.weight'")
    artifact = convert(path, rename + SOURCE + searched("*"), tmp_path, **given())
    vector = VECTORS["blk.0.ffn_down.weight"]
    assert stored(artifact, "blk.0.ffn_down.weight")[2] == weighed("q4_g64_fp16", array, vector)


# What is missing or does not fit.


def test_parameters_without_a_vector_are_searched_unweighted_with_a_warning(
    arrays: dict[str, Array], tmp_path: Path
) -> None:
    names = [f"{LAYER}.mlp.gate_proj.weight", f"{LAYER}.self_attn.k_proj.weight"]
    more = {name: weights(8, 128, seed=77) for name in names}
    path = checkpoint(tmp_path / "m.safetensors", {**arrays, **more})
    recipe = SOURCE + searched("*")
    (warning,) = planned(path, recipe, tmp_path, **given()).warnings
    assert (warning.code, warning.path) == ("unweighted", str(FIXTURE / "imatrix.gguf"))
    assert warning.message == f"2 parameters without a vector searched unweighted: {names[0]}, {names[1]}"
    artifact = convert(path, recipe, tmp_path, **given())
    for name in names:
        assert stored(artifact, name)[2] == expected("q4_g64_fp16", more[name], search=True)


def test_a_vector_of_zeros_is_used_as_unweighted_with_a_warning(tmp_path: Path) -> None:
    name = f"{LAYER}.self_attn.o_proj.weight"
    array = weights(8, 128)
    path = checkpoint(tmp_path / "m.safetensors", {name: array})
    (warning,) = planned(path, SOURCE + searched("*"), tmp_path, **given()).warnings
    assert warning.code == "zero-importance"
    assert "blk.0.attn_output.weight: its vector is all zero" in warning.message
    artifact = convert(path, SOURCE + searched("*"), tmp_path, **given())
    assert stored(artifact, name)[2] == expected("q4_g64_fp16", array, search=True)


def test_an_assign_of_which_no_parameter_has_a_vector_is_an_error(path: Path, tmp_path: Path) -> None:
    other = checkpoint(tmp_path / "other.safetensors", {"a": weights(8, 128), "b": weights(8, 128)})
    error = refused(other, SOURCE + searched("?"), tmp_path, **given())
    assert isinstance(error, RecipeError)
    shown = FIXTURE / "imatrix.gguf"
    assert messages(error) == [f"8: {shown} has a vector for none of a, b"]


def test_vectors_of_another_length_are_an_error_that_names_both(tmp_path: Path) -> None:
    names = [f"{LAYER}.mlp.down_proj.weight", f"{LAYER}.mlp.experts.up_proj"]
    arrays: dict[str, Array] = {names[0]: weights(8, 192), names[1]: weights(3, 8, 128)}
    path = checkpoint(tmp_path / "m.safetensors", arrays)
    error = refused(path, SOURCE + searched("*"), tmp_path, **given())
    assert isinstance(error, SourceError)
    assert [problem.message for problem in error.problems] == [
        f"blk.0.ffn_down.weight: holds 256 values, but {names[0]} of [8, 192] needs one vector of 192 values; "
        "is it a matrix of another model?",
        f"blk.0.ffn_up_exps.weight: holds 4 vectors of 128 values, but {names[1]} of [3, 8, 128] needs 3 vectors of "
        "128 values; is it a matrix of another model?",
    ]


def test_a_matrix_with_impossible_numbers_is_an_error(path: Path, tmp_path: Path) -> None:
    content = bytearray((FIXTURE / "imatrix.dat").read_bytes())
    at = content.index(b"blk.0.attn_q.weight") + len("blk.0.attn_q.weight") + 8
    content[at : at + 4] = struct.pack("<f", -1.0)
    (tmp_path / "bad.dat").write_bytes(bytes(content))
    error = refused(path, SOURCE + searched("*"), tmp_path, sources={"imatrix": str(tmp_path / "bad.dat")})
    assert "importances are finite and not negative" in str(error)


def test_a_shape_of_other_columns_takes_no_vectors(tmp_path: Path) -> None:
    name = f"{LAYER}.mlp.down_proj.weight"
    path = checkpoint(tmp_path / "m.safetensors", {name: weights(8, 256)})
    recipe = SOURCE + searched("*") + lines("[[group]]", f"select = '{name}'", "shape = [4, 512]")
    assert messages(refused(path, recipe, tmp_path, **given())) == [
        f"8: {name}: a group gives it rows of 512, and its importances are for 256"
    ]
