"""The reduced config of the component text: what is kept, and every rule of the fact sheet with its message (1.2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ninfer_convert.architectures.qwen3_5.config import read_text_config
from ninfer_convert.errors import SourceError
from tests.architectures import small
from tests.architectures.building import build
from tests.architectures.facts import facts_27b, facts_35b

ROPE = {"rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [4, 4, 4]}


PLAIN = small.Kind(nested=False)
EXPERTS = small.Kind(nested=False, experts=True)


def faults(config: Mapping[str, Any]) -> list[str]:
    with pytest.raises(SourceError) as caught:
        read_text_config(config, "c.json")
    problems = caught.value.problems
    assert {(problem.code, problem.path) for problem in problems} == {("bad-config", "c.json")}
    return [problem.message for problem in problems]


def changed(members: Mapping[str, Any], kind: small.Kind = PLAIN) -> dict[str, Any]:
    """config.json with some members replaced, and those that are to be `absent` taken away."""
    config = {**small.config(kind), **members}
    return {name: value for name, value in config.items() if value != "absent"}


def test_what_is_stored_of_the_27b() -> None:
    text = read_text_config(facts_27b().config, "c.json")
    assert text.prefix == "model.language_model."
    assert text.stored == {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "hidden_size": 5120,
        "vocab_size": 248320,
        "num_hidden_layers": 64,
        "max_position_embeddings": 262144,
        "tie_word_embeddings": False,
        "rms_norm_eps": 9.999999974752427e-07,
        "layer_types": [*["linear_attention"] * 3, "full_attention"] * 16,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "rope_parameters": {"rope_theta": 10000000.0, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10]},
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "intermediate_size": 17408,
    }


def test_what_is_stored_of_experts() -> None:
    stored = read_text_config(facts_35b(fused=True).config, "c.json").stored
    assert (stored["architectures"], stored["model_type"]) == (["Qwen3_5MoeForCausalLM"], "qwen3_5_moe_text")
    experts = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size")
    assert [stored[name] for name in experts] == [256, 8, 512, 512]
    assert "intermediate_size" not in stored


def test_only_what_the_layers_need_is_stored() -> None:
    attention = {"num_attention_heads", "num_key_value_heads", "head_dim", "rope_parameters"}
    linear = {name for name in small.text_config(small.Kind()) if name.startswith("linear_")}
    full = read_text_config(changed({"layer_types": ["full_attention"] * 4, "linear_key_head_dim": "x"}), "c.json")
    assert full.stored.keys() & (attention | linear) == attention
    none = read_text_config(changed({"layer_types": ["linear_attention"] * 4, "head_dim": "x"}), "c.json")
    assert none.stored.keys() & (attention | linear) == linear


def test_a_model_type_or_a_name_decides_nothing(tmp_path: Path) -> None:
    kind = small.Kind()
    small.write(tmp_path, kind, **{"config.json": {**small.config(kind), "model_type": "mine", "_name_or_path": "q"}})
    model = build(tmp_path)
    assert model.architecture == "qwen3_5"
    assert model.components[0].config["model_type"] == "qwen3_5_text"


@pytest.mark.parametrize(
    ("source", "stored"),
    [
        ("Qwen3_5ForCausalLM", "Qwen3_5ForCausalLM"),
        ("Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"),
        ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForCausalLM"),
        ("Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"),
    ],
)
def test_the_class_that_is_stored(source: str, stored: str) -> None:
    kind = EXPERTS if "Moe" in source else PLAIN
    assert read_text_config(changed({"architectures": [source]}, kind), "c.json").stored["architectures"] == [stored]


@pytest.mark.parametrize("nested", [False, True])
def test_whether_the_head_is_tied_is_told_inside_or_above(nested: bool) -> None:
    config = small.config(small.Kind(nested=nested))
    inner = config["text_config"] if nested else config
    del inner["tie_word_embeddings"]
    assert not read_text_config(config, "c.json").tied
    config["tie_word_embeddings"] = True
    assert read_text_config(config, "c.json").tied
    inner["tie_word_embeddings"] = False
    assert not read_text_config(config, "c.json").tied


def test_the_layers_follow_from_the_interval() -> None:
    def types(**members: Any) -> list[str]:
        return [
            kind[0] for kind in read_text_config(changed({"num_hidden_layers": 6, **members}), "c.json").layer_types
        ]

    assert types(full_attention_interval="absent") == ["l", "l", "l", "f", "l", "l"]
    assert types(full_attention_interval=3) == ["l", "l", "f", "l", "l", "f"]
    assert types(layer_types=[*["full_attention"] * 5, "linear_attention"]) == ["f", "f", "f", "f", "f", "l"]


@pytest.mark.parametrize(
    ("members", "stored"),
    [
        ({"rope_scaling": None}, (10000.0, 0.5)),
        ({"rope_parameters": {"mrope_section": [4, 4, 4], "partial_rotary_factor": 0.5}}, (1e7, 0.5)),
        ({"rope_parameters": {"mrope_section": [2, 2, 2]}}, (1e7, 0.25)),
        ({"rope_parameters": {"mrope_section": [4, 4, 4]}, "partial_rotary_factor": 0.5, "rope_theta": 7}, (7.0, 0.5)),
        ({"rope_parameters": {**ROPE, "rope_theta": 8}, "rope_theta": 7}, (8.0, 0.5)),
        ({"rope_parameters": "absent", "rope_scaling": {**ROPE, "type": "default", "factor": 1.0}}, (10000.0, 0.5)),
        ({"rope_parameters": {"rope_theta": 3}, "rope_scaling": {**ROPE, "rope_theta": 3}}, (3.0, 0.5)),
        ({"rope_parameters": {**ROPE, "rope_theta": 0.1}}, (0.10000000149011612, 0.5)),
        ({"rope_parameters": {**ROPE, "factor": 1, "rope_type": "default", "mrope_interleaved": True}}, (10000.0, 0.5)),
    ],
)
def test_where_the_rotary_embedding_is_told(members: dict[str, Any], stored: tuple[float, float]) -> None:
    rope = read_text_config(changed(members), "c.json").stored["rope_parameters"]
    assert list(rope) == ["rope_theta", "partial_rotary_factor", "mrope_section"]
    assert (rope["rope_theta"], rope["partial_rotary_factor"]) == stored


ONE_TO_U32 = "a whole number from 1 to 4294967295 was expected"
ONE_TO_4096 = "a whole number from 1 to 4096 was expected"
FOUR_LAYERS = "full_attention or linear_attention for each of 4 layers was expected"
OVER_ZERO = "a number that is over zero and finite in binary32 was expected"
RULES: list[tuple[dict[str, Any], str]] = [
    *(
        ({name: value}, f"{name} is {spelled}, where {ONE_TO_U32}")
        for name in ("hidden_size", "vocab_size", "head_dim", "linear_conv_kernel_dim", "intermediate_size")
        for value, spelled in (
            (0, "0"),
            (-1, "-1"),
            (True, "true"),
            (2.0, "2.0"),
            ("8", '"8"'),
            (1 << 32, "4294967296"),
        )
    ),
    *(
        ({name: "absent"}, f"{name} is missing, where {ONE_TO_U32}")
        for name in (
            "hidden_size",
            "vocab_size",
            "max_position_embeddings",
            "num_key_value_heads",
            "head_dim",
            "linear_num_key_heads",
            "linear_key_head_dim",
            "linear_value_head_dim",
            "linear_conv_kernel_dim",
            "intermediate_size",
        )
    ),
    *(
        ({name: value}, f"{name} {found}, where {ONE_TO_4096}")
        for name in ("num_hidden_layers", "num_attention_heads", "linear_num_value_heads")
        for value, found in (("absent", "is missing"), (0, "is 0"), (4097, "is 4097"), (10**9, "is 1000000000"))
    ),
    ({"head_dim": None}, f"head_dim is missing, where {ONE_TO_U32}"),
    ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1, where true or false was expected"),
    ({"rms_norm_eps": 0}, f"rms_norm_eps is 0, where {OVER_ZERO}"),
    ({"rms_norm_eps": -1e-6}, f"rms_norm_eps is -1e-06, where {OVER_ZERO}"),
    ({"rms_norm_eps": 1e-60}, f"rms_norm_eps is 1e-60, where {OVER_ZERO}"),
    ({"rms_norm_eps": 1e60}, f"rms_norm_eps is 1e+60, where {OVER_ZERO}"),
    ({"rms_norm_eps": True}, f"rms_norm_eps is true, where {OVER_ZERO}"),
    ({"full_attention_interval": 0}, f"full_attention_interval is 0, where {ONE_TO_U32}"),
    ({"layer_types": ["full_attention"]}, f'layer_types is ["full_attention"], where {FOUR_LAYERS}'),
    ({"layer_types": "full_attention"}, f'layer_types is "full_attention", where {FOUR_LAYERS}'),
    ({"layer_types": ["l", "l", "l", "l"]}, f'layer_types is ["l", "l", "l", "l"], where {FOUR_LAYERS}'),
    ({"layer_types": [["x"], None] * 2}, f'layer_types is [["x"], null, ["x"], null], where {FOUR_LAYERS}'),
    ({"hidden_act": "gelu"}, 'hidden_act is "gelu", where "silu" was expected'),
    ({"attention_bias": True}, "attention_bias is true, where false was expected"),
    ({"attention_bias": 0}, "attention_bias is 0, where false was expected"),
    ({"attn_output_gate": False}, "attn_output_gate is false, where true was expected"),
    ({"mamba_ssm_dtype": "bfloat16"}, 'mamba_ssm_dtype is "bfloat16", where "float32" was expected'),
    (
        {"num_attention_heads": 3, "num_key_value_heads": 2},
        "num_attention_heads is 3, no multiple of num_key_value_heads, which is 2",
    ),
    ({"linear_num_value_heads": 5}, "linear_num_value_heads is 5, no multiple of linear_num_key_heads, which is 2"),
    ({"rope_parameters": [], "rope_scaling": ROPE}, "rope_parameters is [], where an object was expected"),
    ({"rope_parameters": {**ROPE, "type": "yarn"}}, 'rope_parameters.type is "yarn", where "default" was expected'),
    ({"rope_parameters": {**ROPE, "rope_type": 1}}, 'rope_parameters.rope_type is 1, where "default" was expected'),
    ({"rope_parameters": {**ROPE, "factor": 4.0}}, "rope_parameters.factor is 4.0, where 1.0 was expected"),
    ({"rope_parameters": {**ROPE, "factor": True}}, "rope_parameters.factor is true, where 1.0 was expected"),
    (
        {"rope_parameters": {**ROPE, "mrope_interleaved": False}},
        "rope_parameters.mrope_interleaved is false, where true was expected",
    ),
    ({"rope_parameters": {**ROPE, "rope_theta": 0}}, f"rope_parameters.rope_theta is 0, where {OVER_ZERO}"),
    (
        {"rope_parameters": {"mrope_section": [4, 4, 4]}, "partial_rotary_factor": "half"},
        f'partial_rotary_factor is "half", where {OVER_ZERO}',
    ),
    (
        {"rope_scaling": {"rope_theta": 5.0}},
        "rope_scaling.rope_theta is 5.0, where 10000.0, as rope_parameters has it, was expected",
    ),
    *(
        (
            {"rope_parameters": {**ROPE, "mrope_section": section}},
            f"rope_parameters.mrope_section is {json.dumps(section)}, where a list of three whole numbers was expected",
        )
        for section in ([4], [2, 1, -1], [2, 1, 1.0], [True, 1, 2], 4)
    ),
    (
        {"rope_parameters": {"rope_theta": 10000.0}},
        "rope_parameters.mrope_section is missing, where a list of three whole numbers was expected",
    ),
    ({"rope_parameters": {**ROPE, "partial_rotary_factor": 1.5}}, "partial_rotary_factor is 1.5, over 1"),
    (
        {"rope_parameters": {**ROPE, "partial_rotary_factor": 0.4375}},
        "partial_rotary_factor 0.4375 of head_dim 48 is 21 values, where pairs are rotated",
    ),
    (
        {"rope_parameters": {**ROPE, "partial_rotary_factor": 0.02}},
        "partial_rotary_factor 0.019999999552965164 of head_dim 48 is 0 values, where pairs are rotated",
    ),
    (
        {"rope_parameters": {**ROPE, "mrope_section": [4, 4, 3]}},
        "mrope_section [4, 4, 3] adds up to 11, where 12 pairs are rotated",
    ),
    (
        {"rope_parameters": {**ROPE, "mrope_section": [3, 5, 4]}},
        "mrope_section [3, 5, 4] cannot be interleaved: time, height and width would get [4, 4, 4]",
    ),
]


@pytest.mark.parametrize(("members", "message"), RULES, ids=[message[:70] for _, message in RULES])
def test_each_rule_of_the_fact_sheet(members: dict[str, Any], message: str) -> None:
    assert faults(changed(members)) == [message]


@pytest.mark.parametrize("name", ["num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"])
def test_experts_have_sizes(name: str) -> None:
    assert faults(changed({name: "absent"}, EXPERTS)) == [f"{name} is missing, where {ONE_TO_U32}"]


def test_a_number_of_experts_that_no_memory_holds() -> None:
    assert faults(changed({"num_experts": 10**9}, EXPERTS)) == [f"num_experts is 1000000000, where {ONE_TO_4096}"]
    assert faults(changed({"num_experts": 4096, "num_hidden_layers": 33}, EXPERTS)) == [
        "4096 experts in each of 33 layers are 135168, over 131072"
    ]


@pytest.mark.parametrize("section", list(product(range(5), repeat=3))[1:])
def test_pairs_take_turns_between_the_axes(section: tuple[int, ...]) -> None:
    turns = [pair % 3 if pair < 3 * section[pair % 3] else 0 for pair in range(sum(section))]
    found = [turns.count(axis) for axis in range(3)]
    config = changed({"head_dim": 4 * sum(section), "rope_parameters": {**ROPE, "mrope_section": list(section)}})
    if found == list(section):
        assert read_text_config(config, "c.json").stored["rope_parameters"]["mrope_section"] == found
    else:
        (message,) = faults(config)
        assert message.endswith(f"time, height and width would get {found}")


def test_more_pairs_than_could_be_counted_one_by_one() -> None:
    rope = {**ROPE, "mrope_section": [1 << 30, 0, 0], "partial_rotary_factor": 1.0}
    config = changed({"head_dim": 1 << 31, "rope_parameters": rope})
    assert read_text_config(config, "c.json").stored["rope_parameters"]["mrope_section"] == [1 << 30, 0, 0]


def test_no_more_experts_are_chosen_than_there_are() -> None:
    assert faults(changed({"num_experts_per_tok": 4}, EXPERTS)) == [
        "num_experts_per_tok is 4, over num_experts, which is 3"
    ]


def test_members_of_the_text_config_are_called_so() -> None:
    config = small.config(small.Kind())
    config["text_config"] |= {"hidden_size": 0, "rope_parameters": {**ROPE, "type": "yarn"}}
    assert faults(config) == [
        f"text_config.hidden_size is 0, where {ONE_TO_U32}",
        'text_config.rope_parameters.type is "yarn", where "default" was expected',
    ]
    assert faults({**config, "text_config": 1})[0] == "text_config is 1, where an object was expected"


def test_all_faults_are_told_together_and_then_all_broken_rules() -> None:
    assert len(faults(changed({"hidden_size": 0, "head_dim": "absent", "rms_norm_eps": 0}))) == 3
    rules = {
        "num_key_value_heads": 2,
        "linear_num_key_heads": 4,
        "rope_parameters": {**ROPE, "mrope_section": [4, 0, 1]},
    }
    assert len(faults(changed(rules))) == 3


@pytest.mark.parametrize(
    "classes",
    ["absent", [], ["Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"], "Qwen3_5ForCausalLM", [3], [["x"]]],
)
def test_one_class_of_the_family(classes: Any) -> None:
    (message,) = faults(changed({"architectures": classes}))
    assert message.endswith(
        ", where a list of one of Qwen3_5ForCausalLM, Qwen3_5ForConditionalGeneration, Qwen3_5MoeForCausalLM, "
        "Qwen3_5MoeForConditionalGeneration was expected"
    )


def test_a_null_is_an_absent_member() -> None:
    absent = dict.fromkeys(("hidden_act", "attention_bias", "mamba_ssm_dtype", "rope_scaling", "layer_types"))
    assert read_text_config(changed(absent), "c.json").stored == read_text_config(changed({}), "c.json").stored
