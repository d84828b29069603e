"""file.py:function: words from a function of the recipe's own (methods.md, A callable of the user's own).

The function is trusted with nothing: what it is given it cannot change, and what it returns is checked word by word.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import NumericError, Problem, RecipeError, WordsError
from ninfer_convert.formats import FORMATS, DirectFormat
from ninfer_convert.methods import failures
from ninfer_convert.methods.quantizing import DIRECT, refusal
from ninfer_convert.methods.reading import float_words
from ninfer_convert.values import Words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.formats import Format
    from ninfer_convert.methods.base import Encode, Job
    from ninfer_convert.methods.code import CodeFile
    from ninfer_convert.values import Shape, Source

_RETURNED = {
    "direct": ("words",),
    "grouped": ("codes", "scales"),
    "row-scaled": ("codes", "scales"),
    "block-scaled": ("codes", "scales", "divisor"),
}
"""What a function returns for a format of each category."""


@dataclass(frozen=True)
class CallableMethod:
    """One function of a file that a recipe names. Planning does not run it.

    It takes any parameters, and non-finite values only for a direct format whose job lets them in. Where a piece of a
    direct format is cut within a row, the function is called with that row whole.
    """

    code: CodeFile
    function: str
    formats: tuple[str, ...] = tuple(name for name, format in FORMATS.items() if format.category in _RETURNED)
    parameters: None = None
    quantizes: bool = True

    @property
    def name(self) -> str:
        """`file.py:function`, the file without its folder."""
        return f"{self.code.path.name}:{self.function}"

    def refusal(self, source: Source, format: Format, parameters: Mapping[str, Any]) -> str | None:
        return refusal(self, source, format)

    def load(self) -> Callable[..., Any]:
        """The function, once its file has run. Raises RecipeError where that fails."""
        return self.code.function(self.function)

    def encoder(self, job: Job) -> Encode:
        """Raises RecipeError where the file, or the function's `prepare`, fails; `encode` where the function does."""
        function = self.load()
        shape = rows, columns = _matrix(job)

        def read(begin: int, end: int) -> NDArray[np.float32]:
            if not 0 <= begin <= end <= rows:
                raise IndexError(f"there are no rows {begin}:{end} of {rows}")
            return self._values(job, int(begin) * columns, int(end) * columns).reshape(-1, columns)

        def call(doing: str, called: Callable[..., Any], argument: Any, **more: Any) -> Any:
            # A copy of the parameters for each call: what one does to them, no other sees.
            given = {"shape": shape, "format": job.format.name, "parameters": deepcopy(dict(job.parameters))}
            with self.code.running(doing, self.function, job.source.name):
                return called(argument, **given, **more)

        prepare = getattr(function, "prepare", None)
        state = {} if prepare is None else {"state": call(f"{self.function}.prepare", prepare, read)}
        divisor = _Divisor()

        def encode(begin: int, end: int) -> Words:
            first, last = begin * job.columns // columns, -(-end * job.columns // columns)
            values = read(first, last)
            doing = f"{self.function} for rows {first}:{last}"
            result = call(doing, function, values, first_row=first, **state)
            try:
                words = _words(result, job.format, values.shape, first)
                divisor.check(words, first)
                if not isinstance(job.format, DirectFormat):
                    return words
                offset = first * columns
                return _elements(words, begin - offset, end - offset, job)
            except WordsError as error:
                message = f"what {doing} returned is refused: {error.problems[0].message}"
                told = self.code.problem("callable-words", message, self.function, job.source.name)
                raise RecipeError(told) from error

        return encode

    def _values(self, job: Job, begin: int, end: int) -> NDArray[np.float32]:
        """Elements [begin, end) of the source as binary32, an array that cannot be made writeable."""
        import numpy as np

        from ninfer_convert.kernels.cast import find_made_infinite, floats_to_f32
        from ninfer_convert.kernels.words import count_non_finite

        words, half = float_words(job.source.values(begin, end))
        single = words if words.dtype == np.uint32 else np.empty(words.shape, np.uint32)
        unfit = count_non_finite(words, half) if single is words else floats_to_f32(words, half, single)
        if unfit and job.non_finite != "refuse":
            unfit = find_made_infinite(words, half, single)[0] if job.non_finite == "warn" else 0
        if unfit:
            remedy = f"{self.name} is given finite values alone: {DIRECT}"
            problems = failures.made_infinite(job, floats_to_f32, "uint32", "binary32", remedy)
            if job.non_finite == "refuse":
                problems = (*failures.non_finite(job, remedy), *problems)
            raise NumericError(problems)
        return np.asarray(single.data.toreadonly()).view(np.float32)


@dataclass
class _Divisor:
    """The one weight divisor that all calls for a matrix return."""

    first: tuple[int, np.float32] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self, words: Words, row: int) -> None:
        """Raise WordsError where the divisor of `words`, of the rows from `row` on, is another than before."""
        if words.divisors is None:
            return
        divisor = words.divisors[0]
        with self.lock:
            self.first = self.first or (row, divisor)
            known_row, known = self.first
        if divisor != known:
            raise _wrong(f"the divisor is {divisor}, and for the rows from {known_row} on it was {known}")


def _matrix(job: Job) -> tuple[int, int]:
    """The rows and columns that the function sees: the folded matrix, of a vector or a scalar one row."""
    if job.format.category != "direct":
        return job.rows, job.columns
    shape = job.source.shape
    return prod(shape[:-1]), prod(shape[-1:])


def _words(result: Any, format: Format, shape: Shape, row: int) -> Words:
    """What a function returned for values of this shape, rows from `row` on, as words; of a direct format [n].

    Raises WordsError where they are not.
    """
    import numpy as np

    names = _RETURNED[format.category]
    parts = (result,) if len(names) == 1 else result
    if not isinstance(parts, tuple) or len(parts) != len(names):
        raise _wrong(f"{format.name} takes ({', '.join(names)}), a tuple; found {_kind(result)}")
    given = dict(zip(names, parts, strict=True))
    divisor = given.pop("divisor", None)
    for name, part in given.items():
        if not isinstance(part, np.ndarray):
            raise _wrong(f"{name} must be a NumPy array; found {_kind(part)}")
    if "divisor" in names and not isinstance(divisor, np.float32):
        raise _wrong(f"divisor must be a numpy.float32; found {_kind(divisor)}")
    arrays = [np.ascontiguousarray(part) for part in given.values()]
    if parts[0].shape != shape:
        raise _wrong(f"{names[0]} must have the shape of the values, {list(shape)}; found {list(parts[0].shape)}")
    words = Words(
        arrays[0].reshape(-1) if isinstance(format, DirectFormat) else arrays[0],
        scales=arrays[1] if len(arrays) > 1 else None,
        divisors=None if divisor is None else np.full(shape[0], divisor),
    )
    faults = format.faults(words, limit=1)
    for fault in faults.first:
        place = f"row {row + fault.row}"
        if fault.column is not None:
            place += f", {'group' if fault.part == 'scale' else 'column'} {fault.column}"
        count = "a word" if faults.total == 1 else f"{faults.total:,} words, the first"
        raise _wrong(f"{count} that {format.name} does not have, at {place}: {fault.message}")
    return words


def _elements(words: Words, begin: int, end: int, job: Job) -> Words:
    """Elements [begin, end) of direct words; raises WordsError for NaN and infinities that the job refuses."""
    from ninfer_convert.kernels.words import count_non_finite

    codes = words.codes[begin:end]
    found = 0 if codes.dtype.kind == "i" else count_non_finite(codes, False)
    if found and job.non_finite == "refuse":
        raise _wrong(f'{found:,} of its values are NaN or infinite, and non_finite = "refuse"')
    return Words(codes, non_finite=found)


def _wrong(message: str) -> WordsError:
    return WordsError(Problem("callable-words", message))


def _kind(found: object) -> str:
    kind = type(found).__name__
    return f"a {kind} of {len(found)}" if isinstance(found, (tuple, list)) else f"a {kind}"
