"""An artifact's parameters as sources: views rearrange them as they do a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ninfer_convert.errors import Problem, SourceError, printable
from ninfer_convert.formats.stored import STORED_TYPES
from ninfer_convert.values import Origin, Values, joined

if TYPE_CHECKING:
    from ninfer_convert.formats.stored import StoredType
    from ninfer_convert.pipeline.stored import StoredParameter
    from ninfer_convert.values import Encoding, Shape, Words

KEEPING = MappingProxyType({kind.identical: kind for kind in STORED_TYPES.values() if kind.identical is not None})
"""Format -> the stored type that has the same words."""


@dataclass(frozen=True, eq=False)
class ParameterSource:
    """A parameter as a source: of direct formats its words, of others its values, decoded.

    Words of ggml's blocks are kept where it is made of whole rows of them.
    """

    parameter: StoredParameter

    @property
    def name(self) -> str:
        return self.parameter.name

    @property
    def shape(self) -> Shape:
        return self.parameter.shape

    @property
    def nbytes(self) -> int:
        return self.parameter.nbytes

    @property
    def stored(self) -> str:
        return self._kind.name if self._kind is not None else "F32"

    @cached_property
    def _kind(self) -> StoredType | None:
        """The type that has its words, None where there is none or they are of several formats."""
        return KEEPING.get(self.parameter.format)

    @property
    def origins(self) -> Sequence[Origin]:
        return (Origin("artifact", self.parameter.spans[0].artifact.path, self.name, self.stored),)

    @cached_property
    def identical(self) -> str | None:
        kind, columns = self._kind, self.shape[-1] if self.shape else 1
        if kind is None:
            return None
        if kind.kind == "block" and any(
            span.columns != columns or span.begin % columns or span.end % columns for span in self.parameter.spans
        ):
            return None
        return kind.identical

    @property
    def exact(self) -> Sequence[str]:
        blocks = self._kind is not None and self._kind.kind == "block"
        return (self.identical,) if blocks and self.identical is not None else ()

    @property
    def encoding(self) -> Encoding | None:
        return None

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order."""
        spans = list(self.parameter.cut(begin, end)) if begin < end else []
        if self._kind is None or self._kind.numpy is None:
            decoded = [span.decode(span.words()).astype(np.float32, copy=False) for span in spans]
            return Values(np.concatenate([np.empty(0, np.float32), *decoded]), "F32")
        words = [span.words().codes.reshape(-1).view(self._kind.numpy) for span in spans]
        return Values(np.concatenate([np.empty(0, self._kind.numpy), *words]), self.stored)

    def words(self, format: str, begin: int, end: int) -> Words:
        """Rows [begin, end), leading axes folded, as the words of ggml's blocks that they are."""
        if format not in self.exact:
            message = f"{printable(self.name)}: is kept as {self.parameter.format}; it holds no words of {format}"
            raise SourceError(Problem("not-encoded", message, tensor=self.name))
        columns = self.shape[-1]
        spans = self.parameter.cut(begin * columns, end * columns)
        return joined([span.words() for span in spans])
