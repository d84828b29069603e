"""Functions of a recipe's own, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ninfer_convert.errors import NumericError, Problem, RecipeError
from ninfer_convert.formats import get_format
from ninfer_convert.methods.callable import CallableMethod
from ninfer_convert.methods.code import read_code
from tests.methods.arrays import ArraySource, job

if TYPE_CHECKING:
    from ninfer_convert.methods import Encode

HEAD = "import numpy as np\ncalls = []\n"
"""Two lines in front of every function: the function begins on line 3."""


def method(folder: Path, text: str, function: str = "f") -> CallableMethod:
    path = folder / "own.py"
    path.write_text(HEAD + text, encoding="utf-8")
    return CallableMethod(read_code(path), function)


def returning(expression: str) -> str:
    """A function that returns it; `rows` and `columns` are those of the values."""
    head = "def f(values, *, first_row, shape, format, parameters):\n    rows, columns = values.shape\n"
    return f"{head}    return {expression}\n"


def encoder(folder: Path, text: str, of: ArraySource, format: str, **facts: Any) -> Encode:
    usual = "warn" if get_format(format).category == "direct" else "refuse"
    return method(folder, text).encoder(job(of, format, facts.pop("non_finite", usual), **facts))


def refused(call: Callable[[], object], error: type[RecipeError | NumericError] = RecipeError) -> Problem:
    with pytest.raises(error) as caught:
        call()
    (problem,) = caught.value.problems
    return problem
