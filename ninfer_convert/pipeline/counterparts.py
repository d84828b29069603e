"""What a parameter of an artifact is held against: the parameter of another artifact, or a tensor of a checkpoint.

Logical names are met by those that their architecture gives the checkpoint. Names under `[[rename]]`, groups and
encodings of several tensors are found by what the provenance recorded; a checkpoint that is not the one the artifact
was made from is met by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ninfer_convert.architectures import Request, naming
from ninfer_convert.errors import SourceError
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.kernels.cast import floats_to_f32
from ninfer_convert.pipeline.columns import column_orders
from ninfer_convert.pipeline.parameters import ParameterSource
from ninfer_convert.pipeline.stored import OpenArtifact
from ninfer_convert.sources.config import read_config
from ninfer_convert.sources.encoded import classify
from ninfer_convert.sources.views import gather_columns, inverted, runs_of
from ninfer_convert.values import Words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.container import Binding, Directory
    from ninfer_convert.pipeline.columns import Order
    from ninfer_convert.pipeline.stored import Span, StoredParameter
    from ninfer_convert.sources import Checkpoint
    from ninfer_convert.values import Shape, Source, Values


class Counterpart(Protocol):
    """The data a parameter is held against; safe to read from several threads."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> Shape: ...

    @property
    def format(self) -> str:
        """The format or stored type it is kept in."""

    @property
    def integral(self) -> bool:
        """Whether its values are whole numbers by type."""

    @property
    def nbytes(self) -> int:
        """Stored bytes that reading all of it costs."""

    def words_like(self, like: Span, begin: int) -> Words | None:
        """The words of the elements from `begin` on that answer to those of `like`: all rows that they touch.

        None unless they are kept in the span's format, in rows that begin and end where the span's do.
        """

    def values(self, begin: int, end: int) -> NDArray[Any]:
        """Elements [begin, end) in C order: float32, float64 or int32."""


@dataclass(frozen=True)
class Pairing:
    """Which parameters of an artifact have a counterpart, in the artifact's order, and what has none."""

    pairs: tuple[tuple[StoredParameter, Counterpart], ...]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]
    skipped: Mapping[str, str]
    """What either artifact's recipe left out: name -> reason."""


def pair(artifact: OpenArtifact, other: OpenArtifact | Checkpoint) -> Pairing:
    """Find the counterpart of every parameter; no weight is read.

    Raises SourceError where a checkpoint's config cannot be read, or is not that of its tensors.
    """
    skipped = _skipped(artifact.directory)
    found: Mapping[str, Counterpart]
    ours = column_orders(artifact)
    if isinstance(other, OpenArtifact):
        skipped |= _skipped(other.directory)
        theirs = column_orders(other)
        unlike = [
            name for name in artifact if name in other and not np.array_equal(ours.get(name, ()), theirs.get(name, ()))
        ]
        moved = {name: _in_order(ParameterSource(other[name]), ours.get(name), theirs.get(name)) for name in unlike}
        found = {**other, **{name: _Tensor(source) for name, source in moved.items()}}
        others = tuple(other)
    else:
        met_by = views(artifact, other)
        logical = {name: _in_order(view, ours.get(name)) for name, view in met_by.logical.items()}
        found = {name: _Tensor(view) for name, view in {**met_by.by_name, **logical}.items()}
        others = met_by.names
    pairs = [(artifact[name], found[name]) for name in artifact if name in found]
    met = {counterpart.name for _, counterpart in pairs}
    return Pairing(
        tuple(pairs),
        tuple(name for name in artifact if name not in found and name not in skipped),
        tuple(name for name in others if name not in met and name not in skipped),
        skipped,
    )


def _in_order(source: Source, ours: Order | None, theirs: Order | None = None) -> Source:
    """The columns of `source`, which stand as `theirs` tells, put as `ours` does; None: each in its own place."""
    if theirs is not None:
        source = gather_columns(source, inverted(theirs))
    return source if ours is None else gather_columns(source, runs_of(ours))


@dataclass(frozen=True)
class Views:
    """What a checkpoint has for an artifact's parameters.

    `weights` are its tensors and encoded weights by name, without those `unread`, which nothing can read. `by_name` and
    `logical` are views of them, mostly of the whole, by parameter: what provenance and names tell, and what its
    architecture sees in it, where the artifact has an architecture's names too; parameters that the artifact lacks are
    among the second.
    """

    weights: Mapping[str, Source]
    unread: tuple[str, ...]
    by_name: Mapping[str, Source]
    logical: Mapping[str, Source]

    @property
    def all(self) -> Mapping[str, Source]:
        """By parameter; what the architecture sees counts."""
        return {**self.by_name, **self.logical}

    @property
    def names(self) -> tuple[str, ...]:
        """All that the checkpoint holds."""
        return (*self.weights, *self.unread)


def views(artifact: OpenArtifact, checkpoint: Checkpoint) -> Views:
    """Find what the checkpoint has for each parameter; no weight is read. Raises SourceError as `pair` does."""
    config = read_config(checkpoint)
    classification = classify(checkpoint, config)
    unread = tuple(module.parameter for module in classification.modules if module.source is None)
    weights = {name: source for name, source in classification.sources.items() if name not in unread}
    owners = {origin.tensor: name for name, source in weights.items() for origin in source.origins}
    by_name = {name: weights[own] for name, own in by_provenance(artifact.directory, owners).items()}
    return Views(weights, unread, by_name, _logical(artifact, checkpoint, config, weights))


def _logical(
    artifact: OpenArtifact, checkpoint: Checkpoint, config: Mapping[str, Any] | None, weights: Mapping[str, Source]
) -> dict[str, Source]:
    """What an architecture sees in a checkpoint under the names of an artifact that it named too."""
    architecture = naming(checkpoint, config)
    if architecture is None or not any(name.startswith(f"{architecture.components[0]}/") for name in artifact):
        return {}
    model = architecture.build(checkpoint, config, weights, Request(main=config))
    return {parameter.name: parameter.source for parameter in model.parameters}


@dataclass(frozen=True)
class _Tensor:
    """A tensor of a checkpoint, or the tensors of one encoded weight."""

    source: Source

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def shape(self) -> Shape:
        return self.source.shape

    @property
    def format(self) -> str:
        return self.source.stored

    @property
    def integral(self) -> bool:
        return stored_type(self.source.stored).kind in ("integer", "bool")

    @property
    def nbytes(self) -> int:
        return self.source.nbytes

    @cached_property
    def exact(self) -> Sequence[str]:
        return self.source.exact

    def words_like(self, like: Span, begin: int) -> Words | None:
        kind, end = stored_type(self.source.stored), begin + like.elements
        if kind.numpy is not None:
            if kind.identical != like.format:
                return None
            words = self.source.values(begin, end).array
            return Words(words.view(np.uint32) if kind.numpy == "float32" else words)
        columns = self.shape[-1] if self.shape else 1
        if like.format not in self.exact or (columns, begin % columns) != (like.columns, like.lead):
            return None
        try:
            return self.source.words(like.format, begin // columns, -(-end // columns))
        except SourceError:  # a word that the format cannot hold; if it is anything else, its values will tell
            return None

    def values(self, begin: int, end: int) -> NDArray[Any]:
        return _numbers(self.source.values(begin, end))


def _numbers(values: Values) -> NDArray[Any]:
    """A source's elements as float32 where that holds them, else as float64."""
    if values.stored in ("BF16", "F16"):
        wide = np.empty(values.array.shape, np.uint32)
        floats_to_f32(values.array, values.stored == "F16", wide)
        return wide.view(np.float32)
    if values.stored == "F32":
        return values.array
    array = values.array != 0 if values.stored == "BOOL" else values.array
    return array.astype(np.float64)


def by_provenance(directory: Directory, owners: Mapping[str, str]) -> dict[str, str]:
    """Parameter -> the checkpoint's weight that it was made from, or is called like.

    `owners` gives each tensor of the checkpoint the weight that it belongs to. An object's parameters and tensors are
    recorded in one order. A parameter bound to the same data as another shares that one's weight.
    """
    recorded: dict[str, str] = {}
    for made in _records(directory.provenance.get("objects")):
        parameters, tensors = _names(made.get("parameters")), _names(made.get("tensors"))
        weights = list(dict.fromkeys(owners[tensor] for tensor in tensors if tensor in owners))
        if len(weights) == len(parameters):
            recorded |= dict(zip(parameters, weights, strict=True))
    weights_by_name = set(owners.values())
    found: dict[str, str] = {}
    shared: dict[Binding, str] = {}
    for name, binding in directory.bindings.items():
        weight = recorded.get(name) or (name if name in weights_by_name else None)
        if weight is not None:
            found[name] = weight
            shared.setdefault(binding, weight)
    aliases = {name: shared[binding] for name, binding in directory.bindings.items() if binding in shared}
    return aliases | found


def selections(directory: Directory) -> dict[str, str]:
    """Parameter -> what was taken of its tensor, where that was recorded and is not all of it as it stands."""
    found: dict[str, str] = {}
    for made in _records(directory.provenance.get("objects")):
        parameters, taken = _names(made.get("parameters")), made.get("selections")
        if isinstance(taken, list) and len(taken) == len(parameters):
            found |= {name: one for name, one in zip(parameters, taken, strict=True) if isinstance(one, str)}
    return found


def _skipped(directory: Directory) -> dict[str, str]:
    """Name -> reason of everything that the recipe left out; provenance is open, so anything may stand there."""
    recorded = directory.provenance.get("skipped")
    skips = recorded if isinstance(recorded, list) else ()
    return {
        str(skip["name"]): str(skip.get("reason", "")) for skip in skips if isinstance(skip, Mapping) and "name" in skip
    }


def _records(value: Any) -> Iterator[Mapping[str, Any]]:
    """The members of an object that are objects themselves."""
    members = value.values() if isinstance(value, Mapping) else ()
    return (member for member in members if isinstance(member, Mapping))


def _names(value: Any) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
