"""A directory with every member, and its records, changed one at a time."""

from __future__ import annotations

import copy
from typing import Any

from tests.container.directories import parts, resource, root, tensor, whole


def full() -> dict[str, Any]:
    """A directory in which every record and every optional member occurs."""
    return root(
        [
            resource("tokenizer", 0, 18),
            tensor("n", [256, 64], "nvfp4", "block_scale_k16_m128x4_v1", 256, 9224, divisors=2),
            tensor("d", [], "fp32", "contiguous_le_v1", 9728, 4),
        ],
        components={
            "text": {
                "config": {"anything": [1, {"at": None}]},
                "resources": {"tokenizer.json": "tokenizer"},
                "proposal": {"domain": "indexed", "rows": 7},
            },
            "mtp": {"config": {}, "target": "text"},
        },
        bindings={"w": whole("n"), "v": parts(("n", 0, 64), ("n", 128, 192)), "divisor": whole("d")},
        uses=[
            {
                "parameter": "w",
                "input": "x",
                "activation_policy": "AllowA4",
                "auxiliaries": {"activation_input_divisor": whole("d")},
            },
            {"parameter": "w", "input": "y"},
        ],
        metadata={"name": "tiny", "more": {}},
        provenance={"tool": {"name": "other"}},
    )


def put(value: Any, at: tuple[str | int, ...], name: str, member: Any) -> Any:
    """A copy of `value` whose record at `at` has another member."""
    changed = copy.deepcopy(value)
    member_of(changed, at)[name] = member
    return changed


def member_of(value: Any, at: tuple[str | int, ...]) -> Any:
    """What stands at `at`."""
    for step in at:
        value = value[step]
    return value
