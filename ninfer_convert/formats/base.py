"""What every numeric format offers: its facts, its validity rules, its exact decode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.values import Words


Part = Literal["code", "scale", "divisor"]


@dataclass(frozen=True)
class WordFault:
    """One stored word that the format forbids: a code, a scale or a divisor.

    `row` counts from the first row that was checked; `column` is an element's column for a code, a group's
    index for a scale, None for a row's scale or a divisor.
    """

    row: int
    column: int | None
    message: str
    part: Part


@dataclass(frozen=True)
class WordFaults:
    """How many words are forbidden, and the first of them in row order."""

    total: int
    first: tuple[WordFault, ...] = ()


class Format(Protocol):
    """A persistent numeric format: one frozen object per name, see `formats.FORMATS`."""

    @property
    def name(self) -> str: ...

    @property
    def category(self) -> str:
        """direct, grouped, block-scaled, row-scaled or gguf."""

    @property
    def bits_per_weight(self) -> float:
        """Nominal logical bits per weight of full groups (formats 6), without padding or per-matrix fields."""

    @property
    def summary(self) -> str:
        """One line for listings: code, group, scale."""

    def decode(self, words: Words) -> NDArray[Any]:
        """The represented values: float32 [rows, K] (direct: [n]; int32 stays int32), exact per formats 3 to 6.

        Raises WordsError as `faults` does. What a forbidden word decodes to is not said.
        """

    def faults(self, words: Words, limit: int = 10) -> WordFaults:
        """Every word outside the format's valid language, the first `limit` with their place.

        Raises WordsError where the arrays' dtypes or shapes are not the format's own.
        """
