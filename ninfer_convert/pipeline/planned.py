"""A plan as a value: everything decided, nothing written.

`plan`, `--dry-run`, `convert`, `check` and `verify --against` share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ninfer_convert.architectures import Model
    from ninfer_convert.container import Directory, ResourceObject, TensorObject
    from ninfer_convert.errors import Problem
    from ninfer_convert.layouts import Layout, Tensor
    from ninfer_convert.methods.base import Job, Method
    from ninfer_convert.recipe import Recipe, Resolution, Rule
    from ninfer_convert.sources.base import Checkpoint


@dataclass(frozen=True)
class Shaping:
    """The options that shape an artifact's content, beside input and recipe (cli.md).

    `overrides` are `--set` texts; `name` replaces the recipe's public model name.
    """

    overrides: tuple[str, ...] = ()
    requantize: bool = False
    name: str | None = None
    allow_code: bool = False


@dataclass(frozen=True)
class Member:
    """Rows of an object from `first_row` on that one piece of one parameter fills; `job.rows` says how many."""

    parameter: str
    first_row: int
    job: Job
    method: Method
    rule: Rule | None


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor object: where it stands, what it holds, how it is laid out, what fills it row by row."""

    record: TensorObject
    tensor: Tensor
    layout: Layout
    members: tuple[Member, ...]


@dataclass(frozen=True)
class PlannedResource:
    """A resource object: its bytes, and the name of the file they were read from."""

    record: ResourceObject
    content: bytes
    origin: str


@dataclass(frozen=True)
class Plan:
    """What a conversion will write.

    `directory` is complete but for the files table and the digests, which are known only later. `objects` are in
    the order of their offsets.
    """

    checkpoint: Checkpoint
    recipe: Recipe
    model: Model
    resolution: Resolution
    directory: Directory
    objects: tuple[PlannedTensor | PlannedResource, ...]
    warnings: tuple[Problem, ...] = ()

    @property
    def tensors(self) -> tuple[PlannedTensor, ...]:
        """The tensor objects alone."""
        return tuple(planned for planned in self.objects if isinstance(planned, PlannedTensor))

    @property
    def payload_bytes(self) -> int:
        """Bytes of the logical payload: the end of the last object."""
        last = self.objects[-1].record
        return last.offset + last.bytes

    @property
    def source_bytes(self) -> int:
        """Stored bytes that a conversion reads from the checkpoint."""
        return sum(member.job.source.nbytes for planned in self.tensors for member in planned.members)
