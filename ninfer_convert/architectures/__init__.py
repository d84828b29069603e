"""What a checkpoint's tensors mean: logical parameters, a component's config, its resources.

An architecture decides names, shapes and direct formats; it reads no weight and chooses no format of a recipe.
"""

from ninfer_convert.architectures.base import Component, Model, Parameter, Resource

ARCHITECTURES = ("generic",)
"""Every architecture a recipe may name beside "auto"."""

__all__ = ["ARCHITECTURES", "Component", "Model", "Parameter", "Resource"]
