"""Where a GGUF file's tensors lie: shapes, sizes and offsets checked against the file and each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.formats.stored import GGML_TYPES, StoredType, ggml_type
from ninfer_convert.sources.base import SourceFile, StoredTensor
from ninfer_convert.sources.gguf_blocks import BlockTensor
from ninfer_convert.sources.labels import label

if TYPE_CHECKING:
    from ninfer_convert.sources.gguf_header import Header, TensorInfo

_LARGEST = 2**63 - 1
_Q2_0, _PQ2_0 = GGML_TYPES[42], GGML_TYPES[142]


def place(header: Header, file: SourceFile) -> list[StoredTensor]:
    """The tensors of one file, in order of their offsets.

    A tensor of an unknown type is given the bytes up to the next one. Raises SourceError with every problem: shapes
    that are too large or that blocks do not divide, offsets off the alignment, tensors beyond the end of the file or
    over each other, and Q2_0 tensors whose size shows another encoding (encoded-sources.md 7.2).
    """
    spaces = _spaces(header)
    problems = [
        Problem(code, f"{label(info.name)}: {message}", path=file.shown, tensor=info.name)
        for info in header.infos
        for code, message in _faults(info, header.alignment, spaces[info.offset])
    ]
    if problems:
        raise SourceError(problems)
    tensors = [_tensor(info, file, spaces[info.offset]) for info in header.infos]
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.nbytes))
    _check_end(file, tensors)
    _check_overlaps(file, tensors)
    return tensors


def _spaces(header: Header) -> Mapping[int, int]:
    """Offset -> bytes from there to the next tensor, or to the end of the file."""
    offsets = sorted({info.offset for info in header.infos})
    end = max(header.size - header.payload, *offsets[-1:], 0)
    return {begin: following - begin for begin, following in pairwise([*offsets, end])}


def _faults(info: TensorInfo, alignment: int, space: int) -> Iterator[tuple[str, str]]:
    """(code, message) of whatever is wrong with one tensor taken by itself."""
    kind = ggml_type(info.ggml)
    if max(prod(info.shape), *info.shape, 0) > _LARGEST:
        yield "bad-shape", f"its shape {list(info.shape)} is too large to be true"
        return
    columns = info.shape[-1] if info.shape else 1
    if columns % kind.block_values:
        message = f"rows of {columns} values are no whole number of {kind.name} blocks of {kind.block_values}"
        yield "bad-shape", message
    if info.offset % alignment:
        yield "bad-offset", f"its offset {info.offset} is not a multiple of the file's alignment {alignment}"
    if kind is _Q2_0 and columns % _PQ2_0.block_values == 0:
        other = _bytes(_PQ2_0, info)
        if space < _bytes(kind, info) and space in (other, -(-other // alignment) * alignment):
            yield "q2-0-group-128", "declared Q2_0 but stored as group-128 (PrismML PQ2_0); re-download the g64 file"


def _tensor(info: TensorInfo, file: SourceFile, space: int) -> StoredTensor:
    kind = ggml_type(info.ggml)
    holder = BlockTensor if kind.kind == "block" else StoredTensor
    nbytes = space if kind.kind == "opaque" else _bytes(kind, info)
    return holder(info.name, kind.name, info.shape, file, file.payload + info.offset, nbytes)


def _bytes(kind: StoredType, info: TensorInfo) -> int:
    return prod(info.shape) // kind.block_values * kind.block_bytes


def _check_end(file: SourceFile, tensors: list[StoredTensor]) -> None:
    cut = [tensor for tensor in tensors if tensor.offset + tensor.nbytes > file.size]
    if cut:
        end = max(tensor.offset + tensor.nbytes for tensor in cut)
        message = (
            f"is truncated: its header describes {end} bytes, the file has {file.size} "
            f"(the first tensor cut is {label(cut[0].name)}); download it again"
        )
        raise SourceError(Problem("truncated", message, path=file.shown, tensor=cut[0].name))


def _check_overlaps(file: SourceFile, tensors: list[StoredTensor]) -> None:
    problems = []
    covered, last = 0, ""
    for tensor in tensors:
        if tensor.nbytes and tensor.offset < covered:
            message = f"{label(tensor.name)} and {label(last)} overlap by {covered - tensor.offset} bytes"
            problems.append(Problem("overlap", message, path=file.shown, tensor=tensor.name))
        if tensor.offset + tensor.nbytes > covered:
            covered, last = tensor.offset + tensor.nbytes, tensor.name
    if problems:
        raise SourceError(problems)
