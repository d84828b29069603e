"""NVFP4 weights as sources, in both dialects (encoded-sources.md 4.2, 5.1).

compressed-tensors stores a divisor of the whole matrix, ModelOpt a multiplier, whose rounded reciprocal becomes the
divisor; codes and block scales are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ninfer_convert.formats.nvfp4 import NVFP4
from ninfer_convert.sources.encoded.scaled import ColumnGroups, decode_rows, e2m1, e4m3, times
from ninfer_convert.sources.encoded.weight import EncodedWeight
from ninfer_convert.sources.labels import label
from ninfer_convert.sources.reciprocals import is_divisor, reciprocal
from ninfer_convert.values import Encoding, Words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.sources.base import StoredTensor

LARGEST_SCALE = 0x7E
"""The E4M3FN word of 448; what lies beyond is NaN or negative."""


@dataclass(frozen=True, eq=False)
class Nvfp4Weight(EncodedWeight):
    """Two E2M1 codes to a byte, E4M3FN scales [rows, K / 16], and F32 factors: one, or one for each matrix of a bank.

    `multiplies` says that a factor multiplies (ModelOpt) where it else divides. `before` is a factor of each input
    channel that the runtime applies to the activations: with it, the codes are another weight.
    """

    codes: str
    scale: str
    factor: str
    multiplies: bool = False
    before: str | None = None

    @property
    def exact(self) -> tuple[str, ...]:
        return () if self.before else (NVFP4.name,)

    @property
    def prospect(self) -> str:
        return super().prospect if self.before else NVFP4.name

    @property
    def unfit(self) -> str:
        return f"{self.before} changes the weight's meaning and is not supported by import_encoded"

    @cached_property
    def encoding(self) -> Encoding:
        factor = label(self.tensors[self.factor].name)
        return Encoding(
            details=self.details,
            unfit=self.unfit if self.before else "",
            divisors=tuple(float(divisor) for divisor in self._divisors),
            input_divisor=self._input_divisor,
            activations=self.activations,
            note=f"divisors are reciprocals of {factor}, within 2^-24" if self.multiplies else "",
        )

    def decode(self, begin: int, end: int) -> NDArray[np.float32]:
        """code * scale / divisor or code * scale * multiplier, rounded once, then times what the runtime applies."""
        import numpy as np

        if not self.multiplies:
            values: NDArray[np.float32] = NVFP4.decode(self._words(begin, end))
            return values
        words = self._words(begin, end)
        assert words.scales is not None
        scales = e4m3()[words.scales] * self._factors[self._matrices(begin, end), None]
        values = decode_rows(
            words.codes, e2m1(), scales, np.arange(end - begin), ColumnGroups.even(self.columns, NVFP4.group)
        )
        return values if self.before is None else times(values, self.scales(self.before))

    def words(self, format: str, begin: int, end: int) -> Words:
        """Rows [begin, end) bit for bit, each with the divisor of its own matrix."""
        if format not in self.exact:
            self.refuse(format)
        return self._words(begin, end)

    def _words(self, begin: int, end: int) -> Words:
        import numpy as np

        from ninfer_convert.kernels.packing import unpack

        codes = unpack([self.row_bytes(self.codes, begin, end)], [4]).reshape(-1, self.columns)
        scales = self.row_bytes(self.scale, begin, end)
        if scales.max(initial=0) > LARGEST_SCALE:
            row, group = divmod(int(np.argmax(scales > LARGEST_SCALE)), scales.shape[1])
            message = f"block scale word 0x{scales[row, group]:02X} at {self.place(begin + row, group)}"
            raise self.error("bad-scale", self.tensors[self.scale].name, f"{message} is negative or NaN")
        return Words(codes, scales, self._divisors[self._matrices(begin, end)])

    def _matrices(self, begin: int, end: int) -> NDArray[np.int64]:
        """The index of the factor that each of the rows [begin, end) has."""
        import numpy as np

        found: NDArray[np.int64] = np.arange(begin, end) // (self.rows // len(self._factors))
        return found

    @cached_property
    def _factors(self) -> NDArray[np.float64]:
        """The factors as they are stored."""
        import numpy as np

        factors = _f32(self.tensors[self.factor])
        return np.array(factors, np.float64)

    @cached_property
    def _divisors(self) -> NDArray[np.float32]:
        """Raises SourceError where one is not finite and positive."""
        import numpy as np

        factors = self._factors.tolist()
        divisors = [reciprocal(factor) for factor in factors] if self.multiplies else factors
        if not all(map(is_divisor, (*factors, *divisors))):
            raise self.error("bad-scale", self.tensors[self.factor].name, "global scale must be finite and positive")
        return np.array(divisors, np.float32)

    @property
    def _input_divisor(self) -> float | None:
        """The smallest of the divisors of the inputs; None where there is none."""
        found = [
            reciprocal(value) if role.endswith("input_scale") else value
            for role, tensor in self.tensors.items()
            if role.endswith(("input_scale", "input_global_scale"))
            for value in self.activations[tensor.name]
        ]
        return min(filter(is_divisor, found), default=None)


def _f32(tensor: StoredTensor) -> list[float]:
    numbers: list[float] = tensor.values(0, tensor.nbytes // 4).array.tolist()
    return numbers
