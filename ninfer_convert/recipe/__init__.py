"""Recipes: TOML to frozen values, and those to decisions about every parameter (recipes.md).

A recipe is data. It knows no file of a checkpoint and reads no weight; what `resolve` decides, the plan carries out.
"""

from ninfer_convert.recipe.loading import Builtin, builtin_recipes, find_recipe, load_recipe
from ninfer_convert.recipe.model import Recipe, RecipeFile
from ninfer_convert.recipe.resolution import Alias, Parent, Piece, Resolution, Rule, Skipped, Use
from ninfer_convert.recipe.resolve import resolve
from ninfer_convert.recipe.selection import Subject

__all__ = [
    "Alias",
    "Builtin",
    "Parent",
    "Piece",
    "Recipe",
    "RecipeFile",
    "Resolution",
    "Rule",
    "Skipped",
    "Subject",
    "Use",
    "builtin_recipes",
    "find_recipe",
    "load_recipe",
    "resolve",
]
