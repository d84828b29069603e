"""What tests of whole conversions share: small checkpoints written by hand, and the program as a subprocess."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

REPOSITORY = Path(__file__).parent.parent
TINY_LLAMA = REPOSITORY / "examples" / "tiny-llama"

Tensors = Mapping[str, tuple[str, Sequence[int], bytes]]


def write_safetensors(path: Path, tensors: Tensors) -> Path:
    """A safetensors file of name -> (dtype tag, shape, bytes), in that order."""
    header = {}
    end = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))
    return path


def write_sparse_safetensors(path: Path, tensors: Mapping[str, tuple[str, Sequence[int], int]]) -> Path:
    """The same of name -> (dtype tag, shape, byte count), all zero and taking no room on the disk."""
    header = {}
    end = 0
    for name, (dtype, shape, nbytes) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + nbytes]}
        end += nbytes
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return path


def bf16(values: NDArray[Any]) -> bytes:
    """Values cut to bfloat16 words."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()


def gaussian(shape: Sequence[int], seed: int = 0) -> NDArray[np.float32]:
    """Weights as models have them."""
    values: NDArray[np.float32] = np.random.default_rng(seed).standard_normal(tuple(shape), dtype=np.float32)
    values *= np.float32(0.02)
    return values


def program(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """`ninfer-convert ARGUMENTS` as a user runs it."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, check=False, **{"timeout": 300, **options}
    )


def command(*arguments: str | Path) -> list[str]:
    """The program's command line, for this interpreter."""
    return [sys.executable, "-m", "ninfer_convert", *(os.fspath(argument) for argument in arguments)]


def standing_after_kills(program: str, scenario: str, folder: Path) -> list[str]:
    """What stood at the destination after each kill of a scenario; `program` is a module such as
    `tests.container.killed`."""
    command = [sys.executable, "-m", program, scenario, str(folder)]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()
