"""MLX: U32 `weight` with `scales` and `biases`, packed along each row (encoded-sources.md 8.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ninfer_convert.sources.encoded.base import Convention, EncodedModule, Module, encoded

if TYPE_CHECKING:
    from ninfer_convert.sources.encoded.declared import Declaration


def _recognise(module: Module, declared: Declaration) -> Iterator[EncodedModule]:
    if module.stored("weight") != "U32" or not module.has("scales"):
        return
    rows, words = module.rows("weight")
    bits = declared.scheme(module.name).bits
    shape = (*rows, words * 32 // bits) if bits else None
    details = f"{bits or '?'} bits, group {declared.scheme(module.name).group or '?'}"
    yield encoded(module, ("weight", "scales", "biases"), "MLX", shape, declared, details)


MLX = Convention("MLX", _recognise)
