"""Recipes with functions of their own, and small checkpoints for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tests.pipeline.converting import checkpoint, lines, weights

Array = NDArray[Any]

ASSIGN = "[[assign]]"
SCALE = {"parameters": "{ scale = 0.005 }"}
ROUNDED = """\
import numpy as np

open(__file__ + ".ran", "a").write("x")


def rounded(values, *, first_row, shape, format, parameters):
    "Codes of one scale that the recipe gives."
    scale = np.float16(parameters["scale"])
    codes = np.rint(values / np.float32(scale)).clip(-8, 7).astype(np.int8)
    groups = -(-values.shape[1] // 64)
    return codes, np.full((len(values), groups), scale.view(np.uint16))
"""

EVERY = """\
import numpy as np


def words(values, *, first_row, shape, format, parameters):
    rows, columns = values.shape
    if format == "nvfp4":
        codes = (np.arange(values.size) % 16).astype(np.uint8).reshape(values.shape)
        return codes, np.full((rows, columns // 16), 0x38, np.uint8), np.float32(parameters["divisor"])
    if format.startswith("fp8"):
        return np.full(values.shape, 0xB8, np.uint8), np.arange(first_row + 1, first_row + rows + 1, dtype=np.uint16)
    group = int(format[4:].split("_")[0]) if format[:3] in ("q8_",) else {"t": 128}.get(format[0], 64)
    codes = np.where(values > 0, 1, -1).astype(np.int8)
    return codes, np.full((rows, -(-columns // group)), 0x3C00, np.uint16)
"""


def written(folder: Path, text: str = ROUNDED, name: str = "own.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def assign(select: str, format: str = "q4_g64_fp16", method: str = "own.py:rounded", **more: str) -> str:
    says = {"select": f"'{select}'", "format": f"'{format}'", "method": f"'{method}'", **more}
    return lines(ASSIGN, *(f"{key} = {value}" for key, value in says.items()))


def small(folder: Path) -> tuple[Path, dict[str, Array]]:
    """A bank, a matrix, and a vector that no assign below touches."""
    arrays: dict[str, Array] = {
        "bank": weights(3, 4, 96),
        "matrix": weights(5, 130, seed=1),
        "norm": weights(64, seed=2),
    }
    return checkpoint(folder / "m.safetensors", arrays), arrays
