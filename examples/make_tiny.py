"""Make a checkpoint of real structure that is small enough to play with, laid out like a Hugging Face folder.

    python examples/make_tiny.py tiny-llama|tiny-qwen [FOLDER]

`tiny-llama` stands in the repository: two layers of grouped-query attention and a gated MLP, RMS norms, a tied
embedding. `tiny-qwen` is a Qwen3.5 text model: three layers of linear attention, then one of full attention with a
gate. Weights are bfloat16, drawn from a fixed seed; the tokenizer knows single characters.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Shapes = dict[str, tuple[int, ...]]

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM = 128, 128, 4, 1, 32
LINEAR_KEY_HEADS, LINEAR_VALUE_HEADS, LINEAR_HEAD_DIM, TAPS = 2, 4, 32, 4
TOKENS = ["<s>", "</s>"] + [chr(code) for code in range(32, 126)]
SPECIAL = [{"id": id, "content": TOKENS[id], "special": True} for id in (0, 1)]

TOKENIZER = {
    "version": "1.0",
    "added_tokens": SPECIAL,
    "model": {"type": "BPE", "vocab": {token: id for id, token in enumerate(TOKENS)}, "merges": []},
}
GENERATION = {"bos_token_id": 0, "eos_token_id": 1}


def config(architecture: str, model_type: str, layers: int, **own: object) -> dict[str, object]:
    """config.json of a model with members of its `own`."""
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": len(TOKENS),
        "max_position_embeddings": 256,
        **own,
        "torch_dtype": "bfloat16",
    }


def layer(own: Shapes) -> Shapes:
    """A layer: its norms, its mixer, its MLP."""
    return {
        "input_layernorm.weight": (HIDDEN,),
        **own,
        "post_attention_layernorm.weight": (HIDDEN,),
        "mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
    }


def attention(gated: bool) -> Shapes:
    """Full attention; where `gated`, each head's gate stands behind its query, and heads are normed."""
    width = HEADS * HEAD_DIM
    norms: Shapes = {"self_attn.q_norm.weight": (HEAD_DIM,), "self_attn.k_norm.weight": (HEAD_DIM,)}
    return {
        "self_attn.q_proj.weight": (2 * width if gated else width, HIDDEN),
        "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj.weight": (HIDDEN, width),
        **(norms if gated else {}),
    }


def linear_attention() -> Shapes:
    """Gated delta net."""
    value = LINEAR_VALUE_HEADS * LINEAR_HEAD_DIM
    channels = 2 * LINEAR_KEY_HEADS * LINEAR_HEAD_DIM + value
    return {
        "linear_attn.A_log": (LINEAR_VALUE_HEADS,),
        "linear_attn.dt_bias": (LINEAR_VALUE_HEADS,),
        "linear_attn.conv1d.weight": (channels, 1, TAPS),
        "linear_attn.in_proj_a.weight": (LINEAR_VALUE_HEADS, HIDDEN),
        "linear_attn.in_proj_b.weight": (LINEAR_VALUE_HEADS, HIDDEN),
        "linear_attn.in_proj_qkv.weight": (channels, HIDDEN),
        "linear_attn.in_proj_z.weight": (value, HIDDEN),
        "linear_attn.norm.weight": (LINEAR_HEAD_DIM,),
        "linear_attn.out_proj.weight": (HIDDEN, value),
    }


def model(layers: list[Shapes], head: Shapes) -> Shapes:
    """The checkpoint's tensors in the order of Hugging Face."""
    tensors: Shapes = {"model.embed_tokens.weight": (len(TOKENS), HIDDEN)}
    for number, own in enumerate(layers):
        tensors |= {f"model.layers.{number}.{name}": shape for name, shape in layer(own).items()}
    return {**tensors, "model.norm.weight": (HIDDEN,), **head}


def tiny_llama() -> tuple[Shapes, dict[str, Any]]:
    """Tensors and files."""
    layers = [attention(gated=False)] * 2
    own = {"rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": True}
    files = {
        "config.json": config("LlamaForCausalLM", "llama", len(layers), **own),
        "tokenizer.json": TOKENIZER,
        "generation_config.json": GENERATION,
    }
    return model(layers, {}), files


def tiny_qwen() -> tuple[Shapes, dict[str, Any]]:
    """Tensors and files."""
    layers = [linear_attention()] * 3 + [attention(gated=True)]
    own = {
        "rms_norm_eps": 1e-06,
        "rope_parameters": {"rope_theta": 10000000.0, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1]},
        "tie_word_embeddings": False,
        "full_attention_interval": 4,
        "linear_num_key_heads": LINEAR_KEY_HEADS,
        "linear_key_head_dim": LINEAR_HEAD_DIM,
        "linear_num_value_heads": LINEAR_VALUE_HEADS,
        "linear_value_head_dim": LINEAR_HEAD_DIM,
        "linear_conv_kernel_dim": TAPS,
    }
    files = {
        "config.json": config("Qwen3_5ForCausalLM", "qwen3_5_text", len(layers), **own),
        "tokenizer.json": TOKENIZER,
        "tokenizer_config.json": {"added_tokens_decoder": {str(token["id"]): token for token in SPECIAL}},
        "generation_config.json": GENERATION,
        "chat_template.jinja": "{% for message in messages %}<s>{{ message.content }}</s>{% endfor %}\n",
    }
    return model(layers, {"lm_head.weight": (len(TOKENS), HIDDEN)}), files


MODELS: dict[str, Callable[[], tuple[Shapes, dict[str, Any]]]] = {"tiny-llama": tiny_llama, "tiny-qwen": tiny_qwen}


def bfloat16(values: NDArray[np.float32]) -> bytes:
    """`values` rounded to bfloat16, nearest even, as little-endian bytes."""
    words = values.view(np.uint32)
    return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype("<u2").tobytes()


def safetensors_file(shapes: Shapes) -> bytes:
    """A safetensors file of bfloat16 tensors: header length, JSON header padded to 8 bytes, data."""
    random = np.random.default_rng(20240229)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data: list[bytes] = []
    end = 0
    for name, shape in shapes.items():
        values = random.standard_normal(shape, dtype=np.float32)
        data.append(bfloat16(1 + 0.05 * values if len(shape) == 1 else values / np.float32(shape[-1] ** 0.5)))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + len(data[-1])]}
        end += len(data[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data)


def main(name: str, folder: Path) -> None:
    """Write the checkpoint `name` into `folder`."""
    shapes, files = MODELS[name]()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(safetensors_file(shapes))
    for file, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        (folder / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
    elif len(sys.argv) not in (2, 3) or sys.argv[1] not in MODELS:
        sys.exit(__doc__)
    else:
        main(sys.argv[1], Path(sys.argv[-1]))
        print(f"made {sys.argv[-1]}")
