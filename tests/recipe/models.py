"""The tensors of known models by Hugging Face's names and by llama.cpp's, and what each of them is."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, cast

from ninfer_convert.formats.stored import stored_type

Role = Literal["matrix", "finer", "embedding", "kept", "index"]
"""`finer` are attention values, alone or with queries and keys, and MLP down; `embedding` stands for the head too;
`kept` for what a careful quantizer leaves alone; `index` for integers."""

LAYERS = 16
_LAYER = re.compile(r"(?:(?<=layer\.)|(?<=layers\.)|(?<=blk\.))[0-9]+")


@dataclass(frozen=True)
class Tensor:
    name: str
    role: Role
    stored: str
    shape: tuple[int, ...]
    exact: tuple[str, ...] = ()
    direct: None = None
    locked: None = None
    divisors: tuple[float, ...] = ()
    input_divisor: None = None
    tensors: tuple[str, ...] = ()

    @property
    def layer(self) -> int | None:
        """Which of its stack it belongs to, None outside layers."""
        found = _LAYER.search(self.name)
        return int(found[0]) if found else None

    @property
    def identical(self) -> str | None:
        return stored_type(self.stored).identical


def tensors(stored: str, **roles: dict[str, tuple[int, ...]]) -> tuple[Tensor, ...]:
    """Tensors of one stored type by role."""
    return tuple(
        Tensor(name, cast("Role", role), "I64" if role == "index" else stored, shape)
        for role, shapes in roles.items()
        for name, shape in shapes.items()
    )


def layer(prefix: str, shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {f"{prefix}{name}": shape for name, shape in shapes.items()}


LLAMA = tensors(
    "BF16",
    embedding={"model.embed_tokens.weight": (128256, 2048), "lm_head.weight": (128256, 2048)},
    matrix=layer(
        "model.layers.10.",
        {
            "self_attn.q_proj.weight": (2048, 2048),
            "self_attn.k_proj.weight": (512, 2048),
            "self_attn.o_proj.weight": (2048, 2048),
            "mlp.gate_proj.weight": (8192, 2048),
            "mlp.up_proj.weight": (8192, 2048),
        },
    ),
    finer=layer("model.layers.10.", {"self_attn.v_proj.weight": (512, 2048), "mlp.down_proj.weight": (2048, 8192)}),
    kept={
        "model.layers.10.input_layernorm.weight": (2048,),
        "model.layers.10.post_attention_layernorm.weight": (2048,),
        "model.layers.10.self_attn.rotary_emb.inv_freq": (32,),
        "model.norm.weight": (2048,),
    },
)
LLAMA_GGUF = (
    *tensors(
        "F16",
        embedding={"token_embd.weight": (128256, 2048), "output.weight": (128256, 2048)},
        matrix=layer(
            "blk.10.",
            {
                "attn_q.weight": (2048, 2048),
                "attn_k.weight": (512, 2048),
                "attn_output.weight": (2048, 2048),
                "ffn_gate.weight": (8192, 2048),
                "ffn_up.weight": (8192, 2048),
            },
        ),
        finer=layer("blk.10.", {"attn_v.weight": (512, 2048), "ffn_down.weight": (2048, 8192)}),
    ),
    *tensors(
        "F32",
        kept={
            "rope_freqs.weight": (32,),
            "blk.10.attn_norm.weight": (2048,),
            "blk.10.ffn_norm.weight": (2048,),
            "output_norm.weight": (2048,),
        },
    ),
)
# The head is tied.
QWEN3 = tensors(
    "BF16",
    embedding={"model.embed_tokens.weight": (151936, 1024)},
    matrix=layer(
        "model.layers.0.",
        {
            "self_attn.q_proj.weight": (2048, 1024),
            "self_attn.k_proj.weight": (1024, 1024),
            "self_attn.o_proj.weight": (1024, 2048),
            "mlp.gate_proj.weight": (3072, 1024),
            "mlp.up_proj.weight": (3072, 1024),
        },
    ),
    finer=layer("model.layers.0.", {"self_attn.v_proj.weight": (1024, 1024), "mlp.down_proj.weight": (1024, 3072)}),
    kept={
        "model.layers.0.self_attn.q_norm.weight": (128,),
        "model.layers.0.self_attn.k_norm.weight": (128,),
        "model.layers.0.input_layernorm.weight": (1024,),
        "model.layers.0.post_attention_layernorm.weight": (1024,),
        "model.norm.weight": (1024,),
    },
)
QWEN3_GGUF = (
    *tensors(
        "BF16",
        embedding={"token_embd.weight": (151936, 1024)},
        matrix={"blk.0.attn_q.weight": (2048, 1024)},
        finer={"blk.0.ffn_down.weight": (1024, 3072)},
    ),
    *tensors("F32", kept={"blk.0.attn_q_norm.weight": (128,), "blk.0.attn_k_norm.weight": (128,)}),
)
GEMMA3 = tensors(
    "BF16",
    embedding={"language_model.model.embed_tokens.weight": (262208, 2560)},
    matrix={
        **layer(
            "language_model.model.layers.0.",
            {
                "self_attn.q_proj.weight": (2048, 2560),
                "self_attn.k_proj.weight": (1024, 2560),
                "self_attn.o_proj.weight": (2560, 2048),
                "mlp.gate_proj.weight": (10240, 2560),
                "mlp.up_proj.weight": (10240, 2560),
            },
        ),
        "multi_modal_projector.mm_input_projection_weight": (1152, 2560),
        "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight": (1152, 1152),
    },
    finer={
        **layer(
            "language_model.model.layers.0.",
            {"self_attn.v_proj.weight": (1024, 2560), "mlp.down_proj.weight": (2560, 10240)},
        ),
        "vision_tower.vision_model.encoder.layers.0.mlp.fc2.weight": (1152, 4304),
    },
    kept={
        "language_model.model.layers.0.self_attn.q_norm.weight": (256,),
        "language_model.model.layers.0.pre_feedforward_layernorm.weight": (2560,),
        "language_model.model.layers.0.post_feedforward_layernorm.weight": (2560,),
        "multi_modal_projector.mm_soft_emb_norm.weight": (1152,),
        "vision_tower.vision_model.embeddings.patch_embedding.weight": (1152, 3, 14, 14),
        "vision_tower.vision_model.embeddings.patch_embedding.bias": (1152,),
        "vision_tower.vision_model.embeddings.position_embedding.weight": (4096, 1152),
        "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.bias": (1152,),
        "vision_tower.vision_model.head.probe": (1, 1, 1152),
    },
)
GEMMA3_GGUF = (
    *tensors(
        "F16",
        embedding={"token_embd.weight": (262144, 640)},
        matrix={"blk.0.attn_q.weight": (1024, 640)},
        finer={"blk.0.ffn_down.weight": (640, 2048)},
    ),
    *tensors(
        "F32",
        kept={
            "blk.0.attn_q_norm.weight": (256,),
            "blk.0.post_attention_norm.weight": (640,),
            "blk.0.post_ffw_norm.weight": (640,),
            "output_norm.weight": (640,),
        },
    ),
)
BERT = tensors(
    "F32",
    index={"embeddings.position_ids": (1, 512)},
    embedding={"embeddings.word_embeddings.weight": (30522, 384)},
    matrix={
        **layer(
            "encoder.layer.0.",
            {
                "attention.self.query.weight": (384, 384),
                "attention.self.key.weight": (384, 384),
                "attention.output.dense.weight": (384, 384),
                "intermediate.dense.weight": (1536, 384),
            },
        ),
        "pooler.dense.weight": (384, 384),
    },
    finer=layer("encoder.layer.0.", {"attention.self.value.weight": (384, 384), "output.dense.weight": (384, 1536)}),
    kept={
        "embeddings.position_embeddings.weight": (512, 384),
        "embeddings.token_type_embeddings.weight": (2, 384),
        "embeddings.LayerNorm.weight": (384,),
        "embeddings.LayerNorm.bias": (384,),
        "encoder.layer.0.attention.self.query.bias": (384,),
        "encoder.layer.0.attention.output.LayerNorm.weight": (384,),
        "encoder.layer.0.output.LayerNorm.bias": (384,),
        "pooler.dense.bias": (384,),
    },
)
BERT_GGUF = (
    *tensors(
        "F16",
        embedding={"token_embd.weight": (30522, 384)},
        matrix={
            "blk.0.attn_q.weight": (384, 384),
            "blk.0.attn_output.weight": (384, 384),
            "blk.0.ffn_up.weight": (1536, 384),
        },
        finer={"blk.0.ffn_down.weight": (384, 1536)},
    ),
    *tensors(
        "F32",
        kept={
            "position_embd.weight": (512, 384),
            "token_types.weight": (2, 384),
            "token_embd_norm.weight": (384,),
            "token_embd_norm.bias": (384,),
            "blk.0.attn_q.bias": (384,),
            "blk.0.attn_output_norm.weight": (384,),
            "blk.0.layer_output_norm.bias": (384,),
        },
    ),
)
EXPERTS = tensors(
    "BF16",
    embedding={"model.embed_tokens.weight": (248320, 2048), "lm_head.weight": (248320, 2048)},
    matrix=layer(
        "model.layers.0.",
        {
            "linear_attn.in_proj_z.weight": (4096, 2048),
            "linear_attn.out_proj.weight": (2048, 4096),
            "mlp.experts.gate_up_proj": (256, 1024, 2048),
            "mlp.shared_expert.gate_proj.weight": (512, 2048),
        },
    ),
    finer=layer(
        "model.layers.0.",
        {
            "linear_attn.in_proj_qkv.weight": (8192, 2048),
            "mlp.experts.down_proj": (256, 2048, 512),
            "mlp.shared_expert.down_proj.weight": (2048, 512),
        },
    ),
    kept=layer(
        "model.layers.0.",
        {
            "linear_attn.A_log": (32,),
            "linear_attn.dt_bias": (32,),
            "linear_attn.conv1d.weight": (8192, 1, 4),
            "linear_attn.in_proj_a.weight": (32, 2048),
            "linear_attn.in_proj_b.weight": (32, 2048),
            "linear_attn.norm.weight": (128,),
            "mlp.gate.weight": (256, 2048),
            "mlp.shared_expert_gate.weight": (1, 2048),
            "mlp.router.weight": (128, 2048),
            "block_sparse_moe.gate.weight": (8, 4096),
            "feed_forward.router.bias": (128,),
        },
    ),
)
EXPERTS_GGUF = (
    *tensors(
        "BF16",
        embedding={"token_embd.weight": (248320, 2048), "output.weight": (248320, 2048)},
        matrix=layer(
            "blk.0.",
            {
                "attn_gate.weight": (4096, 2048),
                "ssm_out.weight": (2048, 4096),
                "ffn_gate_exps.weight": (256, 512, 2048),
                "ffn_up_exps.weight": (256, 512, 2048),
                "ffn_gate_shexp.weight": (512, 2048),
            },
        ),
        finer=layer("blk.0.", {"attn_qkv.weight": (8192, 2048), "ffn_down_exps.weight": (256, 2048, 512)}),
    ),
    *tensors(
        "F32",
        kept=layer(
            "blk.0.",
            {
                "ssm_a": (32,),
                "ssm_dt.bias": (32,),
                "ssm_conv1d.weight": (8192, 4),
                "ssm_alpha.weight": (32, 2048),
                "ssm_beta.weight": (32, 2048),
                "ssm_norm.weight": (128,),
                "ffn_gate_inp.weight": (256, 2048),
                "ffn_gate_inp_shexp.weight": (2048,),
            },
        ),
    ),
)
# A layer of each of several families, as far as it has names of its own.
OTHERS = tensors(
    "BF16",
    embedding={
        "model.language_model.embed_tokens_per_layer.weight": (262144, 8960),
        "transformer.wte.weight": (50257, 768),
        "gpt_neox.embed_in.weight": (50432, 2048),
        "embed_out.weight": (50432, 2048),
        "tok_embeddings.weight": (32000, 4096),
        "shared.weight": (32128, 512),
        "cls.predictions.decoder.weight": (30522, 768),
    },
    matrix={"gpt_neox.layers.0.mlp.dense_h_to_4h.weight": (8192, 2048)},
    finer={
        "transformer.h.0.attn.c_attn.weight": (768, 2304),
        "transformer.h.0.mlp.c_proj.weight": (3072, 768),
        "transformer.h.0.mlp.fc_out.weight": (4096, 16384),
        "transformer.blocks.0.attn.Wqkv.weight": (12288, 4096),
        "gpt_neox.layers.0.attention.query_key_value.weight": (6144, 2048),
        "gpt_neox.layers.0.mlp.dense_4h_to_h.weight": (2048, 8192),
        "layers.0.feed_forward.w2.weight": (4096, 14336),
        "model.layers.0.block_sparse_moe.experts.0.w2.weight": (4096, 14336),
        "model.layers.0.self_attn.kv_b_proj.weight": (32768, 512),
        "model.layers.0.self_attn.qkv_proj.weight": (9216, 3072),
        "model.layers.0.linear_attn.in_proj_qkvz.weight": (12288, 2048),
    },
    kept={
        "transformer.wpe.weight": (1024, 768),
        "model.decoder.embed_positions.weight": (2050, 768),
        "model.visual.pos_embed.weight": (2304, 1152),
        "model.layers.0.linear_attn.in_proj_ba.weight": (64, 2048),
    },
)
OTHERS_GGUF = tensors(
    "BF16",
    embedding={"per_layer_token_embd.weight": (262144, 8960)},
    matrix={"blk.0.ffn_up.weight": (5632, 2048)},
    finer=layer(
        "blk.0.",
        {
            "attn_kv_b.weight": (32768, 512),
            "attn_v_b.weight": (16384, 512),
            "ffn_down_shexp.weight": (2048, 512),
        },
    ),
    kept={"blk.0.ssm_ba.weight": (64, 2048)},
)


def stacked(model: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The model with LAYERS layers like its one."""
    return tuple(
        replace(tensor, name=_LAYER.sub(str(layer), tensor.name))
        for tensor in model
        for layer in (range(LAYERS) if _LAYER.search(tensor.name) else (0,))
    )


_MODELS: dict[str, tuple[Tensor, ...]] = {
    "llama": LLAMA,
    "llama, llama.cpp": LLAMA_GGUF,
    "qwen3": QWEN3,
    "qwen3, llama.cpp": QWEN3_GGUF,
    "gemma3": GEMMA3,
    "gemma3, llama.cpp": GEMMA3_GGUF,
    "bert": BERT,
    "bert, llama.cpp": BERT_GGUF,
    "experts": EXPERTS,
    "experts, llama.cpp": EXPERTS_GGUF,
    "others": OTHERS,
    "others, llama.cpp": OTHERS_GGUF,
}

MODELS = {name: stacked(model) for name, model in _MODELS.items()}
