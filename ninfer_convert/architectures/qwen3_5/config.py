"""The text component's reduced config: what is kept of config.json, and every rule for it (qwen35.md 1.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ninfer_convert.architectures.members import Members
from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.strict_json import spelled

_DENSE = ("Qwen3_5ForCausalLM", "qwen3_5_text")
_MOE = ("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text")
IMPLEMENTATIONS = MappingProxyType(
    {
        "Qwen3_5ForCausalLM": _DENSE,
        "Qwen3_5ForConditionalGeneration": _DENSE,
        "Qwen3_5MoeForCausalLM": _MOE,
        "Qwen3_5MoeForConditionalGeneration": _MOE,
    }
)
"""Class of the checkpoint -> the class and the model_type that are stored: the two pairs that the engine knows."""

FULL, LINEAR = "full_attention", "linear_attention"
_ATTENTION = ("num_attention_heads", "num_key_value_heads", "head_dim")
_LINEAR = (
    "linear_num_key_heads",
    "linear_key_head_dim",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)
_EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size")
_COUNTED = ("num_attention_heads", "linear_num_value_heads", "num_experts")
"""The members of these that something is made for each of."""

EXPERTS_AT_MOST = 1 << 17
"""The most experts of all layers together; 512 in each of 60 layers are a quarter of it."""


@dataclass(frozen=True)
class TextConfig:
    """`stored` is the component's config; `prefix` begins the names of the text model's tensors."""

    stored: Mapping[str, Any]
    prefix: str

    @property
    def moe(self) -> bool:
        """Whether its layers hold experts."""
        return "num_experts" in self.stored

    @property
    def tied(self) -> bool:
        """Whether the head reads the embedding."""
        return bool(self.stored["tie_word_embeddings"])

    @property
    def layer_types(self) -> list[str]:
        """FULL or LINEAR, layer by layer."""
        types: list[str] = self.stored["layer_types"]
        return types

    def size(self, name: str) -> int:
        """A whole number of the config; 0 for one that this model has no use for."""
        return int(self.stored.get(name, 0))


def read_text_config(config: Mapping[str, Any], path: str) -> TextConfig:
    """Reduce config.json's object, whose file is `path`.

    Raises SourceError with every member that is missing or wrong; where there is none, with every rule that they
    break together.
    """
    top = Members(config, path)
    architecture, model_type = _implementation(top)
    raw = top.inside("text_config") if "text_config" in top else top
    layers = raw.count("num_hidden_layers")
    types = _layer_types(raw, layers)
    stored: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": raw.size("hidden_size"),
        "vocab_size": raw.size("vocab_size"),
        "num_hidden_layers": layers,
        "max_position_embeddings": raw.size("max_position_embeddings"),
        "tie_word_embeddings": (raw if "tie_word_embeddings" in raw else top).flag("tie_word_embeddings"),
        "rms_norm_eps": raw.positive("rms_norm_eps", 1e-6),
        "layer_types": types,
    }
    raw.require("hidden_act", "silu")
    raw.require("attention_bias", False)
    raw.require("attn_output_gate", True)
    if FULL in types:
        stored |= _sizes(raw, _ATTENTION)
        stored["rope_parameters"] = _rope(raw)
    if LINEAR in types:
        raw.require("mamba_ssm_dtype", "float32")
        stored |= _sizes(raw, _LINEAR)
    stored |= _sizes(raw, _EXPERTS if architecture == _MOE[0] else ("intermediate_size",))
    if not top.problems:
        for message in _broken_rules(stored):
            top.problem(message)
    if top.problems:
        raise SourceError(top.problems)
    return TextConfig(stored, "model." if raw is top else "model.language_model.")


def refuse_another_model(text: TextConfig, main: TextConfig, path: str) -> None:
    """Raise SourceError where a config differs from the main input's in what no shape of a tensor would show."""
    differences = [
        Problem("other-model", f"{name} is {spelled(own)}, but {spelled(expected)} in the main input", path)
        for name in ("tie_word_embeddings", *_ATTENTION, *_LINEAR)
        if (own := text.stored.get(name)) != (expected := main.stored.get(name))
    ]
    if differences:
        raise SourceError(differences)


def _sizes(raw: Members, names: Iterable[str]) -> dict[str, int]:
    return {name: raw.count(name) if name in _COUNTED else raw.size(name) for name in names}


def _implementation(top: Members) -> tuple[str, str]:
    """The pair to store; raises SourceError at once for another class, as all else depends on it."""
    classes = top.get("architectures")
    if isinstance(classes, list) and len(classes) == 1 and classes[0] in list(IMPLEMENTATIONS):
        return IMPLEMENTATIONS[classes[0]]
    top.wrong("architectures", classes, f"a list of one of {', '.join(IMPLEMENTATIONS)}")
    raise SourceError(top.problems)


def _layer_types(raw: Members, layers: int) -> list[str]:
    """As given, or every so many layers a full one; empty where they are wrong."""
    types = raw.get("layer_types")
    if types is None:
        interval = raw.size("full_attention_interval", 4)
        return interleaved(interval, layers) if interval else []
    if (
        isinstance(types, list)
        and len(types) == (layers or len(types))
        and all(kind in (FULL, LINEAR) for kind in types)
    ):
        return types
    raw.wrong("layer_types", types, f"{FULL} or {LINEAR} for each of {layers} layers")
    return []


def interleaved(interval: int, layers: int) -> list[str]:
    """Types of layers of which every `interval`-th is of full attention."""
    return [LINEAR if (layer + 1) % interval else FULL for layer in range(layers)]


def _rope(raw: Members) -> dict[str, Any]:
    """rope_parameters as they are stored, from the union of raw's rope_parameters and rope_scaling."""
    scaling, parameters = raw.inside("rope_scaling"), raw.inside("rope_parameters")
    for name in scaling.members:
        if name in scaling and name in parameters and scaling.get(name) != parameters.get(name):
            scaling.wrong(name, scaling.get(name), f"{spelled(parameters.get(name))}, as rope_parameters has it,")
    union = {name: parameters.get(name, scaling.get(name)) for name in (*scaling.members, *parameters.members)}
    rope = Members(union, raw.path, parameters.place, raw.problems)
    for kind in ("type", "rope_type"):
        rope.require(kind, "default")
    factor = rope.get("factor", 1.0)
    if type(factor) not in (int, float) or factor != 1:
        rope.wrong("factor", factor, "1.0")
    rope.require("mrope_interleaved", True)
    section = rope.get("mrope_section")
    if not (isinstance(section, list) and len(section) == 3 and all(type(n) is int and n >= 0 for n in section)):
        rope.wrong("mrope_section", section, "a list of three whole numbers")
    return {
        "rope_theta": (rope if "rope_theta" in rope else raw).positive("rope_theta", 10_000_000),
        "partial_rotary_factor": (rope if "partial_rotary_factor" in rope else raw).positive(
            "partial_rotary_factor", 0.25
        ),
        "mrope_section": section,
    }


def _broken_rules(stored: Mapping[str, Any]) -> Iterator[str]:
    """What members that are right by themselves do not fulfil together."""
    for number, divisor in (
        ("num_attention_heads", "num_key_value_heads"),
        ("linear_num_value_heads", "linear_num_key_heads"),
    ):
        if number in stored and stored[number] % stored[divisor]:
            yield f"{number} is {stored[number]}, no multiple of {divisor}, which is {stored[divisor]}"
    chosen, experts = stored.get("num_experts_per_tok", 0), stored.get("num_experts", 0)
    if chosen > experts:
        yield f"num_experts_per_tok is {chosen}, over num_experts, which is {experts}"
    layers = stored["num_hidden_layers"]
    if layers * experts > EXPERTS_AT_MOST:
        yield f"{experts} experts in each of {layers} layers are {layers * experts}, over {EXPERTS_AT_MOST}"
    if "rope_parameters" in stored:
        yield from _broken_rope(stored["head_dim"], stored["rope_parameters"])


def _broken_rope(head_dim: int, rope: Mapping[str, Any]) -> Iterator[str]:
    """The first rule of the rotary embedding that is broken: each builds on the one before."""
    factor, section = rope["partial_rotary_factor"], rope["mrope_section"]
    rotated = int(head_dim * factor)
    if factor > 1:
        yield f"partial_rotary_factor is {factor}, over 1"
    elif rotated == 0 or rotated % 2:
        yield f"partial_rotary_factor {factor} of head_dim {head_dim} is {rotated} values, where pairs are rotated"
    elif sum(section) != rotated // 2:
        yield f"mrope_section {spelled(section)} adds up to {sum(section)}, where {rotated // 2} pairs are rotated"
    elif (interleaved := _interleaved(section)) != section:
        yield f"mrope_section {spelled(section)} cannot be interleaved: time, height and width would get {interleaved}"


def _interleaved(section: list[int]) -> list[int]:
    """How many pairs each axis (time, height, width) turns where the pairs take turns."""
    pairs = sum(section)
    height, width = (len(range(axis, min(pairs, 3 * section[axis]), 3)) for axis in (1, 2))
    return [pairs - height - width, height, width]
