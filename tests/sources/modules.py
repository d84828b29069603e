"""Checkpoints of encoded modules by their headers alone, for the tests of classification."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.config import read_config
from ninfer_convert.sources.encoded import Classification, EncodedModule, classify
from tests.oracle import safetensors as oracle

Member = tuple[str, Sequence[int]] | oracle.Tensor
"""dtype, shape, and bytes where they matter."""

NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
FP8_CHANNEL = {"num_bits": 8, "type": "float", "strategy": "channel"}
FP8_TENSOR = {"num_bits": 8, "type": "float", "strategy": "tensor"}
FP8_BLOCKS = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}
HF_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def compressed_tensors(weights: Mapping[str, Any], **members: Any) -> dict[str, Any]:
    """A quantization_config of compressed-tensors with one group for all."""
    groups = {"group_0": {"targets": ["Linear"], "weights": dict(weights)}}
    return {"quant_method": "compressed-tensors", "config_groups": groups, **members}


def module(prefix: str, **members: Member) -> dict[str, Member]:
    return {f"{prefix}.{name}": member for name, member in members.items()}


def nvfp4(codes: Sequence[int] = (4, 16), scales: Sequence[int] = (4, 2)) -> dict[str, Member]:
    """The members of a compressed-tensors NVFP4 weight."""
    return {
        "weight_packed": ("U8", codes),
        "weight_scale": ("F8_E4M3", scales),
        "weight_global_scale": ("F32", (1,)),
    }


def numbers(dtype: str, shape: Sequence[int], *values: float) -> oracle.Tensor:
    """A tensor of these numbers; one number fills it."""
    kinds = {"F32": "f", "F16": "e", "I64": "q", "I32": "i", "U8": "B"}
    count = prod(shape)
    return dtype, shape, struct.pack(f"<{count}{kinds[dtype]}", *(values * count)[:count])


def nf4_state(**members: Any) -> oracle.Tensor:
    """The tensor that holds the state of a bitsandbytes weight as JSON."""
    text = json.dumps({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", **members}).encode()
    return "U8", (len(text),), text


def fp8(*prefixes: str) -> dict[str, Member]:
    """Modules of FP8 rows."""
    tensors: dict[str, Member] = {}
    for prefix in prefixes:
        tensors |= module(prefix, weight=("F8_E4M3", (4, 8)), weight_scale=("BF16", (4, 1)))
    return tensors


def classified(
    folder: Path,
    tensors: Mapping[str, Member],
    quantization: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Classification:
    """The classification of a checkpoint with these tensors, and this quantization_config where one is given."""
    built = {name: member if len(member) == 3 else oracle.tensor(*member) for name, member in tensors.items()}
    (folder / "model.safetensors").write_bytes(oracle.build(built, metadata))
    if quantization is not None:
        (folder / "config.json").write_text(json.dumps({"quantization_config": quantization}))
    checkpoint = open_checkpoint(folder)
    return classify(checkpoint, read_config(checkpoint))


def only(classification: Classification) -> EncodedModule:
    (found,) = classification.modules
    return found


MODELOPT: dict[str, Member] = {
    "weight": ("U8", (4, 16)),
    "weight_scale": ("F8_E4M3", (4, 2)),
    "weight_scale_2": ("F32", ()),
}
PACKED: dict[str, Member] = {
    "weight_packed": ("I32", (4, 4)),
    "weight_scale": ("BF16", (4, 1)),
    "weight_shape": numbers("I64", (2,), 4, 32),
}
GPTQ: dict[str, Member] = {"qweight": ("I32", (8, 16)), "qzeros": ("I32", (1, 2)), "scales": ("F16", (1, 16))}
AWQ: dict[str, Member] = {"qweight": ("I32", (64, 2)), "qzeros": ("I32", (1, 2)), "scales": ("F16", (1, 16))}
STATE = "weight.quant_state.bitsandbytes__nf4"
NF4: dict[str, Member] = {
    "weight": ("U8", (16, 1)),
    "weight.absmax": ("F32", (1,)),
    "weight.quant_map": ("F32", (16,)),
    STATE: nf4_state(shape=[4, 8]),
}
