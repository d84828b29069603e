"""Llama and Qwen3 models of two layers: configs, parameters, tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.architectures.building import write_files, write_headers

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "vocab_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "torch_dtype": "bfloat16",
}
QWEN3 = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "head_dim": 24, "tie_word_embeddings": True}
LLAMA_LAYER = """
input_norm            64     input_layernorm.weight           -                -
attention/query       64x64  self_attn.q_proj.weight          mixer_input      attn_q
attention/key         32x64  self_attn.k_proj.weight          mixer_input      attn_k
attention/value       32x64  self_attn.v_proj.weight          mixer_input      attn_v
attention/output      64x64  self_attn.o_proj.weight          attention/heads  attn_output
post_attention_norm   64     post_attention_layernorm.weight  -                -
mlp/gate              96x64  mlp.gate_proj.weight             ffn_input        ffn_gate
mlp/up                96x64  mlp.up_proj.weight               ffn_input        ffn_up
mlp/down              64x96  mlp.down_proj.weight             mlp/product      ffn_down
"""
QWEN3_LAYER = """
input_norm            64     input_layernorm.weight           -                -
attention/query       96x64  self_attn.q_proj.weight          mixer_input      attn_q
attention/key         48x64  self_attn.k_proj.weight          mixer_input      attn_k
attention/value       48x64  self_attn.v_proj.weight          mixer_input      attn_v
attention/query_norm  24     self_attn.q_norm.weight          -                -
attention/key_norm    24     self_attn.k_norm.weight          -                -
attention/output      64x96  self_attn.o_proj.weight          attention/heads  attn_output
post_attention_norm   64     post_attention_layernorm.weight  -                -
mlp/gate              96x64  mlp.gate_proj.weight             ffn_input        ffn_gate
mlp/up                96x64  mlp.up_proj.weight               ffn_input        ffn_up
mlp/down              64x96  mlp.down_proj.weight             mlp/product      ffn_down
"""
BIASED_LAYER = """
input_norm             64     input_layernorm.weight           -                -
attention/query        64x64  self_attn.q_proj.weight          mixer_input      attn_q
attention/query_bias   64     self_attn.q_proj.bias            -                -
attention/key          32x64  self_attn.k_proj.weight          mixer_input      attn_k
attention/key_bias     32     self_attn.k_proj.bias            -                -
attention/value        32x64  self_attn.v_proj.weight          mixer_input      attn_v
attention/value_bias   32     self_attn.v_proj.bias            -                -
attention/output       64x64  self_attn.o_proj.weight          attention/heads  attn_output
attention/output_bias  64     self_attn.o_proj.bias            -                -
post_attention_norm    64     post_attention_layernorm.weight  -                -
mlp/gate               96x64  mlp.gate_proj.weight             ffn_input        ffn_gate
mlp/gate_bias          96     mlp.gate_proj.bias               -                -
mlp/up                 96x64  mlp.up_proj.weight               ffn_input        ffn_up
mlp/up_bias            96     mlp.up_proj.bias                 -                -
mlp/down               64x96  mlp.down_proj.weight             mlp/product      ffn_down
mlp/down_bias          64     mlp.down_proj.bias               -                -
"""
CASES = {
    "llama": (LLAMA, LLAMA_LAYER),
    "qwen3, tied": (QWEN3, QWEN3_LAYER),
    "llama with biases": ({**LLAMA, "attention_bias": True, "mlp_bias": True}, BIASED_LAYER),
}

Line = tuple[str, tuple[int, ...], str, tuple[str, ...], "str | None"]


def lines(config: dict[str, Any], layer: str) -> list[Line]:
    """(name, shape, tensor, uses, llama.cpp's tensor) of each parameter."""
    tied = config.get("tie_word_embeddings")
    head = ("model.embed_tokens.weight", "token_embd.weight") if tied else ("lm_head.weight", "output.weight")
    found: list[Line] = [
        ("text/token_embedding", (32, 64), "model.embed_tokens.weight", (), "token_embd.weight"),
        ("text/output_head", (32, 64), head[0], ("text/final_hidden",), head[1]),
        ("text/final_norm", (64,), "model.norm.weight", (), None),
    ]
    for number in range(2):
        before = f"text/layers/{number}/"
        for line in layer.strip().splitlines():
            name, shape, tensor, use, gguf = line.split()
            found.append(
                (
                    before + name,
                    tuple(map(int, shape.split("x"))),
                    f"model.layers.{number}.{tensor}",
                    () if use == "-" else (before + use,),
                    None if gguf == "-" else f"blk.{number}.{gguf}.weight",
                )
            )
    return found


def write(folder: Path, config: dict[str, Any], layer: str, *further: str, stored: str = "BF16") -> Path:
    shapes: dict[str, tuple[int, ...]] = {tensor: shape for _, shape, tensor, _, _ in lines(config, layer)}
    write_headers(folder, {**shapes, **dict.fromkeys(further, (4,))}, stored)
    write_files(folder, {"config.json": config})
    return folder
