"""Exports read back, and exports that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from ninfer_convert.pipeline.export import export
from tests.oracle import safetensors as files


def read(path: Path) -> dict[str, files.Tensor]:
    """The tensors of a file, which the safetensors package must read alike."""
    found = files.read(path.read_bytes())
    with safe_open(path, framework="numpy") as opened:
        assert set(opened.keys()) == set(found)
        for name, (dtype, shape, data) in found.items():
            part = opened.get_slice(name)
            assert (part.get_dtype(), part.get_shape()) == (dtype, shape)
            if dtype != "BF16":  # which numpy lacks
                assert opened.get_tensor(name).tobytes() == data
    return found


def refused(kind: type[Exception], path: Path, output: Path, **options: Any) -> Any:
    """The error of an export that must be refused and leave everything as it was."""
    before = tree(path.parent)
    with pytest.raises(kind) as caught:
        export(path, output, **options)
    assert tree(path.parent) == before
    return caught.value


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its content; None for a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
