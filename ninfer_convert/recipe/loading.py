"""From what a user types to a `Recipe`: finding, extending, overriding (recipes.md, Finding a recipe; extends)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from ninfer_convert.errors import Problem, RecipeError, nearest, printable
from ninfer_convert.natural import natural_key
from ninfer_convert.recipe.document import Document, read_document, read_override
from ninfer_convert.recipe.model import Recipe, RecipeFile, Resource
from ninfer_convert.recipe.schema import AUTO

SUFFIX = ".toml"

PARTS = "shared"
"""Beside the built-in recipes, the folder of what several of them extend: no recipes to choose, but found by `extends`,
so that a built-in one also works where it is copied to."""


@dataclass(frozen=True)
class Builtin:
    """A recipe that is installed with the package."""

    name: str
    description: str
    path: Path


def load_recipe(spec: str, overrides: Sequence[str] = (), *, parts: bool = False) -> Recipe:
    """The recipe that `--recipe SPEC` names, with all it extends and the `--set` arguments; with `parts` also a part
    that built-in recipes extend, by the name that they give.

    Raises RecipeError with every problem of syntax, keys, types, names and `extends` in all of its files.
    """
    documents = list(reversed(list(_chain(find_recipe(spec, parts=parts)))))
    sets = [read_override(argument) for argument in overrides]
    problems = [problem for document in documents for problem in sorted(document.problems, key=_line_and_column)]
    problems += chain.from_iterable(found for _, found in sets)
    problems += _repeated(document.values.get("resource", ()) for document in documents)
    if problems:
        raise RecipeError(problems)

    def last(key: str, default: Any) -> Any:
        return next((document.values[key] for document in reversed(documents) if key in document.values), default)

    def merged(key: str) -> dict[str, Any]:
        return {name: value for document in documents for name, value in document.values.get(key, {}).items()}

    def joined(key: str) -> tuple[Any, ...]:
        return tuple(chain.from_iterable(document.values.get(key, ()) for document in documents))

    return Recipe(
        name=last("name", documents[-1].path.stem),
        files=tuple(RecipeFile(Path(each.shown), each.sha256, _is_builtin(each.path)) for each in documents),
        places={key: place for document in documents for key, place in document.places.items()},
        description=last("description", ""),
        architecture=last("architecture", AUTO),
        components=last("components", None),
        metadata=merged("metadata"),
        sources=merged("sources"),
        defaults=merged("defaults"),
        assigns=joined("assign") + tuple(assign for assign, _ in sets if assign is not None),
        groups=joined("group"),
        separates=joined("separate"),
        shares=joined("share"),
        skips=joined("skip"),
        renames=joined("rename"),
        uses=joined("use"),
        resources=joined("resource"),
        overrides=tuple(overrides),
    )


def find_recipe(spec: str, *, parts: bool = False) -> Path:
    """An existing file, else the built-in (with `parts` also a part) of that name, with or without `.toml`; else
    RecipeError."""
    found = _file(Path(spec)) or _builtin(spec, *_folders(parts))
    if found is None:
        raise RecipeError(Problem("unknown-recipe", _unknown(spec)))
    return found


def builtin_recipes(*, parts: bool = False) -> tuple[Builtin, ...]:
    """Every built-in recipe, in natural order of names; with `parts` what several of them extend behind them."""
    documents = [
        _read(path)
        for folder in _folders(parts)
        for path in sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: natural_key(path.stem))
    ]
    return tuple(
        Builtin(each.shown.removesuffix(SUFFIX), each.values.get("description", ""), each.path) for each in documents
    )


def _chain(path: Path) -> Iterator[Document]:
    """The document at `path`, what it extends, what that extends, and so on."""
    seen: list[Path] = []
    while True:
        document = _read(path)
        base = document.values.get("extends")
        following = None
        if base is not None:
            seen.append(path)
            following = _file(path.parent / base) or _builtin(base, *_folders(parts=True))
            fault = None
            if following is None:
                fault = ("unknown-recipe", f"extends: {_unknown(base, path.parent)}")
            elif any(os.path.samefile(following, one) for one in seen):
                circle = " -> ".join(str(one) for one in (*seen, following))
                fault = ("extends-cycle", f"extends goes in a circle: {circle}")
            if fault is not None:
                problem = document.places["extends"].problem(*fault)
                yield replace(document, problems=(*document.problems, problem))
                return
        yield document
        if following is None:
            return
        path = following


def _read(path: Path) -> Document:
    """The document at `path`; messages call a built-in one by its name, wherever it is installed."""
    return read_document(path, path.relative_to(_folder()).as_posix() if _is_builtin(path) else str(path))


def _repeated(tables: Iterable[Iterable[Resource | None]]) -> Iterator[Problem]:
    """Resources of one role of one component, which has room for one."""
    first: dict[tuple[str, str], Resource] = {}
    for table in chain.from_iterable(tables):
        if table is not None:
            known = first.setdefault((table.component, table.role), table)
            if known is not table:
                message = f"{printable(table.role)} of {printable(table.component)} is given already, by {known.place}"
                yield table.place.problem("repeated", message)


def _line_and_column(problem: Problem) -> tuple[int, int]:
    return problem.line or 0, problem.column or 0


def _file(path: Path) -> Path | None:
    return path if os.path.exists(path) and not os.path.isdir(path) else None


def _builtin(name: str, *folders: Path) -> Path | None:
    """What is called `name` under the built-in recipes, with or without `.toml`, directly in one of the folders."""
    path = _folder() / f"{name.removesuffix(SUFFIX)}{SUFFIX}"
    return path if path.parent in folders and os.path.isfile(path) else None


def _is_builtin(path: Path) -> bool:
    return path.parent in _folders(parts=True)


def _folders(parts: bool) -> tuple[Path, ...]:
    """Where the built-in recipes are, and with `parts` what several of them extend."""
    return (_folder(), _folder() / PARTS) if parts else (_folder(),)


def _folder() -> Path:
    """Where the built-in recipes are: in the installed package, or beside it in a working copy."""
    package = Path(__file__).parent.parent
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def _unknown(spec: str, folder: Path = Path()) -> str:
    """Why `spec` is no recipe where paths are relative to `folder`."""
    names = [path.stem for path in _folder().glob(f"*{SUFFIX}")]
    names.sort(key=natural_key)
    close = nearest(Path(spec).name.removesuffix(SUFFIX), names)
    hint = f"; did you mean {' or '.join(close)}?" if close else ";"
    shown = f"'{printable(spec)}'"
    what = f"{shown} is a folder, not a file," if spec and os.path.isdir(folder / spec) else f"no file {shown}"
    return f"{what} and no built-in recipe of that name{hint} built-in are {', '.join(names)}"
