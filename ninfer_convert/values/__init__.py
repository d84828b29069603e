"""The small value types that travel from a checkpoint to an artifact.

    Source --(read)--> Values --(method)--> Words --(layout)--> bytes

A source that is already encoded can also hand out `Words` directly (`Source.words`). Nothing here reads,
converts or places anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Shape = tuple[int, ...]

Runs = tuple[tuple[int, int], ...]
"""Half-open ranges of an axis, in the order in which they follow one another in the result."""


@dataclass(frozen=True)
class Values:
    """A run of a source's elements in C order.

    `array` is one-dimensional and holds the stored words untouched: uint16 for BF16 and F16, float32 for F32
    (and for values decoded from an encoded source), float64 for F64, the integer type itself for integers,
    uint8 for BOOL. `stored` names the type (`formats.stored`), "F32" where the values were decoded.
    """

    array: NDArray[Any]
    stored: str


@dataclass(frozen=True)
class Words:
    """The words of consecutive rows in one numeric format, before a layout places them.

    | category of the format | codes | scales | divisors |
    |---|---|---|---|
    | direct | [n] uint16 (bf16), uint32 (fp32), int32 | - | - |
    | grouped | [rows, K] int8 signed codes | [rows, ceil(K / G)] uint16 | - |
    | block-scaled (nvfp4) | [rows, K] uint8, one E2M1 word each | [rows, K / 16] uint8 | [rows] float32 |
    | row-scaled (FP8) | [rows, K] uint8 | [rows] uint16 | - |
    | gguf | [rows, K / block values * block bytes] uint8 | - | - |

    `divisors` gives each row the divisor of its own source matrix. `non_finite` counts the NaN and infinities
    that a direct conversion kept.
    """

    codes: NDArray[Any]
    scales: NDArray[Any] | None = None
    divisors: NDArray[np.float32] | None = None
    non_finite: int = 0


def joined(parts: Sequence[Words]) -> Words:
    """The words of consecutive runs of rows as one value; `parts` is not empty."""
    if len(parts) == 1:
        return parts[0]
    import numpy as np

    def one(arrays: Iterable[NDArray[Any] | None]) -> NDArray[Any] | None:
        present = [array for array in arrays if array is not None]
        return np.concatenate(present) if present else None

    return Words(
        np.concatenate([part.codes for part in parts]),
        one(part.scales for part in parts),
        one(part.divisors for part in parts),
        sum(part.non_finite for part in parts),
    )


class Origin(NamedTuple):
    """One stored tensor behind a source, for provenance and messages."""

    source: str
    """Name of the input: "model" for the main one, else the name under [sources]."""
    file: str
    """The file as the user typed it."""
    tensor: str
    stored: str
    selection: str | None = None
    """What was taken of it (`"rows 0:128"`), None for all."""


@dataclass(frozen=True)
class ImportanceEntry:
    """Where an importance matrix keeps what a parameter's columns weigh.

    `name` is llama.cpp's of a tensor, `expert` the vector of a bank of them. `columns` are the runs of that vector that
    make the parameter's own columns; () where all stand alike.
    """

    name: str
    expert: int | None = None
    columns: Runs = ()


@dataclass(frozen=True)
class Encoding:
    """What the plan knows of the words of an encoded source beside `Source.exact`: from its headers and its scales."""

    details: str = ""
    """The convention, and what distinguishes this weight: types of scales, block, bits."""
    unfit: str = ""
    """Why no format but the `exact` ones can import it, the end of a sentence that begins with its name."""
    rounded: Mapping[str, float] = field(default_factory=dict)
    """Formats that take its codes once each scale is rounded (methods.md, round_scales), with the largest relative
    change of a scale; `Source.words` gives those words too."""
    divisors: tuple[float, ...] = ()
    """Weight divisors of the matrices stacked along its rows, in equal shares; () where its words have none."""
    input_divisor: float | None = None
    """The divisor of its inputs, for a use with four-bit activations."""
    activations: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Scales of its inputs and outputs as they are stored, by tensor."""
    note: str = ""
    """What of the weight an import does not keep to the bit."""
    columns: Runs = ()
    """How its words' columns stand where not as in its values: the runs of them that make the values' columns."""


class Source(Protocol):
    """One logical parameter's data, read lazily; safe to call from several threads."""

    @property
    def name(self) -> str:
        """What messages call it: the tensor's name."""

    @property
    def stored(self) -> str:
        """Name of the stored type (`formats.stored`): BF16, Q4_K, NVFP4, ..."""

    @property
    def shape(self) -> Shape:
        """Logical shape, slowest axis first."""

    @property
    def nbytes(self) -> int:
        """Stored bytes that reading all of it costs."""

    @property
    def origins(self) -> Sequence[Origin]:
        """The stored tensors it is made from."""

    @property
    def identical(self) -> str | None:
        """The format that it keeps where no assign speaks, as its stored words are that format's; None if none's."""

    @property
    def exact(self) -> Sequence[str]:
        """Formats that its stored words reach without decoding, the identical one first; empty if plain."""

    @property
    def encoding(self) -> Encoding | None:
        """What its scales tell the plan; None where it has none outside its words. Raises SourceError for bad ones."""

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order: stored words, or float32 decoded by the encoding's own rule."""

    def words(self, format: str, begin: int, end: int) -> Words:
        """Rows [begin, end) (leading axes folded) as words of one of the `exact` formats, or `encoding.rounded`.

        Raises SourceError naming tensor, row and word where a word does not fit the format.
        """
