"""An encoded weight as a source: values decoded by whole rows, and what all encodings share in reading theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.sources.encoded.base import FLOATS, is_activation_scale
from ninfer_convert.sources.labels import label
from ninfer_convert.stages import stage
from ninfer_convert.values import Encoding, Origin, Values

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.sources.base import StoredTensor
    from ninfer_convert.values import Shape, Words

NAN_EXPONENT = 0xFF
"""The E8M0 word that is NaN."""

_SPAN_BYTES = 1 << 20
_PAGE = 4096


@dataclass(frozen=True, eq=False)
class EncodedWeight:
    """The tensors of one module as one logical weight; a subclass knows one encoding.

    `stored` names the encoding (`formats.stored`), `details` its convention; `tensors` are all the tensors that it
    consumes, by their names within the module. Here nothing can be imported.
    """

    name: str
    stored: str
    shape: Shape
    details: str
    tensors: Mapping[str, StoredTensor]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def origins(self) -> tuple[Origin, ...]:
        return tuple(origin for tensor in self.tensors.values() for origin in tensor.origins)

    @property
    def identical(self) -> str | None:
        return next(iter(self.exact), None)

    @property
    def exact(self) -> tuple[str, ...]:
        return ()

    @cached_property
    def encoding(self) -> Encoding:
        return Encoding(details=self.details, unfit=self.unfit, activations=self.activations)

    @property
    def prospect(self) -> str:
        """What its headers alone say a conversion can make of it."""
        return "decoded values"

    @property
    def unfit(self) -> str:
        """Why its words cannot be imported (`Encoding.unfit`)."""
        return f"{self.stored} offers decoded values only"

    @property
    def columns(self) -> int:
        return self.shape[-1]

    @property
    def rows(self) -> int:
        """Rows with the leading axes folded into them."""
        return prod(self.shape[:-1])

    @cached_property
    def activations(self) -> dict[str, tuple[float, ...]]:
        """Its activation scales (`Encoding.activations`)."""
        scales = {role: tensor for role, tensor in self.tensors.items() if is_activation_scale(role)}
        return {tensor.name: tuple(_numbers(tensor)) for tensor in scales.values()}

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order as float32; the rows they lie in are decoded whole.

        Raises SourceError naming tensor, place and word where a word means no number.
        """
        import numpy as np

        if not 0 <= begin <= end <= prod(self.shape):
            raise IndexError(f"{self.name}: elements {begin}:{end} are no part of its {prod(self.shape)}")
        if begin == end:
            return Values(np.empty(0, np.float32), "F32")
        first, last = begin // self.columns, -(-end // self.columns)
        with stage("decode"):
            decoded = self.decode(first, last).reshape(-1)
        return Values(decoded[begin - first * self.columns : end - first * self.columns], "F32")

    def decode(self, begin: int, end: int) -> NDArray[np.float32]:
        """Rows [begin, end) as float32 [rows, K] by the encoding's own rule."""
        raise self.error("undecodable", self.name, f"{self.stored} cannot be decoded")

    def words(self, format: str, begin: int, end: int) -> Words:
        """Rows [begin, end) as words of `format`; raises SourceError where there are none, or one does not fit."""
        self.refuse(format)

    def refuse(self, format: str) -> NoReturn:
        raise self.error("not-encoded", self.name, self.encoding.unfit or f"holds no words of {format}")

    def error(self, code: str, tensor: str, message: str) -> SourceError:
        """An error about one of its tensors."""
        path = next(iter(self.tensors.values())).file.shown
        return SourceError(Problem(code, f"{label(tensor)}: {message}", path=path, tensor=tensor))

    def place(self, row: int, column: int) -> str:
        """`[n,k]`, a row of the folded matrix and a column or group, in the axes of its shape."""
        axes: list[int] = []
        for length in reversed(self.shape[:-1]):
            row, at = divmod(row, length)
            axes.insert(0, at)
        return f"[{','.join(map(str, (*axes, column)))}]"

    def row_bytes(self, role: str, begin: int, end: int) -> NDArray[np.uint8]:
        """Rows [begin, end) of a tensor whose leading axes are the weight's own: uint8 [rows, bytes of a row]."""
        tensor = self.tensors[role]
        width = tensor.nbytes // self.rows
        return tensor.read(begin * width, end * width).reshape(end - begin, width)

    def scales(self, role: str, begin: int = 0, end: int | None = None) -> NDArray[np.float64]:
        """Elements [begin, end) of a tensor of scales, exactly; E8M0 where it is stored as bytes.

        Raises SourceError for one that is NaN or infinite.
        """
        import numpy as np

        tensor = self.tensors[role]
        words = float_words(tensor, begin, prod(tensor.shape) if end is None else end)
        if words.dtype == np.uint8:
            wrong = words == NAN_EXPONENT
            values = np.ldexp(1.0, words.astype(np.int32) - 127)
        else:
            values = widened(words, tensor.stored == "F16")
            wrong = ~np.isfinite(values)
        if wrong.any():
            at = int(np.argmax(wrong))
            word = f"0x{int(words[at]):0{2 * words.itemsize}X}"
            message = f"scale {word}, element {begin + at} of {list(tensor.shape)}, is not finite"
            raise self.error("bad-scale", tensor.name, message)
        return values


@dataclass(frozen=True, eq=False)
class UnreadWeight(EncodedWeight):
    """A weight that can only be named and skipped; its shape is () where no header tells it."""


def float_words(tensor: StoredTensor, begin: int, end: int) -> NDArray[Any]:
    """Words [begin, end) of a float tensor as unsigned integers of their width; E8M0 as uint8."""
    size = stored_type(tensor.stored).block_bytes
    return tensor.read(begin * size, end * size).view(f"u{size}")


def widened(words: NDArray[Any], half: bool) -> NDArray[np.float64]:
    """Float words [n] (binary16 where `half` is set) as the numbers they mean."""
    import numpy as np

    from ninfer_convert.kernels.encoded import widen

    values = np.empty(words.shape, np.float64)
    widen(words, half, values)
    return values


def read_columns(tensor: StoredTensor, begin: int, end: int) -> NDArray[Any]:
    """Columns [begin, end) of a matrix whose columns are the weight's rows: [rows, end - begin] words, unsigned.

    Few bytes of many rows cost less when they are read with what lies between, in spans of bounded size.
    """
    import numpy as np

    rows, columns = tensor.shape
    size = stored_type(tensor.stored).block_bytes
    stride, wanted = columns * size, slice(begin * size, end * size)
    out = np.empty((rows, (end - begin) * size), np.uint8)
    if out.shape[1] >= _PAGE and out.shape[1] < stride:
        for row in range(rows):
            out[row] = tensor.read(row * stride + wanted.start, row * stride + wanted.stop)
        return out.view(f"u{size}")
    step = max(1, _SPAN_BYTES // stride)
    for row in range(0, rows, step):
        last = min(row + step, rows)
        out[row:last] = tensor.read(row * stride, last * stride).reshape(-1, stride)[:, wanted]
    return out.view(f"u{size}")


def group_index(weight: EncodedWeight, role: str, count: int) -> NDArray[np.int64] | None:
    """The group of each column, one of `count`; None where the tensor is absent or all -1: columns stand by group.

    Raises SourceError for a group that is not there.
    """
    import numpy as np

    tensor = weight.tensors.get(role)
    if tensor is None:
        return None
    index: NDArray[np.int64] = tensor.read(0, tensor.nbytes).view("<i4").astype(np.int64)
    if len(index) and (index == -1).all():
        return None
    wrong = (index < 0) | (index >= count)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise weight.error("bad-group", tensor.name, f"puts column {at} into group {index[at]} of {count}")
    return index


def _numbers(tensor: StoredTensor) -> list[float]:
    if tensor.stored in FLOATS:
        return [float(value) for value in widened(float_words(tensor, 0, prod(tensor.shape)), tensor.stored == "F16")]
    return [float(value) for value in tensor.values(0, prod(tensor.shape)).array.tolist()]
