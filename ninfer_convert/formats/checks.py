"""What formats share in checking words: arrays of the right kind, and sentences for forbidden words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import Problem, WordsError
from ninfer_convert.formats.base import Part, WordFault, WordFaults

if TYPE_CHECKING:
    from numpy.typing import NDArray

BF16_INFINITY = 0x7F80
F16_INFINITY = 0x7C00


def checked(format: str, part: str, array: NDArray[Any] | None, dtype: str, *shape: int | None) -> NDArray[Any]:
    """`array`, contiguous; raises WordsError unless it has this dtype and shape (None: any length)."""
    import numpy as np

    if array is not None and array.dtype == dtype and _fits(array.shape, shape):
        return np.ascontiguousarray(array)
    found = "missing" if array is None else f"{array.dtype} {_sized(array.shape)}"
    raise WordsError(Problem("wrong-words", f"{format}: {part} must be {dtype} {_sized(shape)}; found {found}"))


def word_faults(
    scan: Callable[[NDArray[Any]], int], limit: int, messages: Mapping[int, Callable[[int], str]]
) -> WordFaults:
    """Run one of `kernels.validity`, and put the faults that it notes into words by their kind."""
    import numpy as np

    from ninfer_convert.kernels import validity

    parts: Mapping[int, Part] = {validity.CODE: "code", validity.DIVISOR: "divisor"}
    found = np.empty((limit, 4), np.int64)
    total = scan(found)
    first = (
        WordFault(row, None if column < 0 else column, messages[kind](word), parts.get(kind, "scale"))
        for kind, row, column, word in found[:total].tolist()
    )
    return WordFaults(total, tuple(first))


def describe(word: int, infinity: int) -> str:
    """What a forbidden 16-bit scale word is; `infinity` is that of its type."""
    sign = "negative " if word & 0x8000 else ""
    magnitude = word & 0x7FFF
    if magnitude > infinity:
        return "NaN"
    if magnitude == infinity:
        return f"{sign}infinity"
    return f"{sign}zero" if magnitude == 0 else f"{sign}number"


def _fits(present: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(present) == len(wanted) and all(
        length in (None, found) for found, length in zip(present, wanted, strict=True)
    )


def _sized(shape: tuple[int | None, ...]) -> str:
    return f"[{', '.join('any' if length is None else str(length) for length in shape)}]"
