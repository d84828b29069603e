"""An importance matrix of a small model, and what each logical parameter is weighed by (qwen35.md 8.2, 8.3, 8.6)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.architectures import small
from tests.architectures.facts import IMPORTANCE
from tests.oracle import imatrix

Array = NDArray[np.float64]

ENTRIES = dict(line.replace("/17/", "/E/").split() for line in IMPORTANCE.strip().splitlines())
LENGTHS = {
    "attn_output": small.A * small.D,
    "ssm_out": small.NV * small.DV,
    "ffn_down": small.F,
    "ffn_down_exps": small.FE,
    "ffn_down_shexp": small.FS,
}


def vectors() -> dict[str, Array]:
    """[E, K] of a bank, [K] of anything else: whole numbers, no two vectors alike. The head has none."""
    random = np.random.default_rng(3)
    found = {}
    for layer in range(4):
        for name in dict.fromkeys(ENTRIES.values()):
            experts = (small.E,) if name.endswith("_exps") else ()
            numbers = random.integers(1, 1000, (*experts, LENGTHS.get(name, small.H)))
            found[f"blk.{layer}.{name}.weight"] = numbers.astype(np.float64)
    return found


def write(path: Path, entries: Mapping[str, Array]) -> Path:
    """A matrix in the older format, of one call each."""
    path.write_bytes(imatrix.legacy([(name, 1, array.ravel()) for name, array in entries.items()]))
    return path


def of(name: str, entries: Mapping[str, Array]) -> Array | None:
    """The vector of a logical parameter, None where the matrix has none."""
    _, _, layer, *rest = name.split("/") if "/layers/" in name else ("", "", "", "")
    suffix = "/".join(rest)
    entry = ENTRIES.get(re.sub("experts/[0-9]+", "experts/E", suffix))
    if entry is None:
        return None
    vector: Array = entries[f"blk.{layer}.{entry}.weight"]
    if "experts/" in suffix:
        vector = vector[int(rest[2])]
    if suffix == "gdn/output":
        # llama.cpp has the value heads of a key head NK apart, Hugging Face side by side.
        vector = vector.reshape(small.NV // small.NK, small.NK, small.DV).swapaxes(0, 1).reshape(-1)
    return vector
