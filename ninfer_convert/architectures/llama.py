"""Llama and Qwen3 under logical names: the smallest user of the tables, and one that no engine binds yet.

The naming is that of `qwen3_5`, without an engine's facts: parameters keep their stored words where no assign speaks,
nothing is locked, and the config stays whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ninfer_convert.architectures.base import Architecture, Component, Model
from ninfer_convert.architectures.filling import fill, tied_head
from ninfer_convert.architectures.generic import whole_config
from ninfer_convert.architectures.members import Members
from ninfer_convert.architectures.resources import optional_resources
from ninfer_convert.architectures.table import Block, Placed, Row
from ninfer_convert.errors import SourceError

if TYPE_CHECKING:
    from ninfer_convert.architectures.base import Request
    from ninfer_convert.sources.base import Checkpoint
    from ninfer_convert.values import Shape, Source

QWEN3 = "Qwen3ForCausalLM"
PREFIX = "model."


@dataclass(frozen=True)
class _Sizes:
    hidden: int
    vocabulary: int
    layers: int
    heads: int
    key_heads: int
    head: int
    feed_forward: int
    tied: bool
    attention_bias: bool
    mlp_bias: bool
    head_norms: bool


def build(
    checkpoint: Checkpoint, config: Mapping[str, Any] | None, sources: Mapping[str, Source], request: Request
) -> Model:
    """One component, `text`. Raises SourceError for a config that is not this family's, and for other tensors."""
    config = config or request.main or {}
    sizes = _read(config, checkpoint.shown_beside("config.json"))

    def passed_by(name: str) -> str | None:
        if name.endswith(".rotary_emb.inv_freq"):
            return "rotary frequencies, which follow from the config"
        return tied_head(name, sizes.tied)

    filling = fill(_places(sizes), sources, checkpoint, PREFIX, passed_by, request)
    if filling.problems:
        raise SourceError(filling.problems)
    resources, warnings = optional_resources(checkpoint, request.resources)
    return Model(
        architecture=LLAMA.name,
        components=(Component("text", whole_config(config)),),
        parameters=filling.parameters,
        resources=resources,
        groups=filling.groups,
        passed_by=filling.passed_by,
        unbindable="no engine binds the artifact today: its parameters have the logical names of Llama and Qwen3",
        warnings=(*filling.notes, *warnings),
    )


def _read(config: Mapping[str, Any], path: str) -> _Sizes:
    members = Members(config, path)
    qwen3 = QWEN3 in members.get("architectures", ())
    hidden, heads = members.size("hidden_size"), members.size("num_attention_heads")
    sizes = _Sizes(
        hidden=hidden,
        vocabulary=members.size("vocab_size"),
        layers=members.count("num_hidden_layers"),
        heads=heads,
        key_heads=members.size("num_key_value_heads", heads),
        head=members.size("head_dim", 128 if qwen3 else hidden // max(heads, 1)),
        feed_forward=members.size("intermediate_size"),
        tied=members.flag("tie_word_embeddings"),
        attention_bias=members.flag("attention_bias"),
        mlp_bias=members.flag("mlp_bias"),
        head_norms=qwen3,
    )
    if members.problems:
        raise SourceError(members.problems)
    return sizes


def _places(sizes: _Sizes) -> Iterator[Placed]:
    yield Placed(_globals(sizes), "text/", "")
    layer = _layer(sizes)
    for number in range(sizes.layers):
        yield Placed(layer, f"text/layers/{number}/", f"{PREFIX}layers.{number}.", f"blk.{number}.")


def _globals(s: _Sizes) -> Block:
    embedding = ("model.embed_tokens.weight", "token_embd.weight")
    head = embedding if s.tied else ("lm_head.weight", "output.weight")
    return Block(
        (
            _row("token_embedding", embedding[0], (s.vocabulary, s.hidden), gguf=embedding[1]),
            _row("output_head", head[0], (s.vocabulary, s.hidden), "final_hidden", head[1]),
            _row("final_norm", "model.norm.weight", (s.hidden,)),
        )
    )


def _layer(s: _Sizes) -> Block:
    query, key = s.heads * s.head, s.key_heads * s.head
    attention = (
        *_projection(
            "attention/query", "self_attn.q_proj", (query, s.hidden), "mixer_input", "attn_q", s.attention_bias
        ),
        *_projection("attention/key", "self_attn.k_proj", (key, s.hidden), "mixer_input", "attn_k", s.attention_bias),
        *_projection("attention/value", "self_attn.v_proj", (key, s.hidden), "mixer_input", "attn_v", s.attention_bias),
    )
    norms = (
        _row("attention/query_norm", "self_attn.q_norm.weight", (s.head,)),
        _row("attention/key_norm", "self_attn.k_norm.weight", (s.head,)),
    )
    return Block(
        (
            _row("input_norm", "input_layernorm.weight", (s.hidden,)),
            *attention,
            *(norms if s.head_norms else ()),
            *_projection(
                "attention/output",
                "self_attn.o_proj",
                (s.hidden, query),
                "attention/heads",
                "attn_output",
                s.attention_bias,
            ),
            _row("post_attention_norm", "post_attention_layernorm.weight", (s.hidden,)),
            *_projection("mlp/gate", "mlp.gate_proj", (s.feed_forward, s.hidden), "ffn_input", "ffn_gate", s.mlp_bias),
            *_projection("mlp/up", "mlp.up_proj", (s.feed_forward, s.hidden), "ffn_input", "ffn_up", s.mlp_bias),
            *_projection(
                "mlp/down", "mlp.down_proj", (s.hidden, s.feed_forward), "mlp/product", "ffn_down", s.mlp_bias
            ),
        ),
        (("attention/query", "attention/key", "attention/value"), ("mlp/gate", "mlp/up")),
    )


def _projection(name: str, tensor: str, shape: Shape, input: str, gguf: str, bias: bool) -> Iterator[Row]:
    """A matrix, and its bias where the model has one."""
    yield _row(name, f"{tensor}.weight", shape, input, f"{gguf}.weight")
    if bias:
        yield _row(f"{name}_bias", f"{tensor}.bias", shape[:1])


def _row(name: str, tensor: str, shape: Shape, input: str | None = None, gguf: str | None = None) -> Row:
    return Row(name, tensor, shape, input, gguf, direct=None)


LLAMA = Architecture("llama", build, classes=("LlamaForCausalLM", QWEN3), automatic=False)
