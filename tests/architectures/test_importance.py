"""Importance matrices of a Qwen3.5 model: each logical parameter is weighed by what llama.cpp measured at its input."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ninfer_convert import Shaping, plan
from tests.architectures import small

Array = NDArray[np.float64]
SHARED = small.NV // small.NK

INPUTS = {
    "attention/query": "attn_q",
    "attention/gate": "attn_q",
    "attention/key": "attn_k",
    "attention/output": "attn_output",
    "gdn/query": "attn_qkv",
    "gdn/value": "attn_qkv",
    "gdn/z": "attn_gate",
    "mlp/gate": "ffn_gate",
    "mlp/down": "ffn_down",
    "moe/experts/2/gate": "ffn_gate_exps",
    "moe/experts/1/down": "ffn_down_exps",
    "moe/shared/up": "ffn_up_shexp",
}
LENGTHS = {
    "attn_output": small.A * small.D,
    "ssm_out": small.NV * small.DV,
    "ffn_down": small.F,
    "ffn_down_exps": small.FE,
    "ffn_down_shexp": small.FS,
}
NAMES = (
    *dict.fromkeys(INPUTS.values()),
    "attn_v",
    "ssm_out",
    "ffn_up",
    "ffn_up_exps",
    "ffn_gate_shexp",
    "ffn_down_shexp",
)


def vectors() -> dict[str, Array]:
    """[E, K] of a bank, [K] of anything else: whole numbers, no two vectors alike."""
    random = np.random.default_rng(3)
    found = {}
    for layer in range(4):
        for name in NAMES:
            experts = (small.E,) if name.endswith("_exps") else ()
            numbers = random.integers(1, 1000, (*experts, LENGTHS.get(name, small.H)))
            found[f"blk.{layer}.{name}.weight"] = numbers.astype(np.float64)
    return found


def write(path: Path, entries: dict[str, Array]) -> Path:
    """A matrix in the older format, of one call each."""
    data = struct.pack("<i", len(entries))
    for name, array in entries.items():
        data += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 1, array.size)
        data += array.astype("<f4").tobytes()
    path.write_bytes(data)
    return path


def weighed(folder: Path, kind: small.Kind, entries: dict[str, Array]) -> dict[str, Array | None]:
    """The importance that each parameter is searched with."""
    small.write(folder, kind)
    matrix = write(folder / "m.dat", entries)
    planned = plan(folder, "q4_imatrix", Shaping(sources={"imatrix": str(matrix)}))
    return {member.parameter: member.job.importance for tensor in planned.tensors for member in tensor.members}


@pytest.mark.parametrize("kind", ["dense", "experts of their own", "experts in banks"])
def test_each_parameter_takes_the_vector_of_its_input(tmp_path: Path, kind: str) -> None:
    entries = vectors()
    found = weighed(tmp_path, small.KINDS[kind], entries)
    checked = 0
    for name, importance in found.items():
        if not name.startswith("text/layers/"):
            continue
        _, _, layer, suffix = name.split("/", 3)
        if suffix in INPUTS:
            vector = entries[f"blk.{layer}.{INPUTS[suffix]}.weight"]
            if suffix.startswith("moe/experts/"):
                vector = vector[int(suffix.split("/")[2])]
            assert importance is not None, name
            assert importance.tolist() == vector.tolist(), name
            checked += 1
    assert checked == {"dense": 22}.get(kind, 26)


def test_the_columns_of_a_linear_layers_output_stand_by_key_heads(tmp_path: Path) -> None:
    """llama.cpp has the value heads of a key head NK apart, Hugging Face side by side."""
    entries = vectors()
    found = weighed(tmp_path, small.KINDS["dense"], entries)
    for layer in (0, 2):
        tiled = entries[f"blk.{layer}.ssm_out.weight"].reshape(SHARED, small.NK, small.DV)
        importance = found[f"text/layers/{layer}/gdn/output"]
        assert importance is not None
        assert importance.tolist() == tiled.swapaxes(0, 1).reshape(-1).tolist()
