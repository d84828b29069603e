"""The closed registry of the thirty persistent numeric formats (formats 1).

A format says what a stored word means: facts, validity, exact decode. It knows no bytes (`layouts`), no files
and no way to choose words (`methods`).
"""

from __future__ import annotations

from types import MappingProxyType

from ninfer_convert.errors import look_up
from ninfer_convert.formats.base import Format, WordFault, WordFaults
from ninfer_convert.formats.direct import DIRECT_FORMATS, DirectFormat
from ninfer_convert.formats.gguf import GGUF_FORMATS, GgufFormat
from ninfer_convert.formats.grouped import GROUPED_FORMATS, GroupedFormat
from ninfer_convert.formats.nvfp4 import NVFP4, Nvfp4Format
from ninfer_convert.formats.row_scaled import ROW_SCALED_FORMATS, RowScaledFormat

_ALL: tuple[Format, ...] = (*DIRECT_FORMATS, *GROUPED_FORMATS, NVFP4, *ROW_SCALED_FORMATS, *GGUF_FORMATS)

FORMATS = MappingProxyType({format.name: format for format in _ALL})
"""Every format by its canonical name, in the order of formats section 1."""

if len(FORMATS) != len(_ALL):
    raise RuntimeError("two formats share a name")


def get_format(name: str) -> Format:
    """The format called `name`; raises LookupError with the nearest names."""
    return look_up("format", name, FORMATS)


__all__ = [
    "FORMATS",
    "DirectFormat",
    "Format",
    "GgufFormat",
    "GroupedFormat",
    "Nvfp4Format",
    "RowScaledFormat",
    "WordFault",
    "WordFaults",
    "get_format",
]
