"""A GGUF of the family: llama.cpp's names and shapes, and what its exporter did to the values, undone (qwen35.md 8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ninfer_convert.architectures.qwen3_5.config import FULL, LINEAR, interleaved
from ninfer_convert.architectures.qwen3_5.text import Sizes, expert_parts, folded_rows, grouped, places
from ninfer_convert.architectures.table import Block, Placed, Row
from ninfer_convert.errors import Problem, printable
from ninfer_convert.sources.views import add, gather_columns, gather_rows, log_neg, reshape

if TYPE_CHECKING:
    from ninfer_convert.architectures.base import Parameter
    from ninfer_convert.architectures.qwen3_5.config import TextConfig
    from ninfer_convert.architectures.table import View
    from ninfer_convert.sources.base import Checkpoint
    from ninfer_convert.values import Runs, Shape, Source

DENSE, MOE = "qwen35", "qwen35moe"
"""What `general.architecture` is."""


@dataclass(frozen=True)
class _Tensor:
    """llama.cpp's tensor: its name, how it becomes Hugging Face's, its shape where that is another."""

    name: str
    view: View | None = None
    shape: Shape | None = None


def gguf_places(config: TextConfig) -> Iterator[Placed]:
    """Every block of the text component where llama.cpp keeps it."""
    tensors = _tensors(Sizes.of(config), config.prefix)
    translated: dict[int, Block] = {}
    for place in places(config, lambda before: _expert_rows):
        if id(place.block) not in translated:
            rows = tuple(_translated(row, tensors[row.tensor]) for row in place.block.rows)
            translated[id(place.block)] = replace(place.block, rows=rows)
        yield Placed(translated[id(place.block)], place.names, place.gguf, place.gguf)


def with_blocks(parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """The same, but quantized blocks that a format keeps are kept where no assign speaks, unless they are locked."""
    return tuple(
        parameter._replace(direct=None) if parameter.exact and parameter.locked is None else parameter
        for parameter in parameters
    )


def further_block(checkpoint: Checkpoint, config: TextConfig) -> str | None:
    """How the names of the multi-token prediction's tensors begin: a block behind the layers, where there is one."""
    layers = len(config.layer_types)
    blocks = checkpoint.metadata.get(f"{MOE if config.moe else DENSE}.block_count")
    return f"blk.{layers}." if blocks == layers + 1 else None


def header_problems(checkpoint: Checkpoint, config: TextConfig) -> Iterator[Problem]:
    """Key values that contradict config.json, by which the tensors are read (qwen35.md 8.1)."""
    architecture = MOE if config.moe else DENSE
    layers = len(config.layer_types)
    interval = checkpoint.metadata.get(f"{architecture}.full_attention_interval")
    alike = type(interval) is int and interval > 0 and interleaved(interval, layers) == config.layer_types
    expected = {
        "general.architecture": architecture,
        f"{architecture}.block_count": layers + bool(further_block(checkpoint, config)),
        f"{architecture}.full_attention_interval": interval if alike else "one that makes its layer_types",
        **{f"{architecture}.{key}": size for key, size in _sizes(config).items()},
    }
    for key, wanted in expected.items():
        found = checkpoint.metadata.get(key)
        if found != wanted:
            said = "is missing" if found is None else f"is {printable(str(found))}"
            message = f"{key} {said}, where config.json asks for {wanted}"
            yield Problem("other-model", message, path=checkpoint.shown)


def _sizes(config: TextConfig) -> dict[str, int]:
    s = Sizes.of(config)
    sizes = {"embedding_length": s.H}
    if FULL in config.layer_types:
        sizes |= {"attention.head_count": s.A, "attention.head_count_kv": s.G}
        sizes |= {"attention.key_length": s.D, "attention.value_length": s.D}
    if LINEAR in config.layer_types:
        sizes |= {"ssm.conv_kernel": s.T, "ssm.state_size": s.dk, "ssm.group_count": s.nk}
        sizes |= {"ssm.time_step_rank": s.nv, "ssm.inner_size": s.VG}
    if config.moe:
        sizes |= {"expert_count": s.E, "expert_used_count": config.size("num_experts_per_tok")}
        sizes |= {"expert_feed_forward_length": s.Fe, "expert_shared_feed_forward_length": s.Fs}
    else:
        sizes["feed_forward_length"] = s.F
    return sizes


def _translated(row: Row, tensor: _Tensor) -> Row:
    return replace(row, tensor=tensor.name, shape=tensor.shape or row.shape, view=_chained(tensor.view, row.view))


def _tensors(s: Sizes, prefix: str) -> dict[str, _Tensor]:
    """Hugging Face's tensor -> llama.cpp's; norms have one added there, but for a linear layer's own."""
    minus_one = partial(add, constant=-1)
    found = {
        f"{prefix}embed_tokens.weight": _Tensor("token_embd.weight"),
        "lm_head.weight": _Tensor("output.weight"),
        f"{prefix}norm.weight": _Tensor("output_norm.weight", minus_one),
        "input_layernorm.weight": _Tensor("attn_norm.weight", minus_one),
        "post_attention_layernorm.weight": _Tensor("post_attention_norm.weight", minus_one),
        "self_attn.q_proj.weight": _Tensor("attn_q.weight"),
        "self_attn.k_proj.weight": _Tensor("attn_k.weight"),
        "self_attn.v_proj.weight": _Tensor("attn_v.weight"),
        "self_attn.o_proj.weight": _Tensor("attn_output.weight"),
        "self_attn.q_norm.weight": _Tensor("attn_q_norm.weight", minus_one),
        "self_attn.k_norm.weight": _Tensor("attn_k_norm.weight", minus_one),
        "mlp.gate_proj.weight": _Tensor("ffn_gate.weight"),
        "mlp.up_proj.weight": _Tensor("ffn_up.weight"),
        "mlp.down_proj.weight": _Tensor("ffn_down.weight"),
        "mlp.gate.weight": _Tensor("ffn_gate_inp.weight"),
        "mlp.shared_expert_gate.weight": _Tensor("ffn_gate_inp_shexp.weight", partial(reshape, shape=(1, s.H)), (s.H,)),
        "mlp.experts.gate_proj": _Tensor("ffn_gate_exps.weight"),
        "mlp.experts.up_proj": _Tensor("ffn_up_exps.weight"),
        "mlp.experts.down_proj": _Tensor("ffn_down_exps.weight"),
        "mlp.shared_expert.gate_proj.weight": _Tensor("ffn_gate_shexp.weight"),
        "mlp.shared_expert.up_proj.weight": _Tensor("ffn_up_shexp.weight"),
        "mlp.shared_expert.down_proj.weight": _Tensor("ffn_down_shexp.weight"),
    }
    return found | _linear_tensors(s) if s.nk else found


def _linear_tensors(s: Sizes) -> dict[str, _Tensor]:
    """Those of linear layers, whose value heads llama.cpp has in an order of its own."""
    heads = grouped(s, s.dv)
    each_head = _rows(grouped(s, 1))
    channels = _rows(((0, 2 * s.KG), *((2 * s.KG + begin, 2 * s.KG + end) for begin, end in heads)) if heads else ())
    taps = _chained(channels, partial(reshape, shape=(s.C, 1, s.T)))
    columns = partial(gather_columns, runs=heads) if heads else None
    return {
        "linear_attn.A_log": _Tensor("ssm_a", _chained(each_head, log_neg)),
        "linear_attn.dt_bias": _Tensor("ssm_dt.bias", each_head),
        "linear_attn.conv1d.weight": _Tensor("ssm_conv1d.weight", taps, (s.C, s.T)),
        "linear_attn.in_proj_a.weight": _Tensor("ssm_alpha.weight", each_head),
        "linear_attn.in_proj_b.weight": _Tensor("ssm_beta.weight", each_head),
        "linear_attn.in_proj_qkv.weight": _Tensor("attn_qkv.weight", channels),
        "linear_attn.in_proj_z.weight": _Tensor("attn_gate.weight", _rows(heads)),
        "linear_attn.norm.weight": _Tensor("ssm_norm.weight"),
        "linear_attn.out_proj.weight": _Tensor("ssm_out.weight", columns),
    }


def _expert_rows(s: Sizes, expert: int) -> Iterator[Row]:
    """An expert's projections where each projection of all experts is a bank."""
    for name, ((rows, columns), input) in expert_parts(s, expert).items():
        view = partial(folded_rows, begin=expert * rows, end=(expert + 1) * rows)
        bank = (f"mlp.experts.{name}_proj", (s.E, rows, columns), input, f"ffn_{name}_exps.weight")
        yield Row(f"moe/experts/{expert}/{name}", *bank, view, expert=expert)


def _rows(runs: Runs) -> View | None:
    return partial(gather_rows, runs=runs) if runs else None


def _chained(first: View | None, second: View | None) -> View | None:
    """The second view of the first one; None is no view at all."""
    if first is None or second is None:
        return first or second

    def chained(source: Source) -> Source:
        return second(first(source))

    return chained
