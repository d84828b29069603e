"""The text component's tables: what each kind of layer holds, of which tensors, in what order (qwen35.md 2, 4.1).

Sizes bear the fact sheet's symbols (0): heads in lower case, widths of their products in upper case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.architectures.qwen3_5.config import FULL
from ninfer_convert.architectures.table import Block, Placed, Row, View
from ninfer_convert.sources.views import gather_rows, reshape, take_rows, transpose

if TYPE_CHECKING:
    from ninfer_convert.architectures.qwen3_5.config import TextConfig
    from ninfer_convert.values import Runs, Source

BF16_ONLY = "the engine takes it as bf16 only"
FP32_ONLY = "the engine takes it as fp32 only"
"""Why a parameter is locked (qwen35.md 7.3, 7.4)."""

FUSED_EXPERTS = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
"""The tensors of a layer whose experts are stored as banks."""


@dataclass(frozen=True)
class Sizes:
    """Sizes by the fact sheet's symbols; 0 for what the model does not have."""

    H: int
    V: int
    A: int
    G: int
    D: int
    nk: int
    dk: int
    nv: int
    dv: int
    T: int
    F: int
    E: int
    Fe: int
    Fs: int

    @classmethod
    def of(cls, config: TextConfig) -> Sizes:
        """The sizes in a config."""
        return cls(
            H=config.size("hidden_size"),
            V=config.size("vocab_size"),
            A=config.size("num_attention_heads"),
            G=config.size("num_key_value_heads"),
            D=config.size("head_dim"),
            nk=config.size("linear_num_key_heads"),
            dk=config.size("linear_key_head_dim"),
            nv=config.size("linear_num_value_heads"),
            dv=config.size("linear_value_head_dim"),
            T=config.size("linear_conv_kernel_dim"),
            F=config.size("intermediate_size"),
            E=config.size("num_experts"),
            Fe=config.size("moe_intermediate_size"),
            Fs=config.size("shared_expert_intermediate_size"),
        )

    @property
    def Q(self) -> int:
        """Width of the queries."""
        return self.A * self.D

    @property
    def K(self) -> int:
        """Width of the keys, and of the values."""
        return self.G * self.D

    @property
    def KG(self) -> int:
        """Width of a linear layer's queries, and of its keys."""
        return self.nk * self.dk

    @property
    def VG(self) -> int:
        """Width of a linear layer's values."""
        return self.nv * self.dv

    @property
    def C(self) -> int:
        """Channels of the convolution."""
        return 2 * self.KG + self.VG


ExpertRows = Callable[[Sizes, int], Iterable[Row]]
"""The rows of one expert, by its number."""


def places(config: TextConfig, expert_rows: Callable[[str], ExpertRows]) -> Iterator[Placed]:
    """Every block of the text component where it stands.

    `expert_rows` gives those of the layer whose tensors' names begin as told.
    """
    sizes = Sizes.of(config)
    yield Placed(_globals(sizes, config), "text/", "")
    layers: dict[tuple[str, ExpertRows], Block] = {}
    for number, kind in enumerate(config.layer_types):
        before = f"{config.prefix}layers.{number}."
        rows = expert_rows(before)
        if (kind, rows) not in layers:
            feed_forward = _experts(sizes, rows) if config.moe else _dense(sizes)
            mixer = _attention(sizes) if kind == FULL else _linear(sizes)
            layers[kind, rows] = _layer(sizes, mixer, feed_forward)
        yield Placed(layers[kind, rows], f"text/layers/{number}/", before, f"blk.{number}.")


def stored_experts(tensors: Collection[str], before: str) -> ExpertRows:
    """How a layer of a checkpoint with these tensors keeps its experts: as banks, or each as tensors of its own."""
    return _banked if any(before + tensor in tensors for tensor in FUSED_EXPERTS) else _separate


def _globals(s: Sizes, config: TextConfig) -> Block:
    embedding = f"{config.prefix}embed_tokens.weight"
    head = (embedding, "token_embd.weight") if config.tied else ("lm_head.weight", "output.weight")
    return Block(
        (
            Row("token_embedding", embedding, (s.V, s.H), gguf="token_embd.weight"),
            Row("output_head", head[0], (s.V, s.H), "final_hidden", head[1]),
            _kept("final_norm", f"{config.prefix}norm.weight", s.H),
        )
    )


def _layer(s: Sizes, mixer: Block, feed_forward: Block) -> Block:
    before = Block((_kept("input_norm", "input_layernorm.weight", s.H),))
    between = Block((_kept("post_attention_norm", "post_attention_layernorm.weight", s.H),))
    return before + mixer + between + feed_forward


def _attention(s: Sizes) -> Block:
    # Each head's rows are its query's, then its gate's.
    both = ("self_attn.q_proj.weight", (2 * s.Q, s.H), "mixer_input", "attn_q.weight")
    return Block(
        (
            Row("attention/query", *both, _heads(s, 0)),
            Row("attention/gate", *both, _heads(s, s.D)),
            Row("attention/key", "self_attn.k_proj.weight", (s.K, s.H), "mixer_input", "attn_k.weight"),
            Row("attention/value", "self_attn.v_proj.weight", (s.K, s.H), "mixer_input", "attn_v.weight"),
            _kept("attention/query_norm", "self_attn.q_norm.weight", s.D),
            _kept("attention/key_norm", "self_attn.k_norm.weight", s.D),
            Row(
                "attention/output",
                "self_attn.o_proj.weight",
                (s.H, s.Q),
                "attention/gated_output",
                "attn_output.weight",
            ),
        ),
        (
            ("attention/query", "attention/key", "attention/gate", "attention/value"),
            ("attention/query", "attention/key"),
            ("attention/gate", "attention/value"),
        ),
    )


def _linear(s: Sizes) -> Block:
    fused = ("linear_attn.in_proj_qkv.weight", (s.C, s.H), "mixer_input", "attn_qkv.weight")
    projected = ((s.nv, s.H), "mixer_input")
    return Block(
        (
            _kept("gdn/a_log", "linear_attn.A_log", s.nv, direct="fp32"),
            _kept("gdn/dt_bias", "linear_attn.dt_bias", s.nv, direct="fp32"),
            _kept("gdn/convolution", "linear_attn.conv1d.weight", s.C, 1, s.T, view=_taps),
            Row("gdn/a_projection", "linear_attn.in_proj_a.weight", *projected, "ssm_alpha.weight", locked=BF16_ONLY),
            Row("gdn/b_projection", "linear_attn.in_proj_b.weight", *projected, "ssm_beta.weight", locked=BF16_ONLY),
            Row("gdn/query", *fused, partial(take_rows, begin=0, end=s.KG)),
            Row("gdn/key", *fused, partial(take_rows, begin=s.KG, end=2 * s.KG)),
            Row("gdn/value", *fused, partial(take_rows, begin=2 * s.KG, end=s.C)),
            Row("gdn/z", "linear_attn.in_proj_z.weight", (s.VG, s.H), "mixer_input", "attn_gate.weight"),
            _kept("gdn/norm", "linear_attn.norm.weight", s.dv),
            Row(
                "gdn/output",
                "linear_attn.out_proj.weight",
                (s.H, s.VG),
                "gdn/gated_output",
                "ssm_out.weight",
                columns=grouped(s, s.dv),
            ),
        ),
        (
            ("gdn/query", "gdn/key", "gdn/value", "gdn/z"),
            ("gdn/query", "gdn/key"),
            ("gdn/value", "gdn/z"),
            ("gdn/a_projection", "gdn/b_projection"),
        ),
    )


def _dense(s: Sizes) -> Block:
    return Block(
        (
            Row("mlp/gate", "mlp.gate_proj.weight", (s.F, s.H), "ffn_input", "ffn_gate.weight"),
            Row("mlp/up", "mlp.up_proj.weight", (s.F, s.H), "ffn_input", "ffn_up.weight"),
            Row("mlp/down", "mlp.down_proj.weight", (s.H, s.F), "mlp/product", "ffn_down.weight"),
        ),
        (("mlp/gate", "mlp/up"),),
    )


def _experts(s: Sizes, expert_rows: ExpertRows) -> Block:
    router = ("mlp.gate.weight", (s.E, s.H), "ffn_input", "ffn_gate_inp.weight")
    score = ("mlp.shared_expert_gate.weight", (1, s.H), "ffn_input", "ffn_gate_inp_shexp.weight")
    shared = "mlp.shared_expert"
    experts = range(s.E)
    return Block(
        (
            Row("moe/router", *router, locked=BF16_ONLY),
            Row("moe/shared_score", *score, locked=BF16_ONLY),
            *(row for expert in experts for row in expert_rows(s, expert)),
            Row("moe/shared/gate", f"{shared}.gate_proj.weight", (s.Fs, s.H), "ffn_input", "ffn_gate_shexp.weight"),
            Row("moe/shared/up", f"{shared}.up_proj.weight", (s.Fs, s.H), "ffn_input", "ffn_up_shexp.weight"),
            Row(
                "moe/shared/down",
                f"{shared}.down_proj.weight",
                (s.H, s.Fs),
                "moe/shared/product",
                "ffn_down_shexp.weight",
            ),
        ),
        (
            ("moe/router", "moe/shared_score"),
            tuple(f"moe/experts/{expert}/{half}" for expert in experts for half in ("gate", "up")),
            tuple(f"moe/experts/{expert}/down" for expert in experts),
            ("moe/shared/gate", "moe/shared/up"),
        ),
    )


def _separate(s: Sizes, expert: int) -> Iterator[Row]:
    """An expert's projections where each is a tensor."""
    for name, (shape, input) in expert_parts(s, expert).items():
        tensor = f"mlp.experts.{expert}.{name}_proj.weight"
        yield Row(f"moe/experts/{expert}/{name}", tensor, shape, input, f"ffn_{name}_exps.weight", expert=expert)


def _banked(s: Sizes, expert: int) -> Iterator[Row]:
    """An expert's projections where those of all are two tensors, its gate's rows before its up's in the first."""
    gate_up, down = FUSED_EXPERTS
    banks = {
        "gate": (gate_up, (s.E, 2 * s.Fe, s.H), 2 * expert * s.Fe),
        "up": (gate_up, (s.E, 2 * s.Fe, s.H), (2 * expert + 1) * s.Fe),
        "down": (down, (s.E, s.H, s.Fe), expert * s.H),
    }
    for name, ((rows, _), input) in expert_parts(s, expert).items():
        tensor, shape, begin = banks[name]
        view = partial(folded_rows, begin=begin, end=begin + rows)
        yield Row(f"moe/experts/{expert}/{name}", tensor, shape, input, f"ffn_{name}_exps.weight", view, expert=expert)


def expert_parts(s: Sizes, expert: int) -> dict[str, tuple[tuple[int, int], str]]:
    """Shape and input of an expert's projections, in declaration order."""
    return {
        "gate": ((s.Fe, s.H), "ffn_input"),
        "up": ((s.Fe, s.H), "ffn_input"),
        "down": ((s.H, s.Fe), f"moe/experts/{expert}/product"),
    }


def _kept(name: str, tensor: str, *shape: int, direct: str = "bf16", view: View | None = None) -> Row:
    """A parameter that is no projection: the engine takes it in its direct format only."""
    return Row(name, tensor, shape, view=view, direct=direct, locked=FP32_ONLY if direct == "fp32" else BF16_ONLY)


def _heads(s: Sizes, begin: int) -> View:
    """D rows of each head's 2 D, from row `begin` on."""
    return partial(gather_rows, runs=tuple((at + begin, at + begin + s.D) for at in range(0, 2 * s.Q, 2 * s.D)))


def _taps(source: Source) -> Source:
    """The convolution [C, 1, T] as [T, C], the order of the taps unchanged."""
    channels, _, taps = source.shape
    return transpose(reshape(source, (channels, taps)))


def folded_rows(source: Source, begin: int, end: int) -> Source:
    """Rows of a bank [E, N, K] folded to [E N, K]."""
    *leading, columns = source.shape
    return take_rows(reshape(source, (prod(leading), columns)), begin, end)


def grouped(s: Sizes, width: int) -> Runs:
    """llama.cpp's value heads in Hugging Face's order, as runs of `width` rows or columns each (qwen35.md 8.3).

    Hugging Face has the heads that share a key head side by side, llama.cpp has them `nk` apart. () where both agree.
    """
    shared = s.nv // s.nk
    if shared == 1:
        return ()
    tiled = (head % shared * s.nk + head // shared for head in range(s.nv))
    return tuple((position * width, (position + 1) * width) for position in tiled)
