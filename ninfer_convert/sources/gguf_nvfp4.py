"""GGUF's NVFP4 weights with the scales that lie in tensors beside them (encoded-sources.md 7.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.sources.gguf_blocks import BlockTensor
from ninfer_convert.sources.labels import label
from ninfer_convert.sources.reciprocals import is_divisor, reciprocal
from ninfer_convert.values import Encoding, Origin, Values, Words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.sources.base import StoredTensor

_FACTORS = (".scale", ".weight.scale")
_ACTIVATIONS = (".input_scale", ".weight.input_scale")
"""What follows the weight's name without `.weight`: llama.cpp's own spelling, then that of other writers."""


@dataclass(frozen=True, eq=False)
class ScaledNvfp4(BlockTensor):
    """An NVFP4 weight and what lies beside it.

    `factor` multiplies the decoded blocks; `activation` is a multiplier of the inputs, no part of the weight. Each is
    F32, of one element or of one for each expert of a bank.
    """

    factor: StoredTensor | None
    activation: StoredTensor | None

    @property
    def origins(self) -> tuple[Origin, ...]:
        return (*super().origins, *(self.factor.origins if self.factor else ()))

    @property
    def companions(self) -> tuple[str, ...]:
        return tuple(scale.name for scale in (self.factor, self.activation) if scale)

    @property
    def encoding(self) -> Encoding:
        activations = (
            tuple(self.activation.values(0, prod(self.activation.shape)).array.tolist()) if self.activation else ()
        )
        return Encoding(
            details="factor " + (label(self.factor.name) if self.factor else "1"),
            divisors=tuple(reciprocal(factor) for factor in self._factors().tolist()),
            input_divisor=min(filter(is_divisor, map(reciprocal, activations)), default=None),
            activations={self.activation.name: activations} if self.activation else {},
            note=f"divisors are reciprocals of {label(self.factor.name)}, within 2^-24" if self.factor else "",
        )

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order as float32: ggml's decoded blocks times the factor, rounded once."""
        import numpy as np

        decoded = super().values(begin, end)
        each = prod(self.shape[-2:])
        expert = np.arange(begin // each, -(-end // each))
        spans = np.minimum((expert + 1) * each, end) - np.maximum(expert * each, begin)
        return Values(decoded.array * np.repeat(self._factors()[expert], spans), decoded.stored)

    def words(self, format: str, begin: int, end: int) -> Words:
        """Rows [begin, end) as words of nvfp4; a row's divisor is the rounded reciprocal of its factor."""
        import numpy as np

        words = super().words(format, begin, end)
        divisors = np.array(self.encoding.divisors, np.float32)
        return replace(words, divisors=divisors[np.arange(begin, end) // prod(self.shape[-2:-1])])

    def _factors(self) -> NDArray[np.float32]:
        """[experts] float32; raises SourceError where one, or its reciprocal, is not finite and positive."""
        import numpy as np

        experts = prod(self.shape[:-2])
        if self.factor is None:
            return np.ones(experts, np.float32)
        factors = self.factor.values(0, prod(self.factor.shape)).array
        if not ((factors > 2.0**-128) & (factors < np.inf)).all():
            raise self._error("bad-factor", f"its global scale {label(self.factor.name)} must be finite and positive")
        return np.broadcast_to(factors, (experts,))


def with_scales(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """The tensors, every NVFP4 weight joined with its scales; these stay in the list too.

    Raises SourceError for scales of another type or number than the weight can have.
    """
    joined = dict(tensors)
    problems: list[Problem] = []
    for name, tensor in tensors.items():
        if tensor.stored == "NVFP4":
            base = name.removesuffix(".weight")
            beside = [
                [tensors[base + end] for end in ends if base + end in tensors] for ends in (_FACTORS, _ACTIVATIONS)
            ]
            problems += [problem for found in beside for problem in _problems(tensor, found)]
            if any(beside):
                factor, activation = (found[0] if found else None for found in beside)
                place = (tensor.name, tensor.stored, tensor.shape, tensor.file, tensor.offset, tensor.nbytes)
                joined[name] = ScaledNvfp4(*place, factor, activation)
    if problems:
        raise SourceError(problems)
    return joined


def _problems(weight: StoredTensor, scales: Sequence[StoredTensor]) -> Sequence[Problem]:
    experts = prod(weight.shape[:-2])
    messages = [
        f"is {scale.stored} {list(scale.shape)}, where F32 of 1 element or 1 for each of {experts} experts was expected"
        for scale in scales
        if scale.stored != "F32" or prod(scale.shape) not in (1, experts)
    ]
    if len(scales) > 1:
        messages.append(f"and {label(scales[1].name)} are both there for {label(weight.name)}; only one can count")
    return [
        Problem("bad-factor", f"{label(scales[0].name)} {message}", path=weight.file.shown, tensor=scales[0].name)
        for message in messages
    ]
