"""`ninfer-convert recipes`: the built-in recipes, one recipe's text, a recipe's own check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ninfer_convert.cli import render
from ninfer_convert.cli.options import debug_option, json_option
from ninfer_convert.errors import Problem, RecipeError, printable, unknown

if TYPE_CHECKING:
    from ninfer_convert.cli.output import Output
    from ninfer_convert.recipe import Recipe


@click.group(invoke_without_command=True)
@json_option
@debug_option
@click.pass_context
def command(ctx: click.Context) -> None:
    """List the built-in recipes; show or check one.

    \b
    ninfer-convert recipes
    ninfer-convert recipes show q4 > mine.toml
    ninfer-convert recipes check mine.toml
    """
    if ctx.invoked_subcommand is None:
        _list(ctx.obj)


def _list(output: Output) -> None:
    from ninfer_convert.recipe import builtin_recipes

    recipes = builtin_recipes()
    if output.json:
        output.document({"recipes": [{"name": each.name, "description": each.description} for each in recipes]})
    else:
        rows = [(each.name, each.description) for each in recipes]
        output.text(render.table(("recipe", "what it does"), rows, heading=output.heading))


@command.command()
@click.argument("name")
@json_option
@debug_option
@click.pass_obj
def show(output: Output, name: str) -> None:
    """Print a built-in recipe, or a part that several of them extend.

    \b
    ninfer-convert recipes show q4
    ninfer-convert recipes show shared/qwen3_5_dense
    """
    from ninfer_convert.recipe import builtin_recipes

    recipes = {recipe.name: recipe for recipe in builtin_recipes(parts=True)}
    recipe = recipes.get(name.removesuffix(".toml"))
    if recipe is None:
        raise RecipeError(Problem("unknown-recipe", unknown("built-in recipe", name, recipes)))
    text = recipe.path.read_text(encoding="utf-8")
    if output.json:
        output.document({"name": recipe.name, "description": recipe.description, "text": text})
    else:
        output.text(text.splitlines())


@command.command()
@click.argument("file")
@json_option
@debug_option
@click.pass_obj
def check(output: Output, file: str) -> None:
    """Find every fault of a recipe, without a checkpoint.

    Checked are syntax, keys, types, names and what it extends. What only shows on a checkpoint, such as a
    select without a match, shows in plan.

    \b
    ninfer-convert recipes check mine.toml
    """
    from ninfer_convert.recipe import load_recipe

    recipe = load_recipe(file, parts=True)
    if output.json:
        output.document(
            {
                "name": recipe.name,
                "description": recipe.description,
                "files": [{"path": str(each.path), "sha256": each.sha256} for each in recipe.files],
                "sources": dict(recipe.sources),
                **_tables(recipe),
            }
        )
    else:
        output.text(_checked(file, recipe))


def _checked(file: str, recipe: Recipe) -> Iterator[str]:
    tables = [render.plural(count, words.removesuffix("s")) for words, count in _tables(recipe).items() if count]
    yield f"{printable(file)}: no faults; {', '.join(tables) or 'no tables'}"
    if len(recipe.files) > 1:
        yield "  extends " + ", ".join(printable(str(each.path)) for each in reversed(recipe.files[:-1]))
    yield from render.facts((f"--source {name}=PATH", text) for name, text in recipe.sources.items())


def _tables(recipe: Recipe) -> dict[str, int]:
    """How many there are of each kind, those of its bases too."""
    return {
        "assigns": len(recipe.assigns),
        "groups": len(recipe.groups),
        "separates": len(recipe.separates),
        "shares": len(recipe.shares),
        "skips": len(recipe.skips),
        "renames": len(recipe.renames),
        "uses": len(recipe.uses),
        "resources": len(recipe.resources),
    }
