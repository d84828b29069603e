"""Tensors of ggml blocks as sources: their values, and their words where a format holds them exactly."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.formats.stored import StoredType, stored_type
from ninfer_convert.sources.base import StoredTensor
from ninfer_convert.sources.gguf_words import REACHES, BlockFault, block_words
from ninfer_convert.sources.labels import label
from ninfer_convert.stages import stage
from ninfer_convert.values import Values, Words


@dataclass(frozen=True, eq=False)
class BlockTensor(StoredTensor):
    """A tensor whose rows are ggml blocks of the type `stored`."""

    @property
    def exact(self) -> tuple[str, ...]:
        return (*([self.identical] if self.identical else ()), *REACHES.get(self.stored, ()))

    @property
    def _kind(self) -> StoredType:
        return stored_type(self.stored)

    def values(self, begin: int, end: int) -> Values:
        """Elements [begin, end) in C order as float32, to the bit of ggml's own decoding."""
        from ninfer_convert.kernels.blocks import decode_blocks

        if not 0 <= begin <= end <= prod(self.shape):
            raise IndexError(f"{self.name}: elements {begin}:{end} are no part of its {prod(self.shape)}")
        kind = self._kind
        first, last = begin // kind.block_values, -(-end // kind.block_values)
        blocks = self.read(first * kind.block_bytes, last * kind.block_bytes)
        with stage("decode"):
            decoded = decode_blocks(kind.ggml or 0, blocks[None, :])[0]
        before = first * kind.block_values
        return Values(decoded[begin - before : end - before], "F32")

    def words(self, format: str, begin: int, end: int) -> Words:
        """Rows [begin, end) as words of one of the `exact` formats.

        Raises SourceError naming tensor, row and block where the format cannot hold a block.
        """
        if format not in self.exact:
            raise self._error("not-encoded", f"its {self.stored} blocks hold no words of {format}")
        kind = self._kind
        row_bytes = self.shape[-1] // kind.block_values * kind.block_bytes
        rows = self.read(begin * row_bytes, end * row_bytes)
        try:
            return block_words(kind, format, rows.reshape(end - begin, -1, kind.block_bytes))
        except BlockFault as fault:
            keep = " or ".join([*(f"as {other}" for other in self.exact if other != format), "by its values"])
            message = (
                f"row {begin + fault.row}, block {fault.block}: {fault.message}, which {format} cannot hold; "
                f"keep the tensor {keep} (requantize = true)"
            )
            raise self._error("misfit-word", message) from None

    def _error(self, code: str, message: str) -> SourceError:
        return SourceError(Problem(code, f"{label(self.name)}: {message}", path=self.file.shown, tensor=self.name))
