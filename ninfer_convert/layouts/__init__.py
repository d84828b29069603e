"""The closed registry of the six tensor layouts (layouts.md): words to bytes and back, by rows.

A layout knows no files and no way to choose words; that a word is valid is its format's business. Geometry is
plain Python, numpy is loaded when bytes are made or read.
"""

from __future__ import annotations

from types import MappingProxyType

from ninfer_convert.errors import look_up
from ninfer_convert.layouts.base import TENSOR_ALIGNMENT, Layout, PaddingFault, Read, Segment, Tensor
from ninfer_convert.layouts.block_scale import BLOCK_SCALE
from ninfer_convert.layouts.contiguous import CONTIGUOUS
from ninfer_convert.layouts.gguf_blocks import GGUF_BLOCKS
from ninfer_convert.layouts.row_interleaved import ROW_INTERLEAVED
from ninfer_convert.layouts.row_scale import ROW_SCALE
from ninfer_convert.layouts.row_split import ROW_SPLIT

RESOURCE_ENCODING = "raw_bytes_v1"
"""How resources are stored: verbatim, non-empty, unaligned. No tensor layout."""

_ALL: tuple[Layout, ...] = (CONTIGUOUS, ROW_SPLIT, BLOCK_SCALE, ROW_SCALE, ROW_INTERLEAVED, GGUF_BLOCKS)

LAYOUTS = MappingProxyType({layout.name: layout for layout in _ALL})
"""Every tensor layout by name, in the order of layouts.md."""

_USUAL = {format: layout for layout in _ALL for format in layout.formats}

if len(LAYOUTS) != len(_ALL) or len(_USUAL) != sum(len(layout.formats) for layout in _ALL):
    raise RuntimeError("two layouts share a name or a format")


def get_layout(name: str) -> Layout:
    """The layout called `name`; raises LookupError with the nearest names."""
    return look_up("layout", name, LAYOUTS)


def usual_layout(format_name: str) -> Layout:
    """The one layout that stores the format of this name; raises LookupError with the nearest names."""
    return look_up("format", format_name, _USUAL)


__all__ = [
    "LAYOUTS",
    "RESOURCE_ENCODING",
    "TENSOR_ALIGNMENT",
    "Layout",
    "PaddingFault",
    "Read",
    "Segment",
    "Tensor",
    "get_layout",
    "usual_layout",
]
