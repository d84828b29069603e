"""What an architecture makes of a checkpoint: logical parameters, a component's config, its resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ninfer_convert.values import Source


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


@dataclass(frozen=True)
class Resource:
    """A file stored verbatim: `role` is its name in the component, `content` its bytes, `origin` the path read."""

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
    warnings: tuple[str, ...] = ()
