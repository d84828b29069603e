"""What every conversion method offers: which formats it makes, which parameters it takes, an encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.formats import Format
    from ninfer_convert.values import Source, Words

Encode = Callable[[int, int], "Words"]
"""`encode(a, b)`: the words of rows [a, b), read from the source and converted. Safe on several threads."""


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of an object to convert: a source folded to `rows` x `columns`, and how.

    For direct formats every element is a row of one column. `non_finite` is recipes.md's rule of that name:
    "warn", "keep" or "refuse". `importance` weighs the input channels: float64 [columns], or [E, columns] for a bank
    of E equal blocks of rows; None where all weigh the same.
    """

    source: Source
    format: Format
    rows: int
    columns: int
    parameters: Mapping[str, Any]
    non_finite: str = "warn"
    importance: NDArray[np.float64] | None = None


class Method(Protocol):
    """A conversion method: one frozen object per name, see `methods.METHODS`, or a function that a recipe names."""

    @property
    def name(self) -> str: ...

    @property
    def formats(self) -> tuple[str, ...]:
        """Names of the formats it makes."""

    @property
    def parameters(self) -> Mapping[str, type] | None:
        """The parameters it takes in a recipe, with their types; None for any."""

    @property
    def quantizes(self) -> bool:
        """Whether it rounds values to codes: refuses non-finite values, needs `requantize` on decoded ones."""

    def refusal(self, source: Source, format: Format, parameters: Mapping[str, Any]) -> str | None:
        """Why it cannot convert this source into this format, from headers and scales alone; None if it can."""

    def encoder(self, job: Job) -> Encode:
        """Prepare once, then encode rows. `encode` raises NumericError naming the tensor, count and place.

        A method that is the recipe's own function raises RecipeError, then and here, where that fails.
        """
