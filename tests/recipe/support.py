"""Parameters without a checkpoint, and recipes written on the spot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ninfer_convert.errors import Problem, RecipeError
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.recipe import Recipe, Resolution, load_recipe, resolve

HEAD = 'schema = 1\n[defaults]\nF16 = "fp32"\nI64 = "int32"\n'
ASSIGN = '[[assign]]\nselect = "*"\n'


@dataclass(frozen=True)
class Parameter:
    """A logical parameter as recipes see it."""

    name: str
    shape: tuple[int, ...] = (256, 256)
    stored: str = "BF16"
    exact: tuple[str, ...] = ()
    direct: str | None = None
    locked: str | None = None
    identical: str | None = None
    """Of plain words and the blocks of a GGUF: as their type says, unless it is given."""
    divisors: tuple[float, ...] = ()
    input_divisor: float | None = None
    tensors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "identical", self.identical or stored_type(self.stored).identical)


def write(folder: Path, text: str, name: str = "r.toml") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def load(folder: Path, text: str, *overrides: str) -> Recipe:
    return load_recipe(str(write(folder, text)), overrides)


def solve(
    folder: Path,
    text: str,
    parameters: Sequence[Parameter],
    *overrides: str,
    allow_code: bool = False,
    requantize: bool = False,
) -> Resolution:
    recipe = load(folder, text, *overrides)
    return resolve(recipe, parameters, allow_code=allow_code, requantize=requantize)


def formats(resolution: Resolution) -> dict[str, str | list[tuple[object, str]]]:
    """What each parameter is stored as: a format, or (rows, format) of each piece of a cut one."""
    return {
        name: pieces[0].format if len(pieces) == 1 else [(piece.rows, piece.format) for piece in pieces]
        for name, pieces in resolution.decisions.items()
    }


def refused(call: Callable[[], object]) -> tuple[Problem, ...]:
    """The problems with which `call` is refused."""
    with pytest.raises(RecipeError) as caught:
        call()
    return caught.value.problems


def messages(folder: Path, text: str) -> list[str]:
    """The problems of a recipe as they are shown, without the path."""
    path = folder / "r.toml"
    return [str(problem).removeprefix(f"{path}:").strip() for problem in refused(lambda: load(folder, text))]


def placed(problems: Iterable[Problem]) -> list[tuple[str, int | None, int | None]]:
    """(code, line, column) of each."""
    return [(problem.code, problem.line, problem.column) for problem in problems]
