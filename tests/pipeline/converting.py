"""Whole conversions of small checkpoints under recipes of a few lines, and what the artifacts then hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ninfer_convert.errors import NinferConvertError
from ninfer_convert.pipeline.plan import make_plan
from ninfer_convert.pipeline.planned import Plan, Shaping
from ninfer_convert.pipeline.run import Running, run
from ninfer_convert.pipeline.verify import verify
from tests.oracle import safetensors
from tests.oracle.container import Container, read
from tests.oracle.objects import object_bytes
from tests.sources.weights import tensor
from tests.support import gaussian

Array = NDArray[Any]


def checkpoint(path: Path, arrays: Mapping[str, Array]) -> Path:
    """A safetensors file of these arrays; uint16 are bfloat16 words."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(safetensors.build({name: tensor(array) for name, array in arrays.items()}))
    return path


_NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}


LAYERS = (0, 2, 10)


def layered(folder: Path) -> tuple[Path, dict[str, Array]]:
    """Three layers of a query, a key, a value and a norm in bfloat16 words, written in an order of no meaning."""
    shapes = {"v": (64, 192), "norm": (192,), "q": (128, 192), "k": (64, 192)}
    arrays: dict[str, Array] = {
        f"layers.{layer}.{kind}": weights(*shape, seed=10 * layer + number)
        for layer in reversed(LAYERS)
        for number, (kind, shape) in enumerate(shapes.items())
    }
    return checkpoint(folder / "m.safetensors", arrays), arrays


def nvfp4_checkpoint(
    folder: Path, divisors: Mapping[str, float], inputs: bool = True, rows: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Array]:
    """Weights of a compressed-tensors checkpoint with these global scales, in a folder `quantized`; its arrays.

    They have 128 rows where `rows` does not say otherwise, of 64 columns; their inputs the divisors 3.5, 2.5, ...
    """
    rng = np.random.default_rng(len(divisors))
    arrays: dict[str, Array] = {}
    for number, (name, divisor) in enumerate(divisors.items()):
        count = rows.get(name, 128)
        arrays[f"{name}.weight_packed"] = rng.integers(0, 256, (count, 32), np.uint8)
        arrays[f"{name}.weight_scale"] = rng.integers(1, 0x7E, (count, 4), np.uint8)
        arrays[f"{name}.weight_global_scale"] = np.array([divisor], np.float32)
        if inputs:
            arrays[f"{name}.input_global_scale"] = np.array([3.5 - number], np.float32)
    tensors = {
        name: tensor(array, "F8_E4M3" if name.endswith("weight_scale") else None) for name, array in arrays.items()
    }
    quantized = folder / "quantized"
    quantized.mkdir(exist_ok=True)
    (quantized / "model.safetensors").write_bytes(safetensors.build(tensors))
    groups = {"group_0": {"targets": ["Linear"], "weights": _NVFP4}}
    quantization = {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": groups}
    (quantized / "config.json").write_text(json.dumps({"quantization_config": quantization}))
    return arrays


def weights(*shape: int, seed: int = 0) -> NDArray[np.uint16]:
    """Weights as models have them, in bfloat16 words."""
    words: NDArray[np.uint16] = (gaussian(shape, seed).view(np.uint32) >> 16).astype(np.uint16)
    return words


def lines(*text: str) -> str:
    """Lines of a recipe."""
    return "".join(f"{line}\n" for line in text)


def planned(input: Path, recipe: str, folder: Path, **shaping: Any) -> Plan:
    """The plan of `input` under a built-in recipe, or under one of these lines, the first of which is its second."""
    if "\n" in recipe:
        path = folder / "t.toml"
        path.write_text(f"schema = 1\n{recipe}", encoding="utf-8")
        recipe = str(path)
    return make_plan(str(input), recipe, Shaping(**shaping))


def convert(input: Path, recipe: str, folder: Path, **shaping: Any) -> Container:
    """The artifact, read without the product once `verify` has found no fault in it."""
    output = folder / "a.ninfer"
    run(planned(input, recipe, folder, **shaping), output, Running(force=True))
    assert verify(str(output)).faults == ()
    return read(output)


def refused(input: Path, recipe: str, folder: Path, **shaping: Any) -> NinferConvertError:
    """The error of a plan or a conversion, which leaves nothing behind."""
    with pytest.raises(NinferConvertError) as caught:
        run(planned(input, recipe, folder, **shaping), folder / "refused.ninfer", Running())
    assert not list(folder.glob("refused*"))
    return caught.value


def messages(error: NinferConvertError) -> list[str]:
    """`line: message` of each problem."""
    return [f"{problem.line}: {problem.message}" for problem in error.problems]


def ids(artifact: Container) -> list[str]:
    """The objects, in their order."""
    return [each["id"] for each in artifact.directory["objects"]]


def bound(artifact: Container, name: str) -> list[tuple[str, int, int]]:
    """(object, begin, end) of each part of a parameter."""
    binding = artifact.directory["bindings"][name]
    if "object" in binding:
        elements = int(np.prod(record(artifact, binding["object"])["shape"], dtype=np.int64))
        return [(binding["object"], 0, elements)]
    return [(part["object"], *part["range"]) for part in binding["parts"]]


def record(artifact: Container, id: str) -> dict[str, Any]:
    """The directory's record of an object."""
    found: dict[str, Any]
    (found,) = (each for each in artifact.directory["objects"] if each["id"] == id)
    return found


def stored(artifact: Container, name: str) -> tuple[str, list[int], bytes]:
    """Format, shape and bytes of the one object that a parameter is bound to."""
    ((id, _, _),) = bound(artifact, name)
    each = record(artifact, id)
    return each["format"], each["shape"], artifact.object_bytes(id)


def made(artifact: Container, name: str) -> dict[str, Any]:
    """The provenance of the one object that a parameter is bound to."""
    ((id, _, _),) = bound(artifact, name)
    found: dict[str, Any] = artifact.directory["provenance"]["objects"][id]
    return found


def expected(format: str, array: Array, search: bool = False) -> bytes:
    """What the oracle stores of an array in a format; uint16 are bfloat16 words."""
    dtype, shape, data = tensor(array)
    return object_bytes(format, dtype, tuple(shape), data, search)
