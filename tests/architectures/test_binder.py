"""The oracle `binder` on directories written by hand: it finds everything, and refuses each single thing amiss."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import pytest

from tests.architectures import small
from tests.architectures.building import resources
from tests.oracle import binder
from tests.oracle.engine import Refused

INPUTS = {
    "output_head": "final_hidden",
    "attention/query": "mixer_input",
    "attention/gate": "mixer_input",
    "attention/key": "mixer_input",
    "attention/value": "mixer_input",
    "attention/output": "attention/gated_output",
    "gdn/a_projection": "mixer_input",
    "gdn/b_projection": "mixer_input",
    "gdn/query": "mixer_input",
    "gdn/key": "mixer_input",
    "gdn/value": "mixer_input",
    "gdn/z": "mixer_input",
    "gdn/output": "gdn/gated_output",
    "mlp/gate": "ffn_input",
    "mlp/up": "ffn_input",
    "mlp/down": "mlp/product",
    "moe/router": "ffn_input",
    "moe/shared_score": "ffn_input",
    "moe/shared/gate": "ffn_input",
    "moe/shared/up": "ffn_input",
    "moe/shared/down": "moe/shared/product",
    **{f"moe/experts/{e}/{half}": "ffn_input" for e in range(small.E) for half in ("gate", "up")},
    **{f"moe/experts/{e}/down": f"moe/experts/{e}/product" for e in range(small.E)},
}
WIDTHS = {"bf16": 2, "fp32": 4, "int32": 4}


@dataclass
class HandMade:
    """A directory, and the bytes of what it holds."""

    root: dict[str, Any]
    contents: dict[str, bytes] = field(default_factory=dict)
    payload: int = 0

    def bind(self, text: str | None = None) -> binder.Bound:
        data = (text or json.dumps(self.root)).encode()
        return binder.bind(data, lambda id: self.contents[id], self.payload)

    def tensor(self, id: str, shape: tuple[int, ...], format: str, content: bytes | None = None) -> dict[str, str]:
        """Add a direct tensor; the binding of the whole of it."""
        content = bytes(prod(shape) * WIDTHS[format]) if content is None else content
        self.payload = -(-self.payload // 256) * 256
        described = {"shape": list(shape), "format": format, "layout": "contiguous_le_v1"}
        self._add({"id": id, "kind": "tensor", **described}, content)
        return {"object": id}

    def resource(self, id: str, content: bytes) -> None:
        self._add({"id": id, "kind": "resource", "encoding": "raw_bytes_v1"}, content)

    def _add(self, record: dict[str, Any], content: bytes) -> None:
        self.root["objects"].append({**record, "offset": self.payload, "bytes": len(content)})
        self.contents[record["id"]] = content
        self.payload += len(content)

    def object(self, id: str) -> dict[str, Any]:
        found: dict[str, Any]
        (found,) = (record for record in self.root["objects"] if record["id"] == id)
        return found

    def use(self, parameter: str) -> dict[str, Any]:
        found: dict[str, Any]
        (found,) = (record for record in self.root["uses"] if record["parameter"] == parameter)
        return found


def hand_made(kind: small.Kind) -> HandMade:
    """An artifact of a small model with an object for each parameter."""
    moe = kind.experts
    text = small.text_config(kind)
    interval = text.pop("full_attention_interval")
    layers = ["full_attention" if (layer + 1) % interval == 0 else "linear_attention" for layer in range(4)]
    config = {
        "architectures": ["Qwen3_5MoeForCausalLM" if moe else "Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_moe_text" if moe else "qwen3_5_text",
        **text,
        "rms_norm_eps": 9.999999974752427e-07,
        "layer_types": layers,
    }
    made = HandMade({"components": {}, "objects": [], "bindings": {}, "uses": [], "files": [], "metadata": {}})
    roles = {}
    for role, content in resources().items():
        roles[role] = f"resource/text/{role}"
        made.resource(roles[role], (content if isinstance(content, str) else json.dumps(content)).encode())
    made.root["components"]["text"] = {"config": config, "resources": roles}
    for name, array in small.expected(kind, small.arrays(kind)).items():
        format = "fp32" if name.endswith(("a_log", "dt_bias")) else "bf16"
        made.root["bindings"][name] = made.tensor(f"w/{name}", array.shape, format)
        suffix = name.split("/", 3)[3] if "/layers/" in name else name.removeprefix("text/")
        if suffix in INPUTS:
            use = name.removesuffix(suffix) + INPUTS[suffix]
            made.root["uses"].append({"parameter": name, "input": use, "activation_policy": "A16Only"})
    return made


KINDS = {"dense": small.KINDS["dense"], "experts": small.KINDS["experts in banks"]}


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest) -> HandMade:
    return hand_made(KINDS[request.param])


@pytest.mark.parametrize("kind", KINDS)
def test_all_of_an_artifact_is_found(kind: str) -> None:
    made = hand_made(KINDS[kind])
    arrays = small.arrays(KINDS[kind])
    bound = made.bind()
    assert bound.parameters.keys() == made.root["bindings"].keys()
    assert len(bound.uses) == len(made.root["uses"]) == {"dense": 37, "experts": 81}[kind]
    assert bound.shapes == {name: array.shape for name, array in small.expected(KINDS[kind], arrays).items()}
    assert bound.tokens == 8
    assert list(bound.resources) == list(resources())


def test_each_parameter_that_is_not_bound(made: HandMade) -> None:
    for name in made.root["bindings"]:
        broken = copy.deepcopy(made)
        del broken.root["bindings"][name]
        broken.root["uses"] = [use for use in broken.root["uses"] if use["parameter"] != name]
        with pytest.raises(Refused, match=f"^{name} is not bound"):
            broken.bind()


def test_each_use_that_is_not_there_or_has_no_policy(made: HandMade) -> None:
    for number, use in enumerate(made.root["uses"]):
        broken = copy.deepcopy(made)
        del broken.root["uses"][number]
        with pytest.raises(Refused, match=f"there is no use of {use['parameter']} on {use['input']}"):
            broken.bind()
        broken = copy.deepcopy(made)
        del broken.root["uses"][number]["activation_policy"]
        with pytest.raises(Refused, match=f"use of {use['parameter']} on {use['input']} has no policy"):
            broken.bind()


def test_each_member_of_the_config_and_each_resource(made: HandMade) -> None:
    component = made.root["components"]["text"]
    for members in (component["config"], component["resources"], component["config"]["rope_parameters"]):
        for name in list(members):
            value = members.pop(name)
            with pytest.raises(Refused):
                made.bind()
            members[name] = value
    made.bind()


def test_each_format_and_each_shape(made: HandMade) -> None:
    for name, binding in made.root["bindings"].items():
        record = made.object(binding["object"])
        free = name == "text/token_embedding" or any(use["parameter"] == name for use in made.root["uses"])
        kept = dict(record)
        record["format"] = "q4_g64_fp16"
        if free:
            made.bind()
        else:
            with pytest.raises(Refused, match=f"^{name} is q4_g64_fp16, not "):
                made.bind()
        record |= {**kept, "shape": [1, *kept["shape"]]}
        with pytest.raises(Refused, match=f"^{name} has the shape"):
            made.bind()
        record |= kept


def test_parts_in_the_order_of_the_elements() -> None:
    made = hand_made(KINDS["dense"])
    head = made.tensor("halves", (2 * small.V * small.H,), "bf16")["object"]
    middle = small.V * small.H
    made.root["bindings"]["text/output_head"] = {"parts": [{"object": head, "range": [middle, 2 * middle]}]}
    (piece,) = made.bind().parameters["text/output_head"]
    assert (piece.object["id"], piece.begin, piece.end) == ("halves", middle, 2 * middle)
    rows = [
        {"object": head, "range": [0, 5 * small.H]},
        {"object": "w/text/output_head", "range": [5 * small.H, middle]},
    ]
    made.root["bindings"]["text/output_head"] = {"parts": rows}
    assert [piece.begin for piece in made.bind().parameters["text/output_head"]] == [0, 5 * small.H]


WHOLE = small.V * small.H
NO_BINDINGS: list[Any] = [
    {"parts": []},
    {"parts": [{"object": "w/text/output_head", "range": [0, WHOLE - 1]}]},
    {"parts": [{"object": "w/text/output_head", "range": [0, WHOLE + 1]}]},
    {"parts": [{"object": "w/text/output_head", "range": [5, 5]}]},
    {"parts": [{"object": "w/text/output_head", "range": [-1, WHOLE]}]},
    {"parts": [{"object": "nothing", "range": [0, WHOLE]}]},
    {"parts": [{"object": "resource/text/tokenizer.json", "range": [0, WHOLE]}]},
    {"object": "resource/text/tokenizer.json"},
    {"object": "w/text/output_head", "range": [0, WHOLE]},
]


@pytest.mark.parametrize("binding", NO_BINDINGS)
def test_a_binding_that_is_none(binding: Any) -> None:
    made = hand_made(KINDS["dense"])
    made.root["bindings"]["text/output_head"] = binding
    with pytest.raises(Refused):
        made.bind()


Change = Callable[[HandMade], object]
DIRECTORY: dict[str, Change] = {
    "a member of the root": lambda made: made.root.update(more=1),
    "no uses": lambda made: made.root.pop("uses"),
    "a member of an object": lambda made: made.root["objects"][5].update(more=1),
    "a member of a component": lambda made: made.root["components"]["text"].update(more=1),
    "a member of a use": lambda made: made.root["uses"][0].update(more=1),
    "objects out of order": lambda made: made.root["objects"].reverse(),
    "an object twice": lambda made: made.root["objects"].append(made.root["objects"][-1]),
    "objects that overlap": lambda made: made.root["objects"][0].update(
        bytes=made.object("w/text/final_norm")["offset"]
    ),
    "an object beyond the payload": lambda made: made.root["objects"][-1].update(bytes=10**9),
    "an object at an odd place": lambda made: made.root["objects"][-1].update(offset=made.payload - 1, bytes=1),
    "an axis of no length": lambda made: made.root["objects"][-1].update(shape=[0]),
    "seventeen axes": lambda made: made.root["objects"][-1].update(shape=[1] * 17),
    "a resource of no encoding": lambda made: made.root["objects"][0].update(encoding="gzip"),
    "a use twice": lambda made: made.root["uses"].append(made.root["uses"][0]),
    "a use of nothing": lambda made: made.root["uses"][0].update(parameter="text/nothing"),
    "an unknown policy": lambda made: made.root["uses"][0].update(activation_policy="AllowA2"),
    "a target that is not there": lambda made: made.root["components"].update(mtp={"config": {}, "target": "txt"}),
    "a resource that is not there": lambda made: made.root["components"].update(
        x={"config": {}, "resources": {"a": "b"}}
    ),
    "a proposal of another component": lambda made: made.root["components"].update(
        x={"config": {}, "proposal": {"domain": "full"}}
    ),
    "rows of a full proposal": lambda made: made.root["components"]["text"].update(
        proposal={"domain": "full", "rows": 3}
    ),
    "no text": lambda made: made.root["components"].update(x=made.root["components"].pop("text")),
    "an empty name": lambda made: made.root["metadata"].update(name=""),
}


@pytest.mark.parametrize("change", DIRECTORY.values(), ids=DIRECTORY)
def test_a_directory_that_breaks_a_rule(change: Change, made: HandMade) -> None:
    made.bind()
    change(made)
    with pytest.raises(Refused):
        made.bind()


def test_a_member_named_twice(made: HandMade) -> None:
    text = json.dumps(made.root)
    with pytest.raises(Refused, match="twice"):
        made.bind(text[:-1] + ', "metadata": {}}')


CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3_5MTP"],
    "model_type": "qwen3_5",
    "hidden_size": True,
    "vocab_size": 1 << 32,
    "num_hidden_layers": 3,
    "max_position_embeddings": 0,
    "tie_word_embeddings": 0,
    "rms_norm_eps": 1e-06,
    "layer_types": ["full_attention"] * 3 + ["sliding_attention"],
    "num_attention_heads": 3.0,
    "num_key_value_heads": 2,
    "linear_num_key_heads": 4,
    "hidden_act": "silu",
    "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 6, 4]},
}


@pytest.mark.parametrize("name", CONFIG)
def test_a_config_that_breaks_a_rule(name: str, made: HandMade) -> None:
    made.root["components"]["text"]["config"][name] = CONFIG[name]
    with pytest.raises(Refused):
        made.bind()


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [("dense", "num_experts", 3), ("experts", "intermediate_size", 3), ("experts", "num_experts_per_tok", 4)],
)
def test_a_config_of_both_kinds(kind: str, name: str, value: int) -> None:
    made = hand_made(KINDS[kind])
    made.root["components"]["text"]["config"][name] = value
    with pytest.raises(Refused):
        made.bind()


@pytest.mark.parametrize(
    ("role", "content"),
    [
        ("chat_template.jinja", b""),
        ("chat_template.jinja", b"\xff"),
        ("tokenizer.json", b"[]"),
        ("tokenizer_config.json", b"{"),
        ("tokenizer_config.json", b'{"added_tokens_decoder": {"7": {"content": "other"}}}'),
        ("tokenizer.json", b'{"model": {"vocab": {"a": 0, "b": 2}}}'),
        ("tokenizer.json", b'{"model": {"vocab": {"a": 99}}}'),
        ("generation_config.json", b'{"eos_token_id": 8}'),
        ("generation_config.json", b'{"eos_token_id": [0, 8]}'),
    ],
)
def test_a_resource_that_cannot_be_used(role: str, content: bytes, made: HandMade) -> None:
    made.contents[f"resource/text/{role}"] = content
    with pytest.raises(Refused):
        made.bind()


HEAD = "text/output_head"


def with_auxiliary(role: str, shape: tuple[int, ...], format: str, content: bytes, stored: str = "bf16") -> HandMade:
    """The head, of which a use has an auxiliary."""
    made = hand_made(small.Kind())
    made.object(f"w/{HEAD}")["format"] = stored
    made.use(HEAD)["auxiliaries"] = {role: made.tensor("auxiliary", shape, format, content)}
    return made


def numbers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def test_auxiliaries_that_may_be() -> None:
    divisor = with_auxiliary("activation_input_divisor", (), "fp32", struct.pack("<f", 0.5))
    assert divisor.bind().uses[HEAD, "text/final_hidden"].auxiliaries.keys() == {"activation_input_divisor"}
    with_auxiliary("input_columns", (small.H,), "int32", numbers(*reversed(range(small.H))), "gguf_q8_0").bind()


def test_columns_are_signed_by_whole_blocks_of_1024() -> None:
    signs = bytes.fromhex("803f80bf") * (small.H // 2)
    with pytest.raises(Refused, match="hadamard_signs of 128"):
        with_auxiliary("hadamard_signs", (small.H,), "bf16", signs).bind()


@pytest.mark.parametrize(
    ("role", "shape", "format", "content", "stored"),
    [
        ("weights", (), "fp32", struct.pack("<f", 1), "bf16"),
        ("activation_input_divisor", (), "fp32", struct.pack("<f", 0), "bf16"),
        ("activation_input_divisor", (), "fp32", struct.pack("<f", -1), "bf16"),
        ("activation_input_divisor", (), "fp32", struct.pack("<f", float("inf")), "bf16"),
        ("activation_input_divisor", (), "fp32", struct.pack("<f", float("nan")), "bf16"),
        ("activation_input_divisor", (2,), "fp32", struct.pack("<2f", 1, 1), "bf16"),
        ("activation_input_divisor", (), "bf16", b"\x80\x3f", "bf16"),
        ("input_columns", (small.H,), "int32", numbers(*range(small.H)), "bf16"),
        ("input_columns", (small.H,), "int32", numbers(*range(1, small.H + 1)), "gguf_q8_0"),
        ("input_columns", (small.H - 1,), "int32", numbers(*range(small.H - 1)), "gguf_q8_0"),
    ],
)
def test_auxiliaries_that_may_not_be(
    role: str, shape: tuple[int, ...], format: str, content: bytes, stored: str
) -> None:
    with pytest.raises(Refused):
        with_auxiliary(role, shape, format, content, stored).bind()


def test_four_bit_activations_of_nvfp4_need_a_divisor() -> None:
    made = with_auxiliary("activation_input_divisor", (), "fp32", struct.pack("<f", 0.5), "nvfp4")
    made.use(HEAD)["activation_policy"] = "AllowA4"
    made.bind()
    del made.use(HEAD)["auxiliaries"]
    with pytest.raises(Refused, match="lacks an activation_input_divisor"):
        made.bind()
    made.use(HEAD)["activation_policy"] = "AllowA8"
    made.bind()
