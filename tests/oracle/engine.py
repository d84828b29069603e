"""What an engine makes of a config: its rules, and every parameter it then asks for (qwen35.md 1.2, 2, 3, 7.2).

Part of the oracle `binder`; it shares nothing with the converter. What an engine would refuse raises Refused.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]

ATTENTION = ("num_attention_heads", "num_key_value_heads", "head_dim")
GDN = (
    "linear_num_key_heads",
    "linear_key_head_dim",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)
MOE = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size")
ALWAYS = (
    "architectures",
    "model_type",
    "hidden_size",
    "vocab_size",
    "num_hidden_layers",
    "max_position_embeddings",
    "tie_word_embeddings",
    "rms_norm_eps",
    "layer_types",
)


class Refused(Exception):
    """Why the artifact does not load."""


@dataclass(frozen=True)
class Expected:
    """A logical parameter that the engine asks for; `format` where only one will do."""

    name: str
    shape: Shape
    inputs: tuple[str, ...] = ()
    format: str | None = None


def demand(condition: object, message: str) -> None:
    if not condition:
        raise Refused(message)


def members(record: Any, where: str, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """The record, which must have all required members and none that is not known."""
    demand(isinstance(record, dict), f"{where} is no object")
    unknown = record.keys() - {*required, *optional}
    missing = set(required) - record.keys()
    demand(not unknown, f"{where} has unknown members {sorted(unknown)}")
    demand(not missing, f"{where} lacks {sorted(missing)}")
    found: dict[str, Any] = record
    return found


def whole(value: Any, where: str, least: int = 1, bits: int = 64) -> int:
    """A whole number; a bool is none."""
    demand(type(value) is int and least <= value < 1 << bits, f"{where} is {value!r}")
    return int(value)


def check_config(config: Any) -> None:
    moe = isinstance(config, dict) and config.get("model_type") == "qwen3_5_moe_text"
    members(config, "config", ALWAYS, (*ATTENTION, *GDN, *MOE, "rope_parameters", "intermediate_size"))
    pair = config["architectures"], config["model_type"]
    name = "Qwen3_5MoeForCausalLM" if moe else "Qwen3_5ForCausalLM"
    demand(pair == ([name], "qwen3_5_moe_text" if moe else "qwen3_5_text"), f"no implementation of {pair}")
    for size in ("hidden_size", "vocab_size", "num_hidden_layers", "max_position_embeddings"):
        whole(config[size], size, bits=32)
    demand(isinstance(config["tie_word_embeddings"], bool), "tie_word_embeddings is no bool")
    _check_float(config["rms_norm_eps"], "rms_norm_eps")
    types = config["layer_types"]
    demand(isinstance(types, list) and len(types) == config["num_hidden_layers"], "layer_types has another length")
    demand(set(types) <= {"full_attention", "linear_attention"}, f"layer_types {set(types)}")
    for names, needed in (
        ((*ATTENTION, "rope_parameters"), "full_attention" in types),
        (GDN, "linear_attention" in types),
        (MOE, moe),
        (("intermediate_size",), not moe),
    ):
        present = [name for name in names if name in config]
        demand(len(present) in (0, len(names)), f"of {names} there are only {present}")
        demand(present or not needed, f"{names} are missing")
        for name in present:
            if name != "rope_parameters":
                whole(config[name], name, bits=32)
    for both in (MOE, ("intermediate_size",)):
        demand((both is MOE) == moe or both[0] not in config, f"{both[0]} in a config of {name}")
    if "head_dim" in config:
        demand(config["num_attention_heads"] % config["num_key_value_heads"] == 0, "heads do not divide")
        _check_rope(config["rope_parameters"], config["head_dim"])
    if GDN[0] in config:
        demand(config["linear_num_value_heads"] % config["linear_num_key_heads"] == 0, "value heads do not divide")
    if moe:
        demand(config["num_experts_per_tok"] <= config["num_experts"], "more experts chosen than there are")


def _check_float(value: Any, where: str) -> None:
    demand(type(value) in (int, float) and value > 0, f"{where} is {value!r}")
    demand(struct.unpack("<f", struct.pack("<f", value))[0] == value, f"{where} is not rounded to binary32")


def _check_rope(rope: Any, head_dim: int) -> None:
    members(rope, "rope_parameters", ("rope_theta", "partial_rotary_factor", "mrope_section"))
    _check_float(rope["rope_theta"], "rope_theta")
    _check_float(rope["partial_rotary_factor"], "partial_rotary_factor")
    sections = rope["mrope_section"]
    demand(isinstance(sections, list) and len(sections) == 3, "mrope_section is no three numbers")
    for section in sections:
        whole(section, "mrope_section", least=0, bits=32)
    rotated = math.floor(head_dim * rope["partial_rotary_factor"])
    demand(rope["partial_rotary_factor"] <= 1 and rotated > 0 and rotated % 2 == 0, f"{rotated} values are rotated")
    demand(2 * sum(sections) == rotated, "mrope_section does not add up")
    counts = [0, 0, 0]
    for pair in range(rotated // 2):
        if pair % 3 == 1 and pair < 3 * sections[1]:
            counts[1] += 1
        elif pair % 3 == 2 and pair < 3 * sections[2]:
            counts[2] += 1
        else:
            counts[0] += 1
    demand(counts == sections, f"mrope_section is {sections}, but interleaves as {counts}")


@dataclass
class _Asking:
    prefix: str
    found: list[Expected] = field(default_factory=list)

    def weight(self, name: str, rows: int, columns: int, input: str) -> None:
        """A projection, in any format."""
        self.found.append(Expected(self.prefix + name, (rows, columns), (self.prefix + input,)))

    def value(self, name: str, *shape: int, format: str = "bf16") -> None:
        """What is no projection."""
        self.found.append(Expected(self.prefix + name, shape, format=format))


def expectations(config: dict[str, Any]) -> list[Expected]:
    """Every parameter of the component text, in declaration order."""
    hidden = config["hidden_size"]
    found = [
        Expected("text/token_embedding", (config["vocab_size"], hidden)),
        Expected("text/output_head", (config["vocab_size"], hidden), ("text/final_hidden",)),
        Expected("text/final_norm", (hidden,), format="bf16"),
    ]
    for layer, kind in enumerate(config["layer_types"]):
        asking = _Asking(f"text/layers/{layer}/")
        asking.value("input_norm", hidden)
        (_ask_attention if kind == "full_attention" else _ask_gdn)(asking, config)
        asking.value("post_attention_norm", hidden)
        (_ask_experts if "num_experts" in config else _ask_mlp)(asking, config)
        found += asking.found
    return found


def _ask_attention(asking: _Asking, config: dict[str, Any]) -> None:
    hidden, width = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    asking.weight("attention/query", queries, hidden, "mixer_input")
    asking.weight("attention/gate", queries, hidden, "mixer_input")
    asking.weight("attention/key", keys, hidden, "mixer_input")
    asking.weight("attention/value", keys, hidden, "mixer_input")
    asking.value("attention/query_norm", width)
    asking.value("attention/key_norm", width)
    asking.weight("attention/output", hidden, queries, "attention/gated_output")


def _ask_gdn(asking: _Asking, config: dict[str, Any]) -> None:
    hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = heads * config["linear_value_head_dim"]
    asking.value("gdn/a_log", heads, format="fp32")
    asking.value("gdn/dt_bias", heads, format="fp32")
    asking.value("gdn/convolution", config["linear_conv_kernel_dim"], 2 * keys + values)
    asking.weight("gdn/a_projection", heads, hidden, "mixer_input")
    asking.weight("gdn/b_projection", heads, hidden, "mixer_input")
    asking.weight("gdn/query", keys, hidden, "mixer_input")
    asking.weight("gdn/key", keys, hidden, "mixer_input")
    asking.weight("gdn/value", values, hidden, "mixer_input")
    asking.weight("gdn/z", values, hidden, "mixer_input")
    asking.value("gdn/norm", config["linear_value_head_dim"])
    asking.weight("gdn/output", hidden, values, "gdn/gated_output")


def _ask_mlp(asking: _Asking, config: dict[str, Any]) -> None:
    hidden, width = config["hidden_size"], config["intermediate_size"]
    asking.weight("mlp/gate", width, hidden, "ffn_input")
    asking.weight("mlp/up", width, hidden, "ffn_input")
    asking.weight("mlp/down", hidden, width, "mlp/product")


def _ask_experts(asking: _Asking, config: dict[str, Any]) -> None:
    hidden, width, shared = config["hidden_size"], config[MOE[2]], config[MOE[3]]
    asking.weight("moe/router", config["num_experts"], hidden, "ffn_input")
    asking.weight("moe/shared_score", 1, hidden, "ffn_input")
    for expert in range(config["num_experts"]):
        asking.weight(f"moe/experts/{expert}/gate", width, hidden, "ffn_input")
        asking.weight(f"moe/experts/{expert}/up", width, hidden, "ffn_input")
        asking.weight(f"moe/experts/{expert}/down", hidden, width, f"moe/experts/{expert}/product")
    asking.weight("moe/shared/gate", shared, hidden, "ffn_input")
    asking.weight("moe/shared/up", shared, hidden, "ffn_input")
    asking.weight("moe/shared/down", hidden, shared, "moe/shared/product")
