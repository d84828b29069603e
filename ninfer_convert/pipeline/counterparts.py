"""What a parameter of an artifact is held against: the parameter of another artifact, or a tensor of a checkpoint.

Logical names are met by those that their architecture gives the checkpoint. Names under `[[rename]]`, groups and
encodings of several tensors are found by what the provenance recorded; a checkpoint that is not the one the artifact
was made from is met by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ninfer_convert.architectures import Request, recognised
from ninfer_convert.errors import SourceError
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.pipeline import recorded
from ninfer_convert.pipeline.arrangement import Arrangement, column_orders
from ninfer_convert.pipeline.parameters import ParameterSource
from ninfer_convert.pipeline.provenance import file_name
from ninfer_convert.pipeline.stored import OpenArtifact
from ninfer_convert.sources.config import read_config
from ninfer_convert.sources.encoded import classify
from ninfer_convert.sources.views import numbers
from ninfer_convert.values import Words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.container import Binding, Directory
    from ninfer_convert.pipeline.arrangement import Order
    from ninfer_convert.pipeline.stored import Span, StoredParameter
    from ninfer_convert.sources import Checkpoint
    from ninfer_convert.values import Shape, Source


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

    Raises SourceError where a checkpoint's config cannot be read, or is not that of its tensors, ArtifactError for
    input_columns that are none.
    """
    skipped = recorded.skipped(artifact.directory)
    found: Mapping[str, Counterpart]
    if isinstance(other, OpenArtifact):
        skipped |= recorded.skipped(other.directory)
        ours, theirs = column_orders(artifact), column_orders(other)
        ordered = [name for name in {**ours, **theirs} if name in other]
        unlike = [name for name in ordered if not np.array_equal(ours.get(name, ()), theirs.get(name, ()))]
        found = {**other, **{name: _moved(other[name], ours.get(name), theirs.get(name)) for name in unlike}}
        others = tuple(other)
    else:
        met_by = views(artifact, other)
        seen = {name: _arranged(view, met_by.arranged[name]) for name, view in met_by.all.items() if name in artifact}
        found = {name: _Tensor(source, source.stored) for name, source in seen.items()}
        others = met_by.names
    pairs = [(artifact[name], found[name]) for name in artifact if name in found]
    met = {counterpart.name for _, counterpart in pairs}
    return Pairing(
        tuple(pairs),
        tuple(name for name in artifact if name not in found and name not in skipped),
        tuple(name for name in others if name not in met and name not in skipped),
        skipped,
    )


def _moved(theirs: StoredParameter, ours: Order | None, own: Order | None) -> Counterpart:
    """A parameter of another artifact, its columns put as ours stand; axes are those of the parameter in both."""
    source = Arrangement(columns=own).undone(ParameterSource(theirs))
    return _Tensor(_arranged(source, Arrangement(columns=ours)), theirs.format)


def _arranged(source: Source, arrangement: Arrangement) -> Source:
    """What the other side has, as the parameter lies; one of another shape as it is, for that to be told."""
    try:
        return arrangement.of(source)
    except IndexError:
        return source


@dataclass(frozen=True)
class Views:
    """What a checkpoint has for an artifact's parameters.

    `weights` are its tensors and encoded weights by name, without those `unread`, which nothing can read. `by_name` and
    `logical` are views of them, mostly of the whole, by parameter: what provenance and names tell, and what its
    architecture sees in it, where the artifact has an architecture's names too; parameters that the artifact lacks are
    among the second. `arranged` tells of every parameter how it lies, other than its view.
    """

    weights: Mapping[str, Source]
    unread: tuple[str, ...]
    by_name: Mapping[str, Source]
    logical: Mapping[str, Source]
    arranged: Mapping[str, Arrangement]

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
    by_name = {name: weights[weight] for name, weight in by_provenance(artifact.directory, owners).items()}
    logical = _logical(artifact, checkpoint, config, weights)
    orders, input = column_orders(artifact), _input(artifact.directory, checkpoint)
    found = {**by_name, **logical}
    arranged = {
        name: Arrangement(name in found and _transposed(artifact, name, found[name], input), orders.get(name))
        for name in artifact
    }
    return Views(weights, unread, by_name, logical, arranged)


def _input(directory: Directory, checkpoint: Checkpoint) -> str:
    """Which of an artifact's sources a checkpoint is; one that is none stands for the main one."""
    files = {(file_name(file.path), file.header_sha256) for file in checkpoint.files}
    return recorded.source_named(directory, files) or checkpoint.source


def _transposed(artifact: OpenArtifact, name: str, view: Source, input: str) -> bool:
    """Whether a parameter was made from just this tensor, with its axes exchanged: not from one of the same name in
    another input.
    """
    made_of = recorded.transposed(artifact.directory, name)
    return made_of in [(input, origin.tensor) for origin in view.origins] and len(artifact[name].shape) > 1


def _logical(
    artifact: OpenArtifact, checkpoint: Checkpoint, config: Mapping[str, Any] | None, weights: Mapping[str, Source]
) -> dict[str, Source]:
    """What an architecture sees in a checkpoint under the names of an artifact that it named too."""
    architecture = recognised(checkpoint, config)
    if architecture is None or not any(name.startswith(f"{architecture.components[0]}/") for name in artifact):
        return {}
    model = architecture.build(checkpoint, config, weights, Request(main=config))
    return {parameter.name: parameter.source for parameter in model.parameters}


@dataclass(frozen=True)
class _Tensor:
    """What can be read as a source: a tensor of a checkpoint, the tensors of one encoded weight, or a parameter of
    another artifact with its columns moved.

    `format` is what it is kept in, of which a source has only the type of its values.
    """

    source: Source
    format: str

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def shape(self) -> Shape:
        return self.source.shape

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
        if self.source.encoding is not None and self.source.encoding.columns:
            return None  # its words stand in the order of the source below, its values in its own
        try:
            return self.source.words(like.format, begin // columns, -(-end // columns))
        except SourceError:  # a word that the format cannot hold; if it is anything else, its values will tell
            return None

    def values(self, begin: int, end: int) -> NDArray[Any]:
        """Numbers as float32 where that holds them, else as float64."""
        read = self.source.values(begin, end)
        array = read.array != 0 if read.stored == "BOOL" else numbers(read)
        return array if array.dtype == np.float32 else array.astype(np.float64)


def by_provenance(directory: Directory, owners: Mapping[str, str]) -> dict[str, str]:
    """Parameter -> the checkpoint's weight that it was made from, or is called like.

    `owners` gives each tensor of the checkpoint the weight that it belongs to. An object's parameters and tensors are
    recorded in one order. A parameter bound to the same data as another shares that one's weight.
    """
    told: dict[str, str] = {}
    for parameters, tensors in recorded.made(directory):
        weights = list(dict.fromkeys(owners[tensor] for tensor in tensors if tensor in owners))
        if len(weights) == len(parameters):
            told |= dict(zip(parameters, weights, strict=True))
    names = set(owners.values())
    found: dict[str, str] = {}
    shared: dict[Binding, str] = {}
    for name, binding in directory.bindings.items():
        weight = told.get(name) or (name if name in names else None)
        if weight is not None:
            found[name] = weight
            shared.setdefault(binding, weight)
    aliases = {name: shared[binding] for name, binding in directory.bindings.items() if binding in shared}
    return aliases | found
