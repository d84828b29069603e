"""A conversion to check, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ninfer_convert.pipeline.check import CheckReport, check
from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.planned import Plan, Shaping
from ninfer_convert.pipeline.run import Running, run
from tests.support import Tensors, bf16, gaussian, write_safetensors

GOLDEN = Path(__file__).parent.parent / "golden" / "gguf"
RECIPE = """\
schema = 1
name = "t"

[metadata]
license = "mit"

[defaults]
F16 = "fp32"

[[assign]]
select = "*"
where = { rank = [2, 3], dtype = "floating" }
format = "q5_g64_fp16"

[[assign]]
select = "cut.weight"
rows = [0, 3]
format = "bf16"

[[assign]]
select = "fp8.weight"
format = "fp8_e4m3fn_row_bf16"
"""


def tensors() -> Tensors:
    nan = np.array([1, np.nan, -np.inf, 0.5, 2], np.float32)
    half = gaussian((5,), 3).astype(np.float16)
    return {
        "bank": ("F32", (3, 4, 130), gaussian((3, 4, 130), 1).tobytes()),
        "cut.weight": ("BF16", (9, 100), bf16(gaussian((9, 100), 2))),
        "fp8.weight": ("BF16", (6, 70), bf16(gaussian((6, 70), 4))),
        "half": ("F16", (5,), half.tobytes()),
        "ids": ("I32", (7,), np.arange(7, dtype="<i4").tobytes()),
        "norm.weight": ("F32", (5,), nan.tobytes()),
    }


def make(folder: Path, recipe: str = RECIPE, running: Running | None = None, **shaping: Any) -> Plan:
    """The plan of a small checkpoint, carried out: `folder`/m.ninfer."""
    write_safetensors(folder / "m.safetensors", tensors())
    (folder / "tokenizer.json").write_text('{"a": 1}')
    (folder / "config.json").write_text('{"hidden": 130, "eps": 1e-6, "nested": {"x": [1, 2]}, "names": ["a"]}')
    (folder / "r.toml").write_text(recipe, encoding="utf-8")
    plan = planned(folder, **shaping)
    run(plan, folder / "m.ninfer", running or Running())
    return plan


def planned(folder: Path, **shaping: Any) -> Plan:
    return make_plan(str(folder / "m.safetensors"), str(folder / "r.toml"), Shaping(**shaping))


def found(folder: Path, plan: Plan, full: bool = True) -> CheckReport:
    return check(folder / "m.ninfer", plan, full=full)
