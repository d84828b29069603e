"""What an architecture makes of a checkpoint: logical parameters, a component's config, its resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ninfer_convert.errors import Problem
    from ninfer_convert.sources.base import Checkpoint
    from ninfer_convert.values import ImportanceEntry, Shape, Source


class Parameter(NamedTuple):
    """A logical parameter.

    `direct` is the format the architecture gives it where no assign speaks (None: its stored words);
    `locked` says why it takes no other format (None: it may). `uses` are the paths of its inputs, in order; none for
    what is no projection.
    """

    name: str
    source: Source
    direct: str | None = None
    locked: str | None = None
    uses: tuple[str, ...] = ()
    importance: ImportanceEntry | None = None

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

    @property
    def tensors(self) -> Sequence[str]:
        """Names of the stored tensors it is made from."""
        return [origin.tensor for origin in self.source.origins]


@dataclass(frozen=True)
class Resource:
    """A file stored verbatim: `role` names it in its component, `origin` is its path as the user typed it."""

    component: str
    role: str
    content: bytes
    origin: str


@dataclass(frozen=True)
class Component:
    """One component of the artifact; `config` is stored as it is."""

    name: str
    config: Mapping[str, Any]


class Use(Protocol):
    """How one input of a parameter may be computed, and what that needs."""

    @property
    def parameter(self) -> str: ...

    @property
    def activation_policy(self) -> str: ...

    @property
    def auxiliaries(self) -> Mapping[str, str | float]: ...


@dataclass(frozen=True)
class Outcome:
    """What a recipe makes of a model's parameters.

    `formats` has those of each parameter's pieces, `places` the object that it is in and its index among the object's
    members; neither has those that are left out, and `places` none that is in several objects.
    """

    formats: Mapping[str, tuple[str, ...]]
    places: Mapping[str, tuple[int, int]]
    uses: Sequence[Use] = ()

    def bank(self, names: Sequence[str]) -> str | None:
        """The format of parameters that stand one after the other in one object; None where they do not."""
        places = [self.places.get(name) for name in names]
        first = places[0]
        if first is None or places != [(first[0], first[1] + index) for index in range(len(names))]:
            return None
        return self.formats[names[0]][0]


@dataclass(frozen=True)
class Model:
    """A checkpoint as logical parameters, in the order in which bindings and single objects are listed."""

    architecture: str
    components: tuple[Component, ...]
    parameters: tuple[Parameter, ...]
    resources: tuple[Resource, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    """Candidates for one parent object each, in the order in which they are tried; names in the order of its rows."""
    passed_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tensors that are no part of the artifact, by the reason."""
    unbindable: str | None = None
    """Why no engine binds such an artifact today, None where one does."""
    judge: Callable[[Outcome], Iterable[Problem]] | None = None
    """What the engine binds, once a recipe has decided, but is not known to compute; None where nothing is bound."""
    warnings: tuple[Problem, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, Parameter]:
        """Every parameter by its name."""
        return {parameter.name: parameter for parameter in self.parameters}


def _no_reason(name: str) -> None:
    return None


def _unchanged(names: Sequence[str]) -> Mapping[str, str]:
    return {name: name for name in names}


@dataclass(frozen=True)
class Request:
    """What a recipe and its options ask of an architecture, beside formats.

    `components` None are all that the checkpoint holds and the architecture knows; `resources` stand in for the files
    of their roles. `skips` gives the reason for which a tensor need not have a parameter, None for most; `rename` is
    for an architecture that has no names of its own. `main` is config.json's object of the main input where this is
    another one, which may hold parts of the model only and needs neither a config nor resources.
    """

    components: tuple[str, ...] | None = None
    resources: tuple[Resource, ...] = ()
    skips: Callable[[str], str | None] = _no_reason
    rename: Callable[[Sequence[str]], Mapping[str, str]] = _unchanged
    main: Mapping[str, Any] | None = None


Build = Callable[["Checkpoint", "Mapping[str, Any] | None", "Mapping[str, Source]", Request], Model]
"""The model in a checkpoint: of config.json's object, None where there is none, of its tensors and encoded weights, and
of a request whose components are the architecture's.

Raises SourceError with everything that is wrong with config, tensors and resources.
"""


@dataclass(frozen=True)
class Architecture:
    """One way to see a checkpoint, see `architectures.ARCHITECTURES`.

    `classes` are the names in config.json's `architectures` that mean it, `gguf` those in a GGUF's
    `general.architecture` that it reads beside such a config; `components` what it can make an artifact of.
    `automatic`: a checkpoint of these classes takes it unasked; not so where no engine binds its artifacts yet, and the
    generic one, which takes any tensors, serves a user better. `renames`: its names are those of the tensors, which a
    recipe may change.
    """

    name: str
    build: Build
    classes: tuple[str, ...] = ()
    gguf: tuple[str, ...] = ()
    components: tuple[str, ...] = ("text",)
    automatic: bool = True
    renames: bool = False
