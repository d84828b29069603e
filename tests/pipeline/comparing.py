"""Artifacts and checkpoints to compare, and the one comparison that is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.oracle.metrics import metrics
from tests.pipeline import artifacts
from tests.support import Tensors, write_safetensors

if TYPE_CHECKING:
    from ninfer_convert.pipeline.compare import Comparison, ParameterComparison

Array = NDArray[Any]


def checkpoint(folder: Path, tensors: Mapping[str, Array]) -> Path:
    """A safetensors file of arrays of their own type; uint16 stands for BF16."""
    tags = {"uint16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64", "bool": "BOOL"}
    named: Tensors = {
        name: (
            tags.get(array.dtype.name) or f"{array.dtype.kind.upper()}{8 * array.itemsize}",
            array.shape,
            array.tobytes(),
        )
        for name, array in tensors.items()
    }
    return write_safetensors(folder / "model.safetensors", named)


def artifact(folder: Path, objects: Mapping[str, artifacts.Stored], name: str = "a", **more: Any) -> Path:
    return artifacts.write(folder / f"{name}.ninfer", objects, **more)


def only(found: Comparison) -> ParameterComparison:
    (parameter,) = found.parameters
    return parameter


def agrees(parameter: ParameterComparison, values: Array, references: Array) -> None:
    """The metrics are those of exact sums."""
    wanted = metrics(values.astype(np.float64).ravel().tolist(), references.astype(np.float64).ravel().tolist())
    assert asdict(parameter.metrics) == pytest.approx(wanted, rel=1e-12, abs=1e-14)
