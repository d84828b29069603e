"""The two public models as the fact sheet lists them: every number typed, nothing computed by the product.

A line of a table: logical name, logical shape, direct format, tensor, its shape, input; relative to a layer. `free`
marks what a recipe may store in another format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PARENTS_35B = (
    ("attention/query", "attention/key", "attention/gate", "attention/value"),
    ("gdn/query", "gdn/key", "gdn/value", "gdn/z"),
    ("gdn/a_projection", "gdn/b_projection"),
    ("moe/router", "moe/shared_score"),
    tuple(f"moe/experts/{expert}/{half}" for expert in range(256) for half in ("gate", "up")),
    tuple(f"moe/experts/{expert}/down" for expert in range(256)),
    ("moe/shared/gate", "moe/shared/up"),
)
"""The objects of a layer that hold several parameters, in their order and in that of their rows."""
FULL_27B = """
attention/query        6144x5120  bf16 free  self_attn.q_proj.weight  12288x5120  mixer_input
attention/gate         6144x5120  bf16 free  self_attn.q_proj.weight  12288x5120  mixer_input
attention/key          1024x5120  bf16 free  self_attn.k_proj.weight  1024x5120   mixer_input
attention/value        1024x5120  bf16 free  self_attn.v_proj.weight  1024x5120   mixer_input
attention/query_norm   256        bf16 -     self_attn.q_norm.weight  256         -
attention/key_norm     256        bf16 -     self_attn.k_norm.weight  256         -
attention/output       5120x6144  bf16 free  self_attn.o_proj.weight  5120x6144   attention/gated_output
"""
LINEAR_27B = """
gdn/a_log              48         fp32 -     linear_attn.A_log               48          -
gdn/dt_bias            48         fp32 -     linear_attn.dt_bias             48          -
gdn/convolution        4x10240    bf16 -     linear_attn.conv1d.weight       10240x1x4   -
gdn/a_projection       48x5120    bf16 -     linear_attn.in_proj_a.weight    48x5120     mixer_input
gdn/b_projection       48x5120    bf16 -     linear_attn.in_proj_b.weight    48x5120     mixer_input
gdn/query              2048x5120  bf16 free  linear_attn.in_proj_qkv.weight  10240x5120  mixer_input
gdn/key                2048x5120  bf16 free  linear_attn.in_proj_qkv.weight  10240x5120  mixer_input
gdn/value              6144x5120  bf16 free  linear_attn.in_proj_qkv.weight  10240x5120  mixer_input
gdn/z                  6144x5120  bf16 free  linear_attn.in_proj_z.weight    6144x5120   mixer_input
gdn/norm               128        bf16 -     linear_attn.norm.weight         128         -
gdn/output             5120x6144  bf16 free  linear_attn.out_proj.weight     5120x6144   gdn/gated_output
"""
DENSE_27B = """
mlp/gate               17408x5120 bf16 free  mlp.gate_proj.weight  17408x5120  ffn_input
mlp/up                 17408x5120 bf16 free  mlp.up_proj.weight    17408x5120  ffn_input
mlp/down               5120x17408 bf16 free  mlp.down_proj.weight  5120x17408  mlp/product
"""
FULL_35B = """
attention/query        4096x2048  bf16 free  self_attn.q_proj.weight  8192x2048  mixer_input
attention/gate         4096x2048  bf16 free  self_attn.q_proj.weight  8192x2048  mixer_input
attention/key          512x2048   bf16 free  self_attn.k_proj.weight  512x2048   mixer_input
attention/value        512x2048   bf16 free  self_attn.v_proj.weight  512x2048   mixer_input
attention/query_norm   256        bf16 -     self_attn.q_norm.weight  256        -
attention/key_norm     256        bf16 -     self_attn.k_norm.weight  256        -
attention/output       2048x4096  bf16 free  self_attn.o_proj.weight  2048x4096  attention/gated_output
"""
LINEAR_35B = """
gdn/a_log              32         fp32 -     linear_attn.A_log               32         -
gdn/dt_bias            32         fp32 -     linear_attn.dt_bias             32         -
gdn/convolution        4x8192     bf16 -     linear_attn.conv1d.weight       8192x1x4   -
gdn/a_projection       32x2048    bf16 -     linear_attn.in_proj_a.weight    32x2048    mixer_input
gdn/b_projection       32x2048    bf16 -     linear_attn.in_proj_b.weight    32x2048    mixer_input
gdn/query              2048x2048  bf16 free  linear_attn.in_proj_qkv.weight  8192x2048  mixer_input
gdn/key                2048x2048  bf16 free  linear_attn.in_proj_qkv.weight  8192x2048  mixer_input
gdn/value              4096x2048  bf16 free  linear_attn.in_proj_qkv.weight  8192x2048  mixer_input
gdn/z                  4096x2048  bf16 free  linear_attn.in_proj_z.weight    4096x2048  mixer_input
gdn/norm               128        bf16 -     linear_attn.norm.weight         128        -
gdn/output             2048x4096  bf16 free  linear_attn.out_proj.weight     2048x4096  gdn/gated_output
"""
EXPERTS_35B = """
moe/router             256x2048   bf16 -     mlp.gate.weight                256x2048  ffn_input
moe/shared_score       1x2048     bf16 -     mlp.shared_expert_gate.weight  1x2048    ffn_input
"""
EXPERT_35B = """
moe/experts/{e}/gate   512x2048   bf16 free  mlp.experts.{e}.gate_proj.weight  512x2048  ffn_input
moe/experts/{e}/up     512x2048   bf16 free  mlp.experts.{e}.up_proj.weight    512x2048  ffn_input
moe/experts/{e}/down   2048x512   bf16 free  mlp.experts.{e}.down_proj.weight  2048x512  moe/experts/{e}/product
"""
FUSED_EXPERT_35B = """
moe/experts/{e}/gate   512x2048   bf16 free  mlp.experts.gate_up_proj  256x1024x2048  ffn_input
moe/experts/{e}/up     512x2048   bf16 free  mlp.experts.gate_up_proj  256x1024x2048  ffn_input
moe/experts/{e}/down   2048x512   bf16 free  mlp.experts.down_proj     256x2048x512   moe/experts/{e}/product
"""
SHARED_35B = """
moe/shared/gate        512x2048   bf16 free  mlp.shared_expert.gate_proj.weight  512x2048  ffn_input
moe/shared/up          512x2048   bf16 free  mlp.shared_expert.up_proj.weight    512x2048  ffn_input
moe/shared/down        2048x512   bf16 free  mlp.shared_expert.down_proj.weight  2048x512  moe/shared/product
"""
BEFORE = "input_norm           {H}        bf16 -     input_layernorm.weight           {H}  -"
BETWEEN = "post_attention_norm {H}        bf16 -     post_attention_layernorm.weight  {H}  -"

FULL_GROUPS = """
attention/query attention/key attention/gate attention/value
attention/query attention/key
attention/gate attention/value
"""
LINEAR_GROUPS = """
gdn/query gdn/key gdn/value gdn/z
gdn/query gdn/key
gdn/value gdn/z
gdn/a_projection gdn/b_projection
"""
DENSE_GROUPS = """
mlp/gate mlp/up
"""
IMPORTANCE = """
attention/query attn_q
attention/gate attn_q
attention/key attn_k
attention/value attn_v
attention/output attn_output
gdn/a_projection ssm_alpha
gdn/b_projection ssm_beta
gdn/query attn_qkv
gdn/key attn_qkv
gdn/value attn_qkv
gdn/z attn_gate
gdn/output ssm_out
mlp/gate ffn_gate
mlp/up ffn_up
mlp/down ffn_down
moe/router ffn_gate_inp
moe/shared_score ffn_gate_inp_shexp
moe/shared/gate ffn_gate_shexp
moe/shared/up ffn_up_shexp
moe/shared/down ffn_down_shexp
moe/experts/17/gate ffn_gate_exps
moe/experts/17/up ffn_up_exps
moe/experts/17/down ffn_down_exps
"""
"""A parameter of a layer -> llama.cpp's tensor `blk.{layer}.NAME.weight` with the same input (8.2, 8.6)."""


@dataclass(frozen=True)
class Fact:
    """A logical parameter, and the tensor that holds it."""

    name: str
    shape: tuple[int, ...]
    direct: str
    free: bool
    tensor: str
    tensor_shape: tuple[int, ...]
    uses: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """A whole text component: parameters and candidate groups in declaration order, config.json."""

    parameters: tuple[Fact, ...]
    groups: tuple[tuple[str, ...], ...]
    config: dict[str, Any]

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """What a checkpoint of it holds: name -> shape."""
        return {fact.tensor: fact.tensor_shape for fact in self.parameters}


def facts_27b() -> Facts:
    """Qwen3.6-27B: 64 layers, every fourth of full attention."""
    top = """
token_embedding  248320x5120  bf16 free  model.language_model.embed_tokens.weight  248320x5120  -
output_head      248320x5120  bf16 free  lm_head.weight                            248320x5120  final_hidden
final_norm       5120         bf16 -     model.language_model.norm.weight          5120         -
"""
    text = {
        "hidden_size": 5120,
        "num_hidden_layers": 64,
        "vocab_size": 248320,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "intermediate_size": 17408,
        **_COMMON,
    }
    config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": text}
    mixers = {True: (FULL_27B, FULL_GROUPS), False: (LINEAR_27B, LINEAR_GROUPS)}
    return _facts(top, 64, "5120", mixers, DENSE_27B, DENSE_GROUPS, config)


def facts_35b(fused: bool) -> Facts:
    """Qwen3.6-35B-A3B: 40 layers of 256 experts, which are banks or tensors of their own."""
    top = """
token_embedding  248320x2048  bf16 free  model.language_model.embed_tokens.weight  248320x2048  -
output_head      248320x2048  bf16 free  lm_head.weight                            248320x2048  final_hidden
final_norm       2048         bf16 -     model.language_model.norm.weight          2048         -
"""
    text = {
        "hidden_size": 2048,
        "num_hidden_layers": 40,
        "vocab_size": 248320,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        **_COMMON,
    }
    config = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "text_config": text}
    expert = FUSED_EXPERT_35B if fused else EXPERT_35B
    experts = "".join(expert.replace("{e}", str(number)) for number in range(256))
    halves = " ".join(f"moe/experts/{number}/{half}" for number in range(256) for half in ("gate", "up"))
    downs = " ".join(f"moe/experts/{number}/down" for number in range(256))
    groups = f"moe/router moe/shared_score\n{halves}\n{downs}\nmoe/shared/gate moe/shared/up"
    mixers = {True: (FULL_35B, FULL_GROUPS), False: (LINEAR_35B, LINEAR_GROUPS)}
    return _facts(top, 40, "2048", mixers, EXPERTS_35B + experts + SHARED_35B, groups, config)


_COMMON = {
    "model_type": "anything",
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "attn_output_gate": True,
    "mamba_ssm_dtype": "float32",
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000000,
        "partial_rotary_factor": 0.25,
        "mrope_interleaved": True,
        "mrope_section": [11, 11, 10],
    },
}


def _facts(
    top: str,
    layers: int,
    hidden: str,
    mixers: dict[bool, tuple[str, str]],
    feed_forward: str,
    feed_forward_groups: str,
    config: dict[str, Any],
) -> Facts:
    parameters = list(_parse(top, "text/", ""))
    groups: list[tuple[str, ...]] = []
    for layer in range(layers):
        mixer, mixer_groups = mixers[(layer + 1) % 4 == 0]
        table = "\n".join((BEFORE.replace("{H}", hidden), mixer, BETWEEN.replace("{H}", hidden), feed_forward))
        names = f"text/layers/{layer}/"
        parameters += _parse(table, names, f"model.language_model.layers.{layer}.")
        for group in (mixer_groups + feed_forward_groups).splitlines():
            if group:
                groups.append(tuple(names + name for name in group.split()))
    return Facts(tuple(parameters), tuple(groups), config)


def _parse(table: str, names: str, tensors: str) -> Iterator[Fact]:
    for line in filter(None, table.splitlines()):
        name, shape, direct, free, tensor, tensor_shape, use = line.split()
        yield Fact(
            names + name,
            tuple(map(int, shape.split("x"))),
            direct,
            free == "free",
            tensors + tensor,
            tuple(map(int, tensor_shape.split("x"))),
            () if use == "-" else (names + use,),
        )
