"""What an architecture makes of a checkpoint: logical parameters, a component's config, its resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ninfer_convert.errors import Problem
    from ninfer_convert.values import Shape, Source


@dataclass(frozen=True)
class Parameter:
    """A logical parameter.

    `direct` is the format the architecture gives it where no assign speaks (None: its stored words);
    `locked` says why it takes no other format (None: it may).
    """

    name: str
    source: Source
    direct: str | None = None
    locked: str | None = None

    @property
    def shape(self) -> Shape:
        """Logical shape."""
        return self.source.shape

    @property
    def stored(self) -> str:
        """Name of the stored type."""
        return self.source.stored

    @property
    def identical(self) -> str | None:
        """The format that keeps its stored words, where there is one."""
        return self.source.identical

    @property
    def exact(self) -> Sequence[str]:
        """Formats that its stored words reach without decoding."""
        return self.source.exact

    @property
    def divisors(self) -> Sequence[float]:
        """The weight divisors of nvfp4 words, one for each of the matrices stacked along the rows."""
        return self.source.encoding.divisors if self.source.encoding else ()

    @property
    def input_divisor(self) -> float | None:
        """The divisor of its inputs, where the checkpoint has one."""
        return self.source.encoding.input_divisor if self.source.encoding else None


@dataclass(frozen=True)
class Resource:
    """A file stored verbatim: `role` names it in its component, `origin` is the file it was read from."""

    component: str
    role: str
    content: bytes
    origin: str


@dataclass(frozen=True)
class Component:
    """One component of the artifact; `config` is stored as it is."""

    name: str
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Model:
    """A checkpoint as logical parameters, in the order in which bindings and single objects are listed."""

    architecture: str
    components: tuple[Component, ...]
    parameters: tuple[Parameter, ...]
    resources: tuple[Resource, ...] = ()
    warnings: tuple[Problem, ...] = ()
