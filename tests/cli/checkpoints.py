"""Small checkpoints and recipes that the tests of the command line write themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support import Tensors, bf16, gaussian, write_safetensors

RECIPE = """\
schema = 1
name = "tiny"
description = "4-bit matrices"

[defaults]
F16 = "fp32"

[[assign]]
select = "*"
where = { rank = [2, 3], dtype = "floating" }
format = "q4_g64_fp16"
"""


def tensors() -> Tensors:
    """A matrix, a bank of three experts, a vector and a half-precision vector."""
    half = gaussian((5,), 3).astype(np.float16)
    return {
        "layers.0.up.weight": ("BF16", (6, 128), bf16(gaussian((6, 128), 0))),
        "layers.0.experts": ("F32", (3, 4, 64), gaussian((3, 4, 64), 1).tobytes()),
        "layers.0.norm.weight": ("BF16", (64,), bf16(gaussian((64,), 2))),
        "layers.0.bias": ("F16", (5,), half.tobytes()),
    }


def make(folder: Path, name: str = "model.safetensors", recipe: str = RECIPE) -> Path:
    """`folder` with the checkpoint `name` and the recipe `r.toml` in it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / name, tensors())
    (folder / "r.toml").write_text(recipe, encoding="utf-8")
    return folder
