"""How deep in its stack of layers a parameter lies, by its name (recipes.md, Selecting: `depth`)."""

from __future__ import annotations

from collections.abc import Sequence

from ninfer_convert.natural import NUMBER


def depths(names: Sequence[str]) -> list[float | None]:
    """i / n for a parameter of layer i of n, None for one outside layers.

    Its layer is the first whole number that stands alone between dots or slashes (`model.layers.3.mlp.up`). Layers
    with the same text before the number are one stack, and n is its largest number plus one.
    """
    layers = [NUMBER.search(name) for name in names]
    counts: dict[str, int] = {}
    for name, layer in zip(names, layers, strict=True):
        if layer:
            stack = name[: layer.start()]
            counts[stack] = max(counts.get(stack, 0), int(layer[0]) + 1)
    return [
        int(layer[0]) / counts[name[: layer.start()]] if layer else None
        for name, layer in zip(names, layers, strict=True)
    ]
