"""Which importance vector belongs to a parameter, by name: llama.cpp's tensor names for Hugging Face's.

Covers the Llama, Qwen and Gemma families and their mixtures of experts. A vector belongs to a tensor's input, so
what llama.cpp does to rows (permuting a query, splitting a gate from an up projection) changes nothing here. What it
does to columns does: the inputs of Qwen's `linear_attn.out_proj` are reordered on export, so that one is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import MappingProxyType

from ninfer_convert.values import ImportanceEntry

_LAYER = re.compile(r"(?:model\.|language_model\.)*layers\.(?P<layer>[0-9]{1,6})\.(?P<module>.+)")
_OUTER = re.compile(r"(?:model\.|language_model\.)*(?P<module>.+)")
_EXPERT = re.compile(r"(?P<before>.*\bexperts)\.(?P<expert>[0-9]{1,6})\.(?P<after>.+)")

_MODULES = MappingProxyType(
    {
        "self_attn.q_proj": ("attn_q",),
        "self_attn.k_proj": ("attn_k",),
        "self_attn.v_proj": ("attn_v",),
        "self_attn.o_proj": ("attn_output",),
        "linear_attn.in_proj_qkv": ("attn_qkv",),
        "linear_attn.in_proj_qkvz": ("ssm_in", "attn_qkv"),
        "linear_attn.in_proj_z": ("attn_gate",),
        "linear_attn.in_proj_a": ("ssm_alpha",),
        "linear_attn.in_proj_b": ("ssm_beta",),
        "linear_attn.in_proj_ba": ("ssm_ba",),
        "mlp.gate_proj": ("ffn_gate",),
        "mlp.up_proj": ("ffn_up",),
        "mlp.down_proj": ("ffn_down",),
        "mlp.gate": ("ffn_gate_inp",),
        "mlp.shared_expert_gate": ("ffn_gate_inp_shexp",),
        "mlp.shared_expert.gate_proj": ("ffn_gate_shexp",),
        "mlp.shared_expert.up_proj": ("ffn_up_shexp",),
        "mlp.shared_expert.down_proj": ("ffn_down_shexp",),
        "mlp.experts.gate_proj": ("ffn_gate_exps",),
        "mlp.experts.up_proj": ("ffn_up_exps",),
        "mlp.experts.down_proj": ("ffn_down_exps",),
        "mlp.experts.gate_up_proj": ("ffn_gate_up_exps", "ffn_gate_exps", "ffn_up_exps"),
        "block_sparse_moe.gate": ("ffn_gate_inp",),
        "block_sparse_moe.experts.w1": ("ffn_gate_exps",),
        "block_sparse_moe.experts.w2": ("ffn_down_exps",),
        "block_sparse_moe.experts.w3": ("ffn_up_exps",),
        "feed_forward.gate_proj": ("ffn_gate",),
        "feed_forward.up_proj": ("ffn_up",),
        "feed_forward.down_proj": ("ffn_down",),
        "feed_forward.router": ("ffn_gate_inp",),
        "feed_forward.shared_expert.gate_proj": ("ffn_gate_shexp",),
        "feed_forward.shared_expert.up_proj": ("ffn_up_shexp",),
        "feed_forward.shared_expert.down_proj": ("ffn_down_shexp",),
        "feed_forward.experts.gate_up_proj": ("ffn_gate_up_exps", "ffn_gate_exps", "ffn_up_exps"),
        "feed_forward.experts.down_proj": ("ffn_down_exps",),
        "router.proj": ("ffn_gate_inp",),
        "experts.gate_up_proj": ("ffn_gate_up_exps", "ffn_gate_exps", "ffn_up_exps"),
        "experts.down_proj": ("ffn_down_exps",),
        "per_layer_input_gate": ("inp_gate",),
        "per_layer_projection": ("proj",),
    }
)
"""A layer's module, an expert's number left out -> llama.cpp's names for the same input, the closest first."""

_OUTER_MODULES = MappingProxyType(
    {
        "lm_head": ("output", "token_embd"),
        "embed_tokens": ("token_embd",),
        "per_layer_model_projection": ("per_layer_model_proj",),
    }
)


def entries(name: str) -> Iterator[ImportanceEntry]:
    """The entries that can hold the importance of what Hugging Face calls `name`, best first.

    Its own name comes first, whole; then llama.cpp's for it.
    """
    yield ImportanceEntry(name)
    module = name.removesuffix(".weight")
    expert = None
    if match := _EXPERT.fullmatch(module):
        module, expert = f"{match['before']}.{match['after']}", int(match["expert"])
    if match := _LAYER.fullmatch(module):
        for known in _MODULES.get(match["module"], ()):
            yield ImportanceEntry(f"blk.{int(match['layer'])}.{known}.weight", expert)
    elif (match := _OUTER.fullmatch(module)) and expert is None:
        for known in _OUTER_MODULES.get(match["module"], ()):
            yield ImportanceEntry(f"{known}.weight")
