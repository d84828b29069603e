"""A plan as a value: everything decided, nothing written.

`plan`, `--dry-run`, `convert`, `check` and `verify --against` share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from ninfer_convert.architectures import Model
    from ninfer_convert.container import Directory, Object, TensorObject
    from ninfer_convert.errors import Problem
    from ninfer_convert.layouts import Layout, Tensor
    from ninfer_convert.methods.base import Job, Method
    from ninfer_convert.recipe import Piece, Recipe, Resolution
    from ninfer_convert.sources.base import Checkpoint, SourceFile
    from ninfer_convert.values import Source


@dataclass(frozen=True)
class Shaping:
    """The options that shape an artifact's content, beside input and recipe (cli.md).

    `overrides` are `--set` texts; `name` replaces the recipe's public model name; `sources` are the paths of inputs by
    the names under [sources]; `components` replace the recipe's; `resources` are paths by role.
    """

    overrides: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    components: tuple[str, ...] | None = None
    resources: Mapping[str, str] = field(default_factory=dict)
    requantize: bool = False
    name: str | None = None
    allow_code: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """Rows of an object from `first_row` on that one piece of one parameter fills; `job.rows` says how many."""

    parameter: str
    first_row: int
    job: Job
    piece: Piece

    @property
    def method(self) -> Method:
        """What makes its words."""
        return self.piece.method


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor object: where it stands, what it holds, how it is laid out, what fills it row by row."""

    record: TensorObject
    tensor: Tensor
    layout: Layout
    members: tuple[Member, ...]


@dataclass(frozen=True)
class PlannedBytes:
    """An object whose bytes the plan knows, a resource or an auxiliary; `origin` is what the provenance says of it."""

    record: Object
    content: bytes
    origin: Mapping[str, str]


@dataclass(frozen=True)
class Twin:
    """An alias that the checkpoint holds too: a conversion refuses it where its words are not those of its target."""

    name: str
    source: Source
    target: str
    target_source: Source


@dataclass(frozen=True)
class Plan:
    """What a conversion will write.

    `inputs` are the checkpoints read beside the main one; `read` is every file that the plan was made of, each with
    what it is of, so that none is written over. `directory` is complete but for the files table and the
    digests, which are known only later. `twins` are to be compared before anything is written. `objects` are in the
    order of their offsets.
    """

    checkpoint: Checkpoint
    inputs: tuple[Checkpoint, ...]
    read: Mapping[Path, str]
    recipe: Recipe
    model: Model
    resolution: Resolution
    directory: Directory
    twins: tuple[Twin, ...]
    objects: tuple[PlannedTensor | PlannedBytes, ...]
    warnings: tuple[Problem, ...] = ()

    @property
    def tensors(self) -> tuple[PlannedTensor, ...]:
        """The tensor objects alone."""
        return tuple(planned for planned in self.objects if isinstance(planned, PlannedTensor))

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The files of the checkpoints that a conversion reads."""
        return tuple(file for checkpoint in (self.checkpoint, *self.inputs) for file in checkpoint.files)

    @property
    def payload_bytes(self) -> int:
        """Bytes of the logical payload: the end of the last object."""
        last = self.objects[-1].record
        return last.offset + last.bytes

    @property
    def source_bytes(self) -> int:
        """Stored bytes that a conversion reads from the checkpoint."""
        return sum(member.job.source.nbytes for planned in self.tensors for member in planned.members)
