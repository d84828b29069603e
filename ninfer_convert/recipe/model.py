"""A recipe as frozen values: what its tables say and where they say it (recipes.md, Tables)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import Problem, printable
from ninfer_convert.recipe.renames import rename, renamed_by

if TYPE_CHECKING:
    from ninfer_convert.recipe.globs import Glob

BASE = "base"
"""The source that needs no declaration: config and resources of a GGUF are read from it."""


@dataclass(frozen=True)
class Place:
    """A spot in a recipe: line and column from 1 of the file as typed, or `--set TEXT` for an override.

    Of a built-in recipe, which names no other files, `path` is the name alone.
    """

    path: str
    line: int | None = None
    column: int | None = None

    @property
    def folder(self) -> Path:
        """What paths said here are relative to: the file's folder, for an override the current one."""
        return Path(self.path).parent if self.in_file else Path()

    @property
    def in_file(self) -> bool:
        """Whether it is a line of a file: neither an override nor a file as a whole."""
        return self.line is not None

    def __str__(self) -> str:
        return printable(self.path) + (f":{self.line}" if self.line is not None else "")

    def problem(self, code: str, message: str, parameter: str | None = None) -> Problem:
        return Problem(code, message, path=self.path, tensor=parameter, line=self.line, column=self.column)


@dataclass(frozen=True)
class Selector:
    """One glob of a `select`, and where it stands."""

    glob: Glob
    place: Place


@dataclass(frozen=True)
class Where:
    """The filter of an assign; None admits all. `dtype` holds names of stored types, classes resolved.

    `depth` is a half-open range of i / n for layer i of n.
    """

    place: Place = field(compare=False)
    rank: frozenset[int] | None = None
    dtype: frozenset[str] | None = None
    min_rows: int | None = None
    max_rows: int | None = None
    min_columns: int | None = None
    max_columns: int | None = None
    min_elements: int | None = None
    multiple_of: int | None = None
    depth: tuple[float, float] | None = None


@dataclass(frozen=True)
class Assign:
    """`[[assign]]`: `says` holds the fields it decides, by key; `places` where each key stands."""

    place: Place
    places: Mapping[str, Place]
    select: tuple[Selector, ...]
    says: Mapping[str, Any]
    where: Where | None = None
    optional: bool = False
    rows: tuple[int, int] | None = None


@dataclass(frozen=True)
class Group:
    """`[[group]]`: one parent object for each tuple of captured texts; `shape` is the parent's."""

    place: Place
    select: tuple[Selector, ...]
    optional: bool = False
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Separate:
    """`[[separate]]`: parameters to keep out of the architecture's automatic groups."""

    place: Place
    select: tuple[Selector, ...]
    optional: bool = False


@dataclass(frozen=True)
class Share:
    """`[[share]]`: `parameter`, filled with the texts that `target` captures, is bound to what that is stored as."""

    place: Place
    parameter: Selector
    target: Selector
    optional: bool = False


@dataclass(frozen=True)
class Use:
    """`[[use]]`: what is said of one input of the parameters that a glob matches.

    `input` and the names among the `auxiliaries` are filled with the captured texts; the numbers are binary32 values.
    """

    place: Place
    parameter: Selector
    input: Selector
    activation_policy: str | None = None
    auxiliaries: Mapping[str, Selector | float] = field(default_factory=dict)
    optional: bool = False


@dataclass(frozen=True)
class Resource:
    """`[[resource]]`: a file inside the checkpoint's folder, to be stored under a role of a component."""

    place: Place
    component: str
    role: str
    path: str


@dataclass(frozen=True)
class Skip:
    """`[[skip]]`: parameters to leave out."""

    place: Place
    select: tuple[Selector, ...]
    reason: str
    optional: bool = False


@dataclass(frozen=True)
class Rename:
    """`[[rename]]`: `match` must match a whole name, which becomes `to`."""

    place: Place
    match: re.Pattern[str]
    to: str
    optional: bool = False


@dataclass(frozen=True)
class RecipeFile:
    """A file a recipe was read from: its path as typed, or a built-in's name; its digest in hexadecimal."""

    path: Path
    sha256: str
    builtin: bool = False


@dataclass(frozen=True)
class Recipe:
    """A recipe with everything it extends and all overrides, in the order in which they apply.

    `files` begin with the outermost base. `components` are None where the recipe leaves them to the checkpoint.
    `places` says where a top-level key stands.
    """

    name: str
    files: tuple[RecipeFile, ...]
    places: Mapping[str, Place]
    description: str
    architecture: str
    components: tuple[str, ...] | None
    metadata: Mapping[str, Any]
    sources: Mapping[str, str]
    defaults: Mapping[str, str]
    assigns: tuple[Assign, ...]
    groups: tuple[Group, ...]
    separates: tuple[Separate, ...]
    shares: tuple[Share, ...]
    skips: tuple[Skip, ...]
    renames: tuple[Rename, ...]
    uses: tuple[Use, ...]
    resources: tuple[Resource, ...]
    overrides: tuple[str, ...]

    def rename(self, names: Sequence[str]) -> dict[str, str]:
        """The logical name of each source name by `[[rename]]`; raises RecipeError."""
        return rename(self.renames, names)

    def rename_elsewhere(self, names: Sequence[str]) -> dict[str, str]:
        """The same of an input beside the main one, which may have nothing to rename."""
        return rename([replace(table, optional=True) for table in self.renames], names)

    def skip_reason(self, name: str) -> str | None:
        """Why what the source calls `name` is left out, by the first `[[skip]]` that selects it; None: it is not."""
        for skip in self.skips:
            if self._selects(skip, name):
                return skip.reason
        return None

    def names_tensor(self, name: str) -> bool:
        """Whether an assign selects what the source calls `name` by its exact logical name."""
        return any(self._selects(assign, name, literally=True) for assign in self.assigns)

    def _selects(self, table: Assign | Skip, name: str, literally: bool = False) -> bool:
        logical, _ = renamed_by(self.renames, name) or (name, None)
        globs = [selector.glob for selector in table.select]
        return any(glob.literal == logical if literally else glob.matches(logical) for glob in globs)
