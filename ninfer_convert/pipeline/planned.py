"""A plan as a value: everything decided, nothing written.

`plan`, `--dry-run`, `convert`, `check` and `verify --against` share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ninfer_convert.formats import get_format
from ninfer_convert.layouts import get_layout
from ninfer_convert.methods.base import Job

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.architectures import Model
    from ninfer_convert.container import Directory, Object, TensorObject
    from ninfer_convert.errors import Problem
    from ninfer_convert.layouts import Layout, Tensor
    from ninfer_convert.methods import Method
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


class Member(NamedTuple):
    """Rows [first_row, first_row + rows) of an object, which one piece of one parameter fills with what `source` holds.

    `importance` is that of a `Job`.
    """

    parameter: str
    first_row: int
    rows: int
    source: Source
    piece: Piece
    importance: NDArray[np.float64] | None

    @property
    def method(self) -> Method:
        """What makes its words."""
        return self.piece.method

    @property
    def job(self) -> Job:
        """What the method is asked to do."""
        piece = self.piece
        _, columns = get_layout(piece.layout).matrix(piece.shape)
        format = get_format(piece.format)
        return Job(self.source, format, self.rows, columns, piece.parameters, piece.non_finite, self.importance)


class PlannedTensor(NamedTuple):
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
    what it is of, so that none is written over. `directory` is complete but for the files table, with
    placeholders for the digests, which are known only later. `twins` are to be compared before anything is written.
    `objects` are in the order of their offsets.
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

    @cached_property
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

    @cached_property
    def source_bytes(self) -> int:
        """Stored bytes that a conversion reads from the checkpoint."""
        return sum(member.source.nbytes for planned in self.tensors for member in planned.members)
