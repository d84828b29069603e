"""Tables of logical parameters: what a layer of each kind holds, of which tensors, and where a layer stands.

A table knows neither a checkpoint nor a layer's number; `filling` brings the three together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ninfer_convert.values import Runs, Shape, Source

View = Callable[["Source"], "Source"]
"""What of a tensor a parameter is: one of the lazy nodes of `sources.views`, or a few of them."""


@dataclass(frozen=True)
class Row:
    """One logical parameter; its names and its input are relative to the place of its block.

    `shape` is the tensor's; the parameter's is that of the `view`, the whole tensor where there is none. A parameter
    with an `input` is a projection and has a use; `gguf` is llama.cpp's name for the tensor with that input, `expert`
    the one that it is for, `columns` the runs of llama.cpp's columns that give ours (() where they stand alike).
    `direct` and `locked` as in `Parameter`.
    """

    name: str
    tensor: str
    shape: Shape
    input: str | None = None
    gguf: str | None = None
    view: View | None = None
    direct: str | None = "bf16"
    locked: str | None = None
    expert: int | None = None
    columns: Runs = ()


@dataclass(frozen=True)
class Block:
    """Parameters in declaration order, and the candidate groups of them in the order in which they are tried."""

    rows: tuple[Row, ...]
    groups: tuple[tuple[str, ...], ...] = ()

    def __add__(self, other: Block) -> Block:
        return Block(self.rows + other.rows, self.groups + other.groups)


@dataclass(frozen=True)
class Placed:
    """A block where it stands: what its logical names and inputs begin with, its tensors, llama.cpp's tensors."""

    block: Block
    names: str
    tensors: str
    gguf: str = ""
