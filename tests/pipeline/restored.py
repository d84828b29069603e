"""Artifacts of logical parameters, given back as what they were made from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors import deserialize

from ninfer_convert import export, open_artifact
from tests.architectures import small
from tests.support import bf16, write_safetensors

if TYPE_CHECKING:
    from tests.architectures.small import Array


Tensor = tuple[str, list[int], bytes]

DECAYS = ("linear_attn.A_log", "linear_attn.dt_bias")
"""What the engine takes as fp32 only."""


def tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, as the package of that name reads them."""
    found = dict(deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
    return {name: (each["dtype"], list(each["shape"]), bytes(each["data"])) for name, each in found.items()}


def values(path: Path) -> dict[str, Array]:
    """The same as numbers."""
    found = {}
    for name, (dtype, shape, data) in tensors(path).items():
        wide = np.frombuffer(data, "<u2").astype("<u4") << 16 if dtype == "BF16" else np.frombuffer(data, "<u4")
        found[name] = wide.view(np.float32).reshape(shape)
    return found


def recipe(folder: Path, *lines: str) -> Path:
    path = folder / "r.toml"
    path.write_text("\n".join(("schema = 1", *lines, "")))
    return path


def assembled(kind: small.Kind, logical: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors of a checkpoint of which these are the logical parameters."""
    parts = {f"layers.{name.removeprefix('text/layers/')}": array for name, array in logical.items()}
    found = {}
    for name, shape in small.shapes(kind).items():
        own = name.removeprefix(kind.prefix)
        if not own.startswith("layers."):
            logical_name = {"norm.weight": "final_norm", "lm_head.weight": "output_head"}.get(own, "token_embedding")
            found[name] = logical[f"text/{logical_name}"]
            continue
        _, number, rest = own.split(".", 2)
        found[name] = _assembled(
            rest,
            {
                each.removeprefix(f"layers.{number}/"): array
                for each, array in parts.items()
                if each.startswith(f"layers.{number}/")
            },
        )
        assert found[name].shape == shape
    return found


ONE_TO_ONE = {
    "input_layernorm.weight": "input_norm",
    "post_attention_layernorm.weight": "post_attention_norm",
    "linear_attn.A_log": "gdn/a_log",
    "linear_attn.dt_bias": "gdn/dt_bias",
    "linear_attn.in_proj_a.weight": "gdn/a_projection",
    "linear_attn.in_proj_b.weight": "gdn/b_projection",
    "linear_attn.in_proj_z.weight": "gdn/z",
    "linear_attn.norm.weight": "gdn/norm",
    "linear_attn.out_proj.weight": "gdn/output",
    "mlp.gate.weight": "moe/router",
    "mlp.shared_expert_gate.weight": "moe/shared_score",
    **{f"self_attn.{name}_norm.weight": f"attention/{long}_norm" for name, long in (("q", "query"), ("k", "key"))},
    **{
        f"self_attn.{n}_proj.weight": f"attention/{long}"
        for n, long in zip("kvo", ("key", "value", "output"), strict=True)
    },
    **{f"mlp.{part}_proj.weight": f"mlp/{part}" for part in ("gate", "up", "down")},
    **{f"mlp.shared_expert.{part}_proj.weight": f"moe/shared/{part}" for part in ("gate", "up", "down")},
}


def _assembled(name: str, own: Mapping[str, Array]) -> Array:
    if name in ONE_TO_ONE:
        return own[ONE_TO_ONE[name]]
    if name == "self_attn.q_proj.weight":
        halves = [own[f"attention/{half}"].reshape(small.A, 1, small.D, small.H) for half in ("query", "gate")]
        both: Array = np.concatenate(halves, axis=1).reshape(2 * small.A * small.D, small.H)
        return both
    if name == "linear_attn.in_proj_qkv.weight":
        return np.concatenate([own["gdn/query"], own["gdn/key"], own["gdn/value"]])
    if name == "linear_attn.conv1d.weight":
        taps: Array = own["gdn/convolution"].T[:, None, :]
        return taps
    experts = range(small.E)
    if name == "mlp.experts.gate_up_proj":
        pairs = [(own[f"moe/experts/{expert}/gate"], own[f"moe/experts/{expert}/up"]) for expert in experts]
        return np.stack([np.concatenate(pair) for pair in pairs])
    if name == "mlp.experts.down_proj":
        return np.stack([own[f"moe/experts/{expert}/down"] for expert in experts])
    _, _, expert, part, _ = name.split(".")
    return own[f"moe/experts/{expert}/{part.removesuffix('_proj')}"]


def decoded(path: Path) -> dict[str, Array]:
    """Every parameter of an artifact, decoded through its binding."""
    with open_artifact(path) as artifact:
        return {name: parameter.numpy() for name, parameter in artifact.items()}


def checkpoint(folder: Path, kind: small.Kind) -> dict[str, Array]:
    """The small checkpoint with decays in binary32, as the published ones have them."""
    found = small.write(folder, kind)
    stored = {
        name: ("F32", array.shape, array.tobytes())
        if kind.stored == "F32" or name.endswith(DECAYS)
        else ("BF16", array.shape, bf16(array))
        for name, array in found.items()
    }
    write_safetensors(folder / "model.safetensors", stored)
    return found


def refused(kind: type[Exception], artifact: Path, out: Path, like: Path) -> list[str]:
    """The problems of an export that must be refused and leave nothing."""
    with pytest.raises(kind) as caught:
        export(artifact, out, like=like)
    assert not out.exists()
    return [problem.message for problem in caught.value.problems]  # type: ignore[attr-defined]
