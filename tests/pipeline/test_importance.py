"""The recipe q4_imatrix from the command's inputs to the artifact's bytes, held to the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from ninfer_convert.errors import NinferConvertError, RecipeError, SourceError
from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.planned import Plan, Shaping
from ninfer_convert.pipeline.run import Running, run
from tests.oracle import imatrix, search_loop
from tests.oracle.container import read
from tests.oracle.objects import GROUPED, float32, row_split, safetensors
from tests.support import TINY_LLAMA

Vectors = dict[str, NDArray[np.float32]]

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
COUNT = 512


def vectors() -> Vectors:
    """Sums of squares for every matrix of the model's two layers, by llama.cpp's names."""
    random = np.random.default_rng(0)
    return {
        f"blk.{layer}.{name}.weight": random.gamma(0.5, COUNT, 128).astype(np.float32)
        for layer in range(2)
        for name in NAMES.values()
    }


def legacy(path: Path, sums: Vectors) -> Path:
    path.write_bytes(imatrix.legacy([(name, COUNT, values) for name, values in sums.items()]))
    return path


def modern(path: Path, sums: Vectors) -> Path:
    writer = gguf.GGUFWriter(path, "imatrix")
    for name, values in sums.items():
        writer.add_tensor(f"{name}.in_sum2", values[None])
        writer.add_tensor(f"{name}.counts", np.full((1, 1), COUNT, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def plan(matrix: Path | None, recipe: str = "q4_imatrix") -> Plan:
    given = {} if matrix is None else {"imatrix": str(matrix)}
    return make_plan(str(TINY_LLAMA), recipe, Shaping(sources=given))


def convert(matrix: Path, output: Path) -> Path:
    run(plan(matrix), output, Running())
    return output


def expected(format: str, tensor: tuple[str, tuple[int, ...], bytes], importance: Any) -> bytes:
    """A grouped object of grouped_search with negative scales."""
    dtype, shape, data = tensor
    bits, group, qmin, qmax = GROUPED[format]
    values = float32(dtype, data).reshape(shape)
    assert shape[1] % 128 == 0
    codes, words = search_loop.search(values, importance, group=group, qmin=qmin, qmax=qmax, negative_scales=True)
    return row_split(codes.astype(np.int64).reshape(shape[0], -1, group), words.view(np.float16), bits)


def test_every_object_is_searched_with_its_own_vector(tmp_path: Path) -> None:
    sums = vectors()
    artifact = read(convert(legacy(tmp_path / "m.dat", sums), tmp_path / "a.ninfer"))
    source = safetensors(TINY_LLAMA / "model.safetensors")
    records = {record["id"]: record for record in artifact.directory["objects"]}
    searched = negative = 0
    for name, binding in artifact.directory["bindings"].items():
        record = records[binding["object"]]
        if record["format"] not in GROUPED:
            continue
        importance = None
        if name.startswith("model.layers."):
            layer, module = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
            importance = sums[f"blk.{layer}.{NAMES[module]}.weight"].astype(np.float64) / COUNT
            searched += 1
        wanted = expected(record["format"], source[name], importance)
        assert artifact.object_bytes(binding["object"]) == wanted, name
        made = artifact.directory["provenance"]["objects"][binding["object"]]
        assert made["method"] == "grouped_search"
        negative += made["method_parameters"]["negative_scales"]
    assert searched == 14
    assert negative == 15


def test_both_formats_of_a_matrix_give_the_same_payload(tmp_path: Path) -> None:
    sums = vectors()
    old = read(convert(legacy(tmp_path / "named.gguf", sums), tmp_path / "old.ninfer"))
    new = read(convert(modern(tmp_path / "named.dat", sums), tmp_path / "new.ninfer"))
    for record in old.directory["objects"]:
        assert old.object_bytes(record["id"]) == new.object_bytes(record["id"])


def test_a_matrix_without_a_vector_is_searched_unweighted_and_warned_about(tmp_path: Path) -> None:
    sums = vectors()
    del sums["blk.1.ffn_up.weight"]
    sums["blk.0.attn_q.weight"][:] = 0
    warnings = {warning.code: warning.message for warning in plan(legacy(tmp_path / "m.dat", sums)).warnings}
    assert "model.layers.1.mlp.up_proj.weight" in warnings["unweighted"]
    assert "its vector is all zero" in warnings["zero-importance"]


def refused(matrix: Path | None) -> NinferConvertError:
    with pytest.raises(NinferConvertError) as caught:
        plan(matrix)
    return caught.value


def test_matrices_that_do_not_go_with_the_model(tmp_path: Path) -> None:
    sums = vectors()
    other = refused(legacy(tmp_path / "other.dat", {f"else.{name}": values for name, values in sums.items()}))
    assert isinstance(other, RecipeError)
    assert [problem.code for problem in other.problems] == ["no-importance"]
    sums["blk.0.attn_q.weight"] = np.ones(64, np.float32)
    sums["blk.1.attn_k.weight"] = np.ones(256, np.float32)
    wrong = refused(legacy(tmp_path / "wrong.dat", sums))
    assert isinstance(wrong, SourceError)
    assert [problem.code for problem in wrong.problems] == ["importance-length"] * 2


def test_a_matrix_that_is_not_given_or_not_there(tmp_path: Path) -> None:
    assert "imatrix" in str(refused(None))
    missing = refused(tmp_path / "missing.dat")
    assert [problem.code for problem in missing.problems] == ["no-such-file"]
