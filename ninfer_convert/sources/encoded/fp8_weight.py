"""FP8 weights as sources: decoded always, imported where each row has one scale (encoded-sources.md 4.3, 6, 9)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from ninfer_convert.formats import get_format
from ninfer_convert.sources.encoded.scaled import ScaledWeight, e4m3
from ninfer_convert.sources.encoded.weight import float_words, widened
from ninfer_convert.sources.labels import label
from ninfer_convert.values import Encoding, Words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BF16 = "fp8_e4m3fn_row_bf16"
_FP16 = "fp8_e4m3fn_row_fp16"


@dataclass(frozen=True, eq=False)
class Fp8Weight(ScaledWeight):
    """E4M3FN codes under scales of any block."""

    @property
    def unfit(self) -> str:
        if self.stored == "FP8_BLOCK":
            return f"{self.block[0]}x{self.block[1]} block FP8 offers decoded values only"
        return super().unfit

    def meanings(self) -> NDArray[np.float64]:
        return e4m3()

    def read_codes(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Raises SourceError for a NaN."""
        from ninfer_convert.kernels.encoded import find_nan

        codes = super().read_codes(begin, end)
        wrong = find_nan(codes)
        if wrong >= 0:
            row, column = divmod(wrong, self.columns)
            message = f"code 0x{codes[row, column]:02X} at {self.place(begin + row, column)} is NaN"
            raise self.error("bad-code", self.tensors[self.codes].name, message)
        return codes


@dataclass(frozen=True, eq=False)
class Fp8RowWeight(Fp8Weight):
    """One float scale for each row, or for each matrix: the row-scaled formats keep the codes.

    Each scale has the sign bit 0 and is a word of the format's scales, or the weight is decoded.
    """

    @property
    def prospect(self) -> str:
        direct = {"BF16": _BF16, "F16": _FP16}
        fallback = f"{_BF16} where its scales are bfloat16 values, else decoded"
        return direct.get(self.tensors[self.scale].stored, fallback)

    @cached_property
    def exact(self) -> tuple[str, ...]:
        formats = (_FP16, _BF16) if self.tensors[self.scale].stored == "F16" else (_BF16,)
        return tuple(name for name in formats if self._unfit_scale(name) < 0)

    @cached_property
    def encoding(self) -> Encoding:
        self.scales(self.scale)
        return Encoding(details=self.details, unfit=self.unfit, rounded=self._rounded, activations=self.activations)

    @property
    def unfit(self) -> str:
        """What keeps the scales out of bfloat16."""
        at = self._unfit_scale(_BF16)
        if at < 0:
            return ""
        scale = self.tensors[self.scale]
        words = self._scale_words
        word = f"{label(scale.name)}: scale 0x{int(words[at]):0{2 * words.itemsize}X}"
        where = f" (element {at} of {list(scale.shape)})" if len(words) > 1 else ""
        if self._rounded:
            advice = "use decoded values or the rounding method (round_scales = true)"
            return f"{word} is not representable in BF16{where}; {advice}"
        return f"{word} is negative, or infinite in BF16{where}; use decoded values"

    def words(self, format: str, begin: int, end: int) -> Words:
        """Rows [begin, end): the codes as they are, each row's scale.

        Raises SourceError for a NaN code, and for a zero scale over codes that are not zero.
        """
        if format not in self.exact and format not in self._rounded:
            self.refuse(format)
        words = Words(self.read_codes(begin, end), self._words_of(format)[self.scale_rows(begin, end)])
        for fault in get_format(format).faults(words, limit=1).first:
            message = f"row {begin + fault.row}: {fault.message}, which {format} cannot hold; use decoded values"
            raise self.error("misfit-word", self.name, message)
        return words

    @cached_property
    def _scale_words(self) -> NDArray[Any]:
        """Every scale word, uint16 or uint32."""
        scale = self.tensors[self.scale]
        return float_words(scale, 0, prod(scale.shape))

    def _words_of(self, format: str) -> NDArray[np.uint16]:
        """The scales as the format's words, each rounded once where it has to be."""
        import numpy as np

        from ninfer_convert.kernels.cast import floats_to_bf16

        words, half = self._scale_words, self.tensors[self.scale].stored == "F16"
        if half == (format == _FP16) and words.dtype == np.uint16:
            return words
        rounded = np.empty(words.shape, np.uint16)
        floats_to_bf16(words, half, rounded)
        return rounded

    def _unfit_scale(self, format: str) -> int:
        """Index of the first scale that is no scale of the format, -1 if there is none."""
        import numpy as np

        exact = self._finite & (widened(self._words_of(format), format == _FP16) == self._values)
        return -1 if exact.all() else int(np.argmin(exact))

    @cached_property
    def _values(self) -> NDArray[np.float64]:
        return widened(self._scale_words, self.tensors[self.scale].stored == "F16")

    @property
    def _finite(self) -> NDArray[np.bool_]:
        """Which scales are finite with the sign bit 0, as the formats want them."""
        import numpy as np

        found: NDArray[np.bool_] = np.isfinite(self._values) & ~np.signbit(self._values)
        return found

    @cached_property
    def _rounded(self) -> dict[str, float]:
        """bfloat16 scales and the largest relative change, where some are none but all are near one."""
        import numpy as np

        if self._unfit_scale(_BF16) < 0:
            return {}
        near = widened(self._words_of(_BF16), False)
        if not (self._finite & np.isfinite(near)).all():
            return {}
        changes = np.abs(near - self._values)[self._values != 0] / self._values[self._values != 0]
        return {_BF16: float(changes.max())}
