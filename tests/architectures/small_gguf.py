"""GGUFs as llama.cpp's exporter makes them of the small Qwen3.5 models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.architectures import llama_cpp, small
from tests.architectures.building import resources, write_files

if TYPE_CHECKING:
    from tests.architectures.small import Array


def arrays(kind: small.Kind) -> dict[str, Array]:
    """The tensors of a checkpoint; decays whose exponential binary32 holds."""
    found = small.arrays(kind)
    return {name: array / np.float32(64) if name.endswith("A_log") else array for name, array in found.items()}


def write(folder: Path, kind: small.Kind, **options: Any) -> dict[str, Array]:
    """m.gguf in `folder`, beside config.json and resources. Returns the tensors that it was exported from."""
    tensors = arrays(kind)
    write_files(folder, {"config.json": small.config(kind), **resources()})
    llama_cpp.write(folder / "m.gguf", llama_cpp.header(kind), llama_cpp.exported(kind, tensors), **options)
    return tensors
