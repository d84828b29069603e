"""Qwen3.5 checkpoints of tiny sizes and real structure, and what their parameters hold by NumPy (qwen35.md 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.architectures.building import resources, write_files
from tests.support import bf16, write_safetensors

Array = NDArray[np.float32]

H, V, A, G, D = 128, 24, 3, 1, 48
NK, DK, NV, DV, T = 2, 16, 6, 32, 4
F, E, FE, FS = 160, 3, 128, 136


@dataclass(frozen=True)
class Kind:
    """A kind of checkpoint: what differs from one to the next."""

    experts: bool = False
    fused: bool = False
    tied: bool = False
    nested: bool = True
    stored: str = "BF16"
    extra: tuple[str, ...] = ()
    """Names of further tensors."""

    @property
    def prefix(self) -> str:
        return "model.language_model." if self.nested else "model."


KINDS = {
    "dense": Kind(),
    "dense, text only": Kind(nested=False),
    "dense, tied, in binary32": Kind(tied=True, stored="F32"),
    "experts of their own": Kind(experts=True),
    "experts in banks": Kind(experts=True, fused=True),
    "experts in banks, tied, text only": Kind(experts=True, fused=True, tied=True, nested=False),
}


def text_config(kind: Kind) -> dict[str, Any]:
    """The text model's members of config.json; layers 1 and 3 are of full attention."""
    config: dict[str, Any] = {
        "hidden_size": H,
        "vocab_size": V,
        "num_hidden_layers": 4,
        "max_position_embeddings": 512,
        "tie_word_embeddings": kind.tied,
        "full_attention_interval": 2,
        "num_attention_heads": A,
        "num_key_value_heads": G,
        "head_dim": D,
        "linear_num_key_heads": NK,
        "linear_key_head_dim": DK,
        "linear_num_value_heads": NV,
        "linear_value_head_dim": DV,
        "linear_conv_kernel_dim": T,
        "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [4, 4, 4]},
    }
    if kind.experts:
        config |= {
            "num_experts": E,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": FE,
            "shared_expert_intermediate_size": FS,
        }
    else:
        config["intermediate_size"] = F
    return config


def config(kind: Kind) -> dict[str, Any]:
    """config.json."""
    family = "Qwen3_5Moe" if kind.experts else "Qwen3_5"
    text = text_config(kind)
    if kind.nested:
        return {"architectures": [f"{family}ForConditionalGeneration"], "text_config": text}
    return {"architectures": [f"{family}ForCausalLM"], **text}


def shapes(kind: Kind) -> dict[str, tuple[int, ...]]:
    """The tensors of a checkpoint."""
    found: dict[str, tuple[int, ...]] = {
        f"{kind.prefix}embed_tokens.weight": (V, H),
        f"{kind.prefix}norm.weight": (H,),
    }
    if not kind.tied:
        found["lm_head.weight"] = (V, H)
    for layer in range(4):
        own: dict[str, tuple[int, ...]] = {"input_layernorm.weight": (H,), "post_attention_layernorm.weight": (H,)}
        if layer % 2:
            own |= {
                "self_attn.q_proj.weight": (2 * A * D, H),
                "self_attn.k_proj.weight": (G * D, H),
                "self_attn.v_proj.weight": (G * D, H),
                "self_attn.o_proj.weight": (H, A * D),
                "self_attn.q_norm.weight": (D,),
                "self_attn.k_norm.weight": (D,),
            }
        else:
            own |= {
                "linear_attn.A_log": (NV,),
                "linear_attn.dt_bias": (NV,),
                "linear_attn.conv1d.weight": (2 * NK * DK + NV * DV, 1, T),
                "linear_attn.in_proj_a.weight": (NV, H),
                "linear_attn.in_proj_b.weight": (NV, H),
                "linear_attn.in_proj_qkv.weight": (2 * NK * DK + NV * DV, H),
                "linear_attn.in_proj_z.weight": (NV * DV, H),
                "linear_attn.norm.weight": (DV,),
                "linear_attn.out_proj.weight": (H, NV * DV),
            }
        if kind.experts:
            own |= {
                "mlp.gate.weight": (E, H),
                "mlp.shared_expert_gate.weight": (1, H),
                "mlp.shared_expert.gate_proj.weight": (FS, H),
                "mlp.shared_expert.up_proj.weight": (FS, H),
                "mlp.shared_expert.down_proj.weight": (H, FS),
            }
            if kind.fused:
                own |= {"mlp.experts.gate_up_proj": (E, 2 * FE, H), "mlp.experts.down_proj": (E, H, FE)}
            else:
                for expert in range(E):
                    own |= {
                        f"mlp.experts.{expert}.gate_proj.weight": (FE, H),
                        f"mlp.experts.{expert}.up_proj.weight": (FE, H),
                        f"mlp.experts.{expert}.down_proj.weight": (H, FE),
                    }
        else:
            own |= {
                "mlp.gate_proj.weight": (F, H),
                "mlp.up_proj.weight": (F, H),
                "mlp.down_proj.weight": (H, F),
            }
        found |= {f"{kind.prefix}layers.{layer}.{name}": shape for name, shape in own.items()}
    return found


def arrays(kind: Kind) -> dict[str, Array]:
    """Each tensor's values: numbers that bfloat16 holds, no two tensors alike."""
    random = np.random.default_rng(0)
    return {name: random.integers(-128, 128, shape).astype(np.float32) for name, shape in shapes(kind).items()}


def write(folder: Path, kind: Kind, **files: Any) -> dict[str, Array]:
    """The checkpoint in `folder`; `files` replace those beside it. Returns what `arrays` gives."""
    found = arrays(kind)
    folder.mkdir(parents=True, exist_ok=True)
    stored = {
        name: (kind.stored, array.shape, bf16(array) if kind.stored == "BF16" else array.tobytes())
        for name, array in found.items()
    }
    stored |= {name: ("BF16", (2,), bytes(4)) for name in kind.extra}
    write_safetensors(folder / "model.safetensors", stored)
    write_files(folder, {"config.json": config(kind), **resources(), **files})
    return found


def expected(kind: Kind, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Every logical parameter's values."""
    top = kind.prefix
    found = {
        "text/token_embedding": tensors[f"{top}embed_tokens.weight"],
        "text/output_head": tensors[f"{top}embed_tokens.weight" if kind.tied else "lm_head.weight"],
        "text/final_norm": tensors[f"{top}norm.weight"],
    }
    for layer in range(4):
        before = f"{top}layers.{layer}."
        own = {name.removeprefix(before): array for name, array in tensors.items() if name.startswith(before)}
        logical = _full(own) if layer % 2 else _linear(own)
        logical["input_norm"] = own["input_layernorm.weight"]
        logical["post_attention_norm"] = own["post_attention_layernorm.weight"]
        logical |= _experts(own) if kind.experts else _dense(own)
        found |= {f"text/layers/{layer}/{name}": array for name, array in logical.items()}
    return found


def _full(own: Mapping[str, Array]) -> dict[str, Array]:
    heads = own["self_attn.q_proj.weight"].reshape(A, 2, D, H)
    return {
        "attention/query": heads[:, 0].reshape(A * D, H),
        "attention/gate": heads[:, 1].reshape(A * D, H),
        "attention/key": own["self_attn.k_proj.weight"],
        "attention/value": own["self_attn.v_proj.weight"],
        "attention/query_norm": own["self_attn.q_norm.weight"],
        "attention/key_norm": own["self_attn.k_norm.weight"],
        "attention/output": own["self_attn.o_proj.weight"],
    }


def _linear(own: Mapping[str, Array]) -> dict[str, Array]:
    query, key, value = np.split(own["linear_attn.in_proj_qkv.weight"], [NK * DK, 2 * NK * DK])
    return {
        "gdn/a_log": own["linear_attn.A_log"],
        "gdn/dt_bias": own["linear_attn.dt_bias"],
        "gdn/convolution": own["linear_attn.conv1d.weight"].squeeze(1).T,
        "gdn/a_projection": own["linear_attn.in_proj_a.weight"],
        "gdn/b_projection": own["linear_attn.in_proj_b.weight"],
        "gdn/query": query,
        "gdn/key": key,
        "gdn/value": value,
        "gdn/z": own["linear_attn.in_proj_z.weight"],
        "gdn/norm": own["linear_attn.norm.weight"],
        "gdn/output": own["linear_attn.out_proj.weight"],
    }


def _dense(own: Mapping[str, Array]) -> dict[str, Array]:
    return {f"mlp/{part}": own[f"mlp.{part}_proj.weight"] for part in ("gate", "up", "down")}


def _experts(own: Mapping[str, Array]) -> dict[str, Array]:
    found = {"moe/router": own["mlp.gate.weight"], "moe/shared_score": own["mlp.shared_expert_gate.weight"]}
    found |= {f"moe/shared/{part}": own[f"mlp.shared_expert.{part}_proj.weight"] for part in ("gate", "up", "down")}
    for expert in range(E):
        names = {part: f"mlp.experts.{expert}.{part}_proj.weight" for part in ("gate", "up", "down")}
        if names["gate"] in own:
            parts = [own[name] for name in names.values()]
        else:
            both = own["mlp.experts.gate_up_proj"][expert]
            parts = [both[:FE], both[FE:], own["mlp.experts.down_proj"][expert]]
        found |= {f"moe/experts/{expert}/{part}": array for part, array in zip(names, parts, strict=True)}
    return found
