"""What every view takes from the source that it looks at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.sources.labels import label
from ninfer_convert.values import Encoding, Origin, Values

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.values import Runs, Source, Words


@dataclass(frozen=True)
class View(ABC):
    """What every view takes from the source it looks at; here nothing but its values can be had.

    Views are equal where they look at the same source in the same way.
    """

    whole: Source

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def stored(self) -> str:
        return self.whole.stored

    @property
    def nbytes(self) -> int:
        return self.whole.nbytes

    @property
    @abstractmethod
    def selection(self) -> str:
        """What it makes of the source, for provenance."""

    @abstractmethod
    def undone(self, data: Source) -> Source:
        """The source it looks at, where `data` has this view's elements; IndexError where they are not all of it."""

    @cached_property
    def origins(self) -> Sequence[Origin]:
        return [
            Origin(
                origin.source,
                origin.file,
                origin.tensor,
                origin.stored,
                f"{origin.selection}, {self.selection}" if origin.selection else self.selection,
            )
            for origin in self.whole.origins
        ]

    @property
    def identical(self) -> str | None:
        return None if stored_type(self.stored).quantized else self.whole.identical

    @property
    def exact(self) -> Sequence[str]:
        return ()

    @property
    def encoding(self) -> Encoding | None:
        encoding = self.whole.encoding
        unfit = "it is read rearranged or computed, which encoded words cannot be"
        return encoding and Encoding(details=encoding.details, unfit=unfit, activations=encoding.activations)

    def words(self, format: str, begin: int, end: int) -> Words:
        self.refuse(format)

    def refuse(self, format: str) -> NoReturn:
        """Raise the SourceError that there are no words of `format`."""
        message = f"{label(self.name)}: is read rearranged or computed, so it holds no words of {format}"
        raise SourceError(Problem("not-encoded", message, path=self.origins[0].file, tensor=self.name))


def concatenated(parts: list[Values]) -> Values:
    """Runs of values one after the other; `parts` is not empty."""
    if len(parts) == 1:
        return parts[0]
    import numpy as np

    return replace(parts[0], array=np.concatenate([part.array for part in parts]))


def numbers(values: Values) -> NDArray[np.floating]:
    """Float values as the numbers they mean: binary32, or binary64 where they are."""
    import numpy as np

    from ninfer_convert.kernels.cast import floats_to_f32

    if values.stored not in ("BF16", "F16"):
        return values.array
    wide = np.empty(values.array.shape, np.uint32)
    floats_to_f32(values.array, values.stored == "F16", wide)
    return wide.view(np.float32)


def indices(runs: Runs) -> NDArray[np.int64]:
    """What the runs run through, one by one."""
    import numpy as np

    return np.concatenate([np.arange(begin, end) for begin, end in runs])


def runs_of(indices: NDArray[np.integer]) -> Runs:
    """The fewest runs that run through these; there is at least one."""
    import numpy as np

    cuts = [0, *(np.flatnonzero(np.diff(indices) != 1) + 1).tolist(), len(indices)]
    return tuple((int(indices[a]), int(indices[b - 1]) + 1) for a, b in pairwise(cuts))


def inverted(order: NDArray[np.integer]) -> Runs:
    """The permutation that undoes this one, in runs."""
    import numpy as np

    return runs_of(np.argsort(order))


def spelled(runs: Runs) -> str:
    """`2:3+8:9`."""
    return "+".join(f"{begin}:{end}" for begin, end in runs)
