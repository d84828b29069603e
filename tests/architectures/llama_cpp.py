"""A GGUF of a small Qwen3.5 model, as llama.cpp's exporter writes it (qwen35.md 8), by the gguf package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.architectures import small

Array = NDArray[np.float32]
R = small.NV // small.NK

LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_qkv.weight": "linear_attn.in_proj_qkv.weight",
    "attn_gate.weight": "linear_attn.in_proj_z.weight",
    "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
    "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    "ssm_a": "linear_attn.A_log",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "ssm_out.weight": "linear_attn.out_proj.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
    "ffn_gate_inp.weight": "mlp.gate.weight",
    "ffn_gate_inp_shexp.weight": "mlp.shared_expert_gate.weight",
    "ffn_gate_shexp.weight": "mlp.shared_expert.gate_proj.weight",
    "ffn_up_shexp.weight": "mlp.shared_expert.up_proj.weight",
    "ffn_down_shexp.weight": "mlp.shared_expert.down_proj.weight",
}
PLUS_ONE = ("attn_norm.weight", "post_attention_norm.weight", "attn_q_norm.weight", "attn_k_norm.weight")


def tiled(array: Array, width: int) -> Array:
    """Value heads along the first axis, from Hugging Face's order into the exporter's."""
    heads = array.reshape(small.NK, R, width, *array.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(0, 1)).reshape(array.shape)


def exported(kind: small.Kind, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """llama.cpp's tensors of a checkpoint's."""
    found: dict[str, Array] = {
        "token_embd.weight": tensors[f"{kind.prefix}embed_tokens.weight"],
        "output_norm.weight": tensors[f"{kind.prefix}norm.weight"] + np.float32(1),
    }
    if not kind.tied:
        found["output.weight"] = tensors["lm_head.weight"]
    for layer in range(4):
        before = f"{kind.prefix}layers.{layer}."
        own = {name.removeprefix(before): array for name, array in tensors.items() if name.startswith(before)}
        for name, theirs in LAYER.items():
            if theirs in own:
                found[f"blk.{layer}.{name}"] = _exported(name, own[theirs])
        if kind.experts:
            gate_up, down = own["mlp.experts.gate_up_proj"], own["mlp.experts.down_proj"]
            found[f"blk.{layer}.ffn_gate_exps.weight"] = gate_up[:, : small.FE]
            found[f"blk.{layer}.ffn_up_exps.weight"] = gate_up[:, small.FE :]
            found[f"blk.{layer}.ffn_down_exps.weight"] = down
    return found


def _exported(name: str, array: Array) -> NDArray[Any]:
    if name in PLUS_ONE:
        return array + 1
    if name == "ssm_a":
        return tiled(-np.exp(array), 1)
    if name in ("ssm_dt.bias", "ssm_alpha.weight", "ssm_beta.weight"):
        return tiled(array, 1)
    if name == "attn_gate.weight":
        return tiled(array, small.DV)
    if name == "ssm_out.weight":
        return np.ascontiguousarray(tiled(array.T, small.DV).T)
    if name == "ffn_gate_inp_shexp.weight":
        return array.reshape(-1)
    if name == "ssm_conv1d.weight":
        array = array.squeeze(1)
    if name in ("ssm_conv1d.weight", "attn_qkv.weight"):
        keys, values = np.split(array, [2 * small.NK * small.DK])
        return np.concatenate([keys, tiled(values, small.DV)])
    return array


def header(kind: small.Kind) -> dict[str, Any]:
    """The key values that describe the model."""
    architecture = "qwen35moe" if kind.experts else "qwen35"
    sizes = {
        "block_count": 4,
        "embedding_length": small.H,
        "full_attention_interval": 2,
        "attention.head_count": small.A,
        "attention.head_count_kv": small.G,
        "attention.key_length": small.D,
        "attention.value_length": small.D,
        "ssm.conv_kernel": small.T,
        "ssm.state_size": small.DK,
        "ssm.group_count": small.NK,
        "ssm.time_step_rank": small.NV,
        "ssm.inner_size": small.NV * small.DV,
    }
    if kind.experts:
        sizes |= {
            "expert_count": small.E,
            "expert_used_count": 2,
            "expert_feed_forward_length": small.FE,
            "expert_shared_feed_forward_length": small.FS,
        }
    else:
        sizes["feed_forward_length"] = small.F
    return {"general.architecture": architecture, **{f"{architecture}.{name}": size for name, size in sizes.items()}}


def write(path: Path, values: Mapping[str, Any], tensors: Mapping[str, Array], blocks: bool = False) -> Path:
    """A GGUF of these; `blocks` stores matrices whose rows are whole blocks as Q8_0."""
    writer = gguf.GGUFWriter(path, values.get("general.architecture", "none"))
    for name, value in values.items():
        if name != "general.architecture":
            writer.add_uint32(name, value)
    for name, array in tensors.items():
        array = np.ascontiguousarray(array)
        if blocks and array.ndim > 1 and array.shape[-1] % 32 == 0:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
