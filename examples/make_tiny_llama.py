"""Make `examples/tiny-llama`: a checkpoint of real structure, small enough to stand in the repository.

A two-layer Llama (grouped-query attention, gated MLP, RMS norms, tied embedding) with bfloat16 weights drawn from a
fixed seed, a config.json and a byte-level tokenizer, laid out like a Hugging Face folder:

    python examples/make_tiny_llama.py [FOLDER]
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 128, 2, 4, 1, 32, 128
TOKENS = ["<s>", "</s>"] + [chr(code) for code in range(32, 126)]

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": len(TOKENS),
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [{"id": id, "content": TOKENS[id], "special": True} for id in (0, 1)],
    "model": {"type": "BPE", "vocab": {token: id for id, token in enumerate(TOKENS)}, "merges": []},
}
GENERATION = {"bos_token_id": 0, "eos_token_id": 1}


def shapes() -> dict[str, tuple[int, ...]]:
    """The checkpoint's tensors in the order of a Hugging Face Llama."""
    tensors: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (len(TOKENS), HIDDEN)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        tensors |= {
            f"{prefix}input_layernorm.weight": (HIDDEN,),
            f"{prefix}self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}post_attention_layernorm.weight": (HIDDEN,),
            f"{prefix}mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{prefix}mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{prefix}mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        }
    tensors["model.norm.weight"] = (HIDDEN,)
    return tensors


def bfloat16(values: NDArray[np.float32]) -> bytes:
    """`values` rounded to bfloat16, nearest even, as little-endian bytes."""
    words = values.view(np.uint32)
    return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype("<u2").tobytes()


def safetensors_file(tensors: dict[str, bytes]) -> bytes:
    """A safetensors file of bfloat16 `tensors`: header length, JSON header padded to 8 bytes, data."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, data in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shapes()[name], "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())


def main(folder: Path) -> None:
    """Write the checkpoint into `folder`."""
    random = np.random.default_rng(20240229)
    tensors = {}
    for name, shape in shapes().items():
        if len(shape) == 1:
            values = 1 + 0.05 * random.standard_normal(shape, dtype=np.float32)
        else:
            values = random.standard_normal(shape, dtype=np.float32) / np.float32(shape[-1] ** 0.5)
        tensors[name] = bfloat16(values)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(safetensors_file(tensors))
    for name, content in (
        ("config.json", CONFIG),
        ("tokenizer.json", TOKENIZER),
        ("generation_config.json", GENERATION),
    ):
        (folder / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "tiny-llama")
