"""MXFP4 weights as sources: decoded, or transcoded to nvfp4 where that is exact (encoded-sources.md 9.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ninfer_convert.formats.nvfp4 import NVFP4
from ninfer_convert.sources.encoded.scaled import ColumnGroups, decode_rows, e2m1
from ninfer_convert.sources.encoded.weight import NAN_EXPONENT, EncodedWeight
from ninfer_convert.values import Encoding, Words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_GROUP = 32
_BIAS = 127
_PIECE_BYTES = 1 << 22

_LOWEST, _HIGHEST = -9, 8
"""E4M3FN holds the powers of two from 2^-9 to 2^8."""
_LARGEST_DIVISOR = 127
"""binary32 holds 2^127, not 2^128."""


@dataclass(frozen=True, eq=False)
class Mxfp4Weight(EncodedWeight):
    """Two E2M1 codes to a byte and E8M0 scales [rows, K / 32].

    In nvfp4 each scale stands twice, all exponents moved by one m that the divisor 2^m takes back. That is exact where
    the exponents of all groups fit E4M3FN; groups of zeros alone do not count, and take the scale zero if need be.
    """

    codes: str
    scale: str

    @property
    def prospect(self) -> str:
        return f"{NVFP4.name} where its scales lie near enough, else decoded"

    @property
    def exact(self) -> tuple[str, ...]:
        return (NVFP4.name,) if self._shift is not None else ()

    @cached_property
    def encoding(self) -> Encoding:
        if self._shift is None:
            low, high = (word - _BIAS for word in self._used)
            unfit = f"its scales go from 2^{low} to 2^{high}, further than those of nvfp4 can; use decoded values"
            return Encoding(self.details, unfit, activations=self.activations)
        return Encoding(self.details, divisors=(2.0**self._shift,), activations=self.activations)

    def decode(self, begin: int, end: int) -> NDArray[np.float32]:
        """code * 2^(scale - 127), exact."""
        import numpy as np

        scales = self.scales(self.scale, begin * self._groups, end * self._groups).reshape(-1, self._groups)
        return decode_rows(
            self._codes(begin, end), e2m1(), scales, np.arange(end - begin), ColumnGroups.even(self.columns, _GROUP)
        )

    def words(self, format: str, begin: int, end: int) -> Words:
        """Rows [begin, end): the codes as they are, scales and divisors of the same values."""
        import numpy as np

        shift = self._shift
        if format not in self.exact or shift is None:
            self.refuse(format)
        scales = _scale_words(shift)[self.row_bytes(self.scale, begin, end)]
        divisors = np.full(end - begin, 2.0**shift, np.float32)
        return Words(self._codes(begin, end), np.repeat(scales, _GROUP // NVFP4.group, axis=1), divisors)

    @property
    def _groups(self) -> int:
        """Groups of a row."""
        return self.columns // _GROUP

    def _codes(self, begin: int, end: int) -> NDArray[np.uint8]:
        from ninfer_convert.kernels.packing import unpack

        return unpack([self.row_bytes(self.codes, begin, end)], [4]).reshape(-1, self.columns)

    @property
    def _shift(self) -> int | None:
        """m, None where no m fits."""
        low, high = self._used
        return min(_HIGHEST + _BIAS - high, _LARGEST_DIVISOR) if high - low <= _HIGHEST - _LOWEST else None

    @cached_property
    def _used(self) -> tuple[int, int]:
        """The lowest and the highest scale word of any group that holds more than zeros (127 twice if none does).

        Scales alone nearly always show that nvfp4 fits; where they do not, the codes are read. Raises SourceError for
        a scale that is NaN.
        """
        import numpy as np

        counts = np.zeros(256, np.int64)
        for begin, end in self._pieces():
            scales = self.row_bytes(self.scale, begin, end)
            counts += np.bincount(scales.reshape(-1), minlength=256)
            if counts[NAN_EXPONENT]:
                row, group = divmod(int(np.argmax(scales == NAN_EXPONENT)), self._groups)
                message = f"scale word 0xFF at {self.place(begin + row, group)} is NaN"
                raise self.error("bad-scale", self.tensors[self.scale].name, message)
        low, high = _ends(counts)
        return (low, high) if high - low <= _HIGHEST - _LOWEST else _ends(self._count_used())

    def _count_used(self) -> NDArray[np.int64]:
        import numpy as np

        from ninfer_convert.kernels.encoded import count_exponents

        counts = np.zeros(256, np.int64)
        for begin, end in self._pieces():
            codes = self.row_bytes(self.codes, begin, end).reshape(-1, _GROUP // 2)
            count_exponents(codes, self.row_bytes(self.scale, begin, end).reshape(-1), counts)
        return counts

    def _pieces(self) -> Iterator[tuple[int, int]]:
        step = max(1, _PIECE_BYTES * 2 // self.columns)
        for begin in range(0, self.rows, step):
            yield begin, min(begin + step, self.rows)


def _ends(counts: NDArray[np.int64]) -> tuple[int, int]:
    import numpy as np

    found = np.flatnonzero(counts)
    return (int(found[0]), int(found[-1])) if len(found) else (_BIAS, _BIAS)


def _scale_words(shift: int) -> NDArray[np.uint8]:
    """The E4M3FN word of each scale word's power of two times 2^shift; 0 where there is none."""
    import numpy as np

    exponents = np.arange(256) - _BIAS + shift
    fits = (exponents >= _LOWEST) & (exponents <= _HIGHEST)
    words = np.where(exponents >= -6, (exponents + 7) << 3, 1 << np.clip(exponents + 9, 0, 3))
    found: NDArray[np.uint8] = np.where(fits, words, 0).astype(np.uint8)
    return found
