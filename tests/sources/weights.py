"""Checkpoints of encoded weights with data, and what of their sources tests compare."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.config import read_config
from ninfer_convert.sources.encoded import classify
from tests.oracle import safetensors as oracle

if TYPE_CHECKING:
    from ninfer_convert.values import Source

Array = NDArray[Any]

_TAGS = {"|u1": "U8", "|i1": "I8", "<u2": "BF16", "<f2": "F16", "<f4": "F32", "<i4": "I32", "<i8": "I64"}


def tensor(array: Array, dtype: str | None = None) -> oracle.Tensor:
    """An array as a tensor: of the dtype that it has (uint16 are bfloat16 words) unless another is given."""
    return dtype or _TAGS[array.dtype.str], array.shape, array.tobytes()


def weights(
    folder: Path, tensors: Mapping[str, oracle.Tensor], quantization: Mapping[str, Any] | None = None
) -> Mapping[str, Source]:
    """The sources of a checkpoint that classification finds no fault with."""
    (folder / "model.safetensors").write_bytes(oracle.build(tensors))
    (folder / "config.json").write_text(
        json.dumps({} if quantization is None else {"quantization_config": quantization})
    )
    checkpoint = open_checkpoint(folder)
    classification = classify(checkpoint, read_config(checkpoint))
    assert classification.problems(checkpoint) == []
    return classification.sources


def weight(folder: Path, members: Mapping[str, oracle.Tensor], quantization: Mapping[str, Any] | None = None) -> Source:
    """The one weight that these tensors of a module `m` make up."""
    (found,) = weights(folder, {f"m.{name}": member for name, member in members.items()}, quantization).values()
    return found


def values(source: Source) -> NDArray[np.uint32]:
    """The binary32 words of all its values, folded to rows."""
    read = source.values(0, prod(source.shape))
    assert (read.stored, read.array.dtype.str) == ("F32", "<f4")
    return read.array.view(np.uint32).reshape(prod(source.shape[:-1]), -1)


def problem(call: Any, *arguments: Any) -> Problem:
    """The one problem of a call that must raise SourceError."""
    with pytest.raises(SourceError) as caught:
        call(*arguments)
    (found,) = caught.value.problems
    return found
