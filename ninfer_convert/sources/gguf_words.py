"""ggml's blocks as words of the formats that hold them exactly: moved between planes, never rounded.

The conditions are those of encoded-sources.md 7.2 to 7.5; what a format's own rules forbid, the format says.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from ninfer_convert.formats import GroupedFormat, Nvfp4Format, get_format
from ninfer_convert.values import Words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ninfer_convert.formats.stored import StoredType

_T2 = "t2_g128_fp16"
REACHES = MappingProxyType(
    {
        "Q8_0": ("q8_g32_fp16",),
        "Q2_0": ("q2_g64_fp16", _T2),
        "PQ2_0": (_T2,),
        "PTQ1_0": (_T2,),
        "TQ1_0": (_T2,),
        "TQ2_0": (_T2,),
        "Q1_0": (_T2,),
        "NVFP4": ("nvfp4",),
    }
)
"""Block type -> formats beside its own that hold its codes and scales (encoded-sources.md 9.1)."""

_SCALE_AT = MappingProxyType({"Q8_0": 0, "Q2_0": 0, "PQ2_0": 0, "PTQ1_0": 26, "TQ1_0": 52, "TQ2_0": 64, "Q1_0": 0})
"""Where a block's binary16 scale lies, in the types whose values are whole numbers under that one scale."""

_ONE = (0x00, 0x3C)
"""The bytes of 1.0 in binary16."""


class BlockFault(Exception):
    """A block that the format cannot hold; `row` and `block` (of the row) count from the first that was given."""

    def __init__(self, row: int, block: int, message: str) -> None:
        self.row = row
        self.block = block
        self.message = message


def block_words(kind: StoredType, format: str, blocks: NDArray[np.uint8]) -> Words:
    """Blocks [rows, blocks of a row, block bytes] of type `kind` as words of one of the formats it reaches.

    Raises BlockFault for the first block that the format cannot hold.
    """
    target = get_format(format)
    if isinstance(target, GroupedFormat):
        words, group = _grouped_words(kind, target, blocks), target.group
    elif isinstance(target, Nvfp4Format):
        words, group = _nvfp4_words(blocks), target.group
    else:
        return Words(blocks.reshape(len(blocks), -1))
    for fault in target.faults(words, limit=1).first:
        column = (fault.column or 0) * (group if fault.part == "scale" else 1)
        raise BlockFault(fault.row, column // kind.block_values, fault.message)
    return words


def _grouped_words(kind: StoredType, target: GroupedFormat, blocks: NDArray[np.uint8]) -> Words:
    import numpy as np

    from ninfer_convert.kernels.blocks import decode_blocks

    at = slice(_SCALE_AT[kind.name], _SCALE_AT[kind.name] + 2)
    scales = np.ascontiguousarray(blocks[:, :, at]).view("<u2")[:, :, 0]
    # Under the scale one a block decodes to its codes.
    blocks = blocks.copy()
    blocks[:, :, at] = _ONE
    codes = decode_blocks(kind.ggml or 0, blocks.reshape(len(blocks), -1)).astype(np.int8)
    if target.group > kind.block_values:
        scales = _shared_scales(codes.reshape(*scales.shape, kind.block_values), scales)
    return Words(codes, np.repeat(scales, max(1, kind.block_values // target.group), axis=1))


def _shared_scales(codes: NDArray[np.int8], scales: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """One scale for each two blocks of a row, the last alone where their number is odd.

    Two blocks share a scale if it is the same, or if one of them has no code but zero.
    """
    import numpy as np

    used = np.any(codes != 0, axis=2)
    pairs = scales.shape[1] // 2
    first, second = scales[:, : 2 * pairs : 2], scales[:, 1::2]
    conflicts = used[:, : 2 * pairs : 2] & used[:, 1::2] & (first != second)
    for row, pair in np.argwhere(conflicts)[:1].tolist():
        words = f"0x{first[row, pair]:04X} and 0x{second[row, pair]:04X}"
        raise BlockFault(row, 2 * pair, f"the scale words {words} of it and the next block, in one group")
    shared: NDArray[np.uint16] = scales[:, ::2].copy()
    shared[:, :pairs] = np.where(used[:, : 2 * pairs : 2], first, second)
    return shared


def _nvfp4_words(blocks: NDArray[np.uint8]) -> Words:
    """The scale bytes as they are; of every eight bytes the low nibbles are the first eight codes."""
    import numpy as np

    rows = len(blocks)
    nibbles = blocks[:, :, 4:].reshape(rows, -1, 8)
    codes = np.concatenate([nibbles & 15, nibbles >> 4], axis=2)
    return Words(codes.reshape(rows, -1), blocks[:, :, :4].reshape(rows, -1), np.ones(rows, np.float32))
