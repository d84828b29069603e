"""Convert safetensors and GGUF checkpoints into `.ninfer` artifacts, exact to the bit.

What `__all__` names is the public API. Each name is loaded when it is first used: the import itself costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ninfer_convert.errors import NinferConvertError, Problem
    from ninfer_convert.pipeline.check import CheckReport, check
    from ninfer_convert.pipeline.compare import Comparison, ParameterComparison, compare
    from ninfer_convert.pipeline.conversion import convert, plan
    from ninfer_convert.pipeline.differences import Difference
    from ninfer_convert.pipeline.export import Exported, export
    from ninfer_convert.pipeline.metrics import Metrics
    from ninfer_convert.pipeline.planned import Plan, Shaping
    from ninfer_convert.pipeline.progress import Progress
    from ninfer_convert.pipeline.run import Result, Running
    from ninfer_convert.pipeline.stored import OpenArtifact, StoredParameter, open_artifact
    from ninfer_convert.pipeline.verify import Fault, VerifyReport, verify
    from ninfer_convert.recipe import Recipe, load_recipe

__version__ = "0.1.0"

__all__ = [
    "CheckReport",
    "Comparison",
    "Difference",
    "Exported",
    "Fault",
    "Metrics",
    "NinferConvertError",
    "OpenArtifact",
    "ParameterComparison",
    "Plan",
    "Problem",
    "Progress",
    "Recipe",
    "Result",
    "Running",
    "Shaping",
    "StoredParameter",
    "VerifyReport",
    "check",
    "compare",
    "convert",
    "export",
    "load_recipe",
    "open_artifact",
    "plan",
    "verify",
]

_MODULES = {
    "errors": ("NinferConvertError", "Problem"),
    "pipeline.check": ("CheckReport", "check"),
    "pipeline.compare": ("Comparison", "ParameterComparison", "compare"),
    "pipeline.conversion": ("convert", "plan"),
    "pipeline.differences": ("Difference",),
    "pipeline.export": ("Exported", "export"),
    "pipeline.metrics": ("Metrics",),
    "pipeline.planned": ("Plan", "Shaping"),
    "pipeline.progress": ("Progress",),
    "pipeline.run": ("Result", "Running"),
    "pipeline.stored": ("OpenArtifact", "StoredParameter", "open_artifact"),
    "pipeline.verify": ("Fault", "VerifyReport", "verify"),
    "recipe": ("Recipe", "load_recipe"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
