"""Why the values of a source cannot be kept, as problems.

An encoder sees a piece; these read the whole source again, so that count and place are the tensor's own and do not
depend on how it was cut or which thread failed first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import Problem, printable
from ninfer_convert.methods.reading import float_words, pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.formats import GroupedFormat, RowScaledFormat
    from ninfer_convert.methods.base import Job
    from ninfer_convert.values import Source, Values

Convert = Callable[["NDArray[Any]", bool, "NDArray[Any]"], int]
"""One of the float casts of `kernels.cast`: (words, half, out) -> words of `out` that are not finite."""


@dataclass
class Tally:
    """How many elements (or groups) are at fault, and the index of the first."""

    count: int = 0
    first: int = -1

    def add(self, count: int, first: int) -> None:
        self.count += count
        if self.first < 0:
            self.first = first


def problem(source: Source, code: str, message: str) -> Problem:
    """A problem with this source, its message led by its name and what was taken of it."""
    origins = source.origins
    taken = f" ({origins[0].selection})" if len(origins) == 1 and origins[0].selection else ""
    path = origins[0].file if origins else None
    return Problem(code, f"{printable(source.name)}{taken}: {message}", path=path, tensor=source.name)


def non_finite(job: Job, remedy: str) -> tuple[Problem, ...]:
    """All NaN and infinities of the source, as one problem; none if there are none."""
    from ninfer_convert.kernels.cast import find_non_finite

    nans = infinities = 0
    tally = Tally()
    for begin, values in pieces(job):
        piece_nans, piece_infinities, first = find_non_finite(*float_words(values))
        nans += piece_nans
        infinities += piece_infinities
        tally.add(piece_nans + piece_infinities, begin + first if first >= 0 else -1)
    if not tally.count:
        return ()
    message = (
        f"{_counted(tally.count, 'value is', 'values are')} not finite ({nans} NaN, {infinities} infinite), "
        f"the first at {_place(tally.first, job.source.shape)}; {remedy}"
    )
    return (problem(job.source, "non-finite", message),)


def made_infinite(job: Job, convert: Convert, word: str, target: str, remedy: str) -> tuple[Problem, ...]:
    """All finite values that become infinite in `target` (words of dtype `word`), as one problem or none."""
    import numpy as np

    from ninfer_convert.kernels.cast import find_made_infinite

    tally = Tally()
    for begin, values in pieces(job):
        words, half = float_words(values)
        converted = np.empty(words.shape, word)
        convert(words, half, converted)
        count, first = find_made_infinite(words, half, converted)
        tally.add(count, begin + first if first >= 0 else -1)
    if not tally.count:
        return ()
    message = (
        f"{_counted(tally.count, 'finite value becomes', 'finite values become')} infinite in {target}, the first at "
        f"{_place(tally.first, job.source.shape)}: {_value(job.source, tally.first)}; {remedy}"
    )
    return (problem(job.source, "overflow", message),)


def scale_overflow(job: Job, format: GroupedFormat, others: Iterable[GroupedFormat]) -> tuple[Problem, ...]:
    """All groups whose scale by absmax is infinite in binary16, as one problem or none; which `others` would do."""
    import numpy as np

    from ninfer_convert.kernels.grouped import find_overflows

    tally = Tally()
    highest = 0
    groups = -(-job.columns // format.group)
    for begin, values in pieces(job):
        words, half = float_words(values)
        matrix = words.reshape(-1, job.columns)
        count, first, largest = find_overflows(matrix, half, format.group, format.qmax)
        tally.add(count, begin // job.columns * groups + first if first >= 0 else -1)
        highest = max(highest, int(largest))
    if not tally.count:
        return ()
    row, group = divmod(tally.first, groups)
    columns = (group * format.group, min((group + 1) * format.group, job.columns))
    words, half = float_words(job.source.values(row * job.columns + columns[0], row * job.columns + columns[1]))
    _, _, largest = find_overflows(words[None], half, format.group, format.qmax)
    absmax, whole = (np.uint32(word).view(np.float32) for word in (largest, highest))
    with np.errstate(over="ignore"):
        fitting = [other.name for other in others if np.isfinite(np.float16(whole / np.float32(other.qmax)))]
    message = (
        f"row {_place(row, job.source.shape[:-1])}, group {group} (columns {columns[0]}:{columns[1]}): absmax "
        f"{absmax:.6g} needs the scale {absmax / format.qmax:.6g} in {format.name}, beyond binary16's largest, 65504 "
        f"({_counted(tally.count, 'such group', 'such groups')}); {' or '.join([*fitting, 'fp32'])} holds this tensor"
    )
    return (problem(job.source, "scale-overflow", message),)


def row_without_scale(job: Job, format: RowScaledFormat) -> tuple[Problem, ...]:
    """All rows of finite values whose scale, or its reciprocal, is infinite, as one problem or none."""
    import numpy as np

    from ninfer_convert.kernels.fp8 import find_unscalable

    tally = Tally()
    first_largest = 0
    for begin, values in pieces(job):
        words, half = float_words(values)
        count, first, largest = find_unscalable(words.reshape(-1, job.columns), half, format.scale == "bf16")
        if tally.first < 0:
            first_largest = int(largest)
        tally.add(count, begin // job.columns + first if first >= 0 else -1)
    if not tally.count:
        return ()
    absmax = float(np.uint32(first_largest).view(np.float32))
    if format.scale == "bf16":
        code, why, holding = "scale-underflow", "whose reciprocal is beyond binary32", "bf16 or fp32"
    else:
        code, why = "scale-overflow", "beyond binary16's largest, 65504"
        holding = "fp8_e4m3fn_row_bf16 or bf16 or fp32"
    message = (
        f"row {_place(tally.first, job.source.shape[:-1])}: absmax {absmax:.6g} needs the scale {absmax / 448:.6g} in "
        f"{format.name}, {why} ({_counted(tally.count, 'such row', 'such rows')}); {holding} holds this tensor"
    )
    return (problem(job.source, code, message),)


def no_int32(job: Job, find: Callable[[Values], tuple[int, int]]) -> Problem:
    """Values that are no whole number of 32 bits; `find` counts them in a piece."""
    tally = Tally()
    for begin, values in pieces(job):
        count, first = find(values)
        tally.add(count, begin + first if first >= 0 else -1)
    message = (
        f"{_counted(tally.count, 'value is', 'values are')} no whole number of 32 bits, the first at "
        f"{_place(tally.first, job.source.shape)}: {_value(job.source, tally.first)}; store the tensor as fp32 or bf16"
    )
    return problem(job.source, "no-int32", message)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _place(index: int, shape: tuple[int, ...]) -> str:
    """`index` in C order as coordinates: [3, 17]."""
    coordinates: list[int] = []
    for length in reversed(shape):
        index, coordinate = divmod(index, length)
        coordinates.insert(0, coordinate)
    return f"[{', '.join(map(str, coordinates))}]"


def _value(source: Source, index: int) -> str:
    import numpy as np

    values = source.values(index, index + 1)
    array = values.array
    if values.stored == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    elif values.stored == "F16":
        array = array.view(np.float16)
    return str(array[0].item()) if array.dtype.kind != "f" else f"{array[0].item():.9g}"
