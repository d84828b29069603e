"""The closed registry of conversion methods: from a source's values to the words of a format (methods.md).

Names, formats and parameters are plain facts; numpy and the kernels are loaded by the first encoder.
"""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType

from ninfer_convert.formats import get_format
from ninfer_convert.methods.base import Encode, Job, Method
from ninfer_convert.methods.cast_direct import CAST_DIRECT
from ninfer_convert.methods.fp8_row_maxabs import FP8_ROW_MAXABS
from ninfer_convert.methods.grouped_absmax import GROUPED_ABSMAX
from ninfer_convert.methods.grouped_search import GROUPED_SEARCH
from ninfer_convert.methods.import_encoded import IMPORT_ENCODED

_ALL: tuple[Method, ...] = (CAST_DIRECT, GROUPED_ABSMAX, GROUPED_SEARCH, FP8_ROW_MAXABS, IMPORT_ENCODED)

METHODS = MappingProxyType({method.name: method for method in _ALL})
"""Every method by name; the first that makes a format from values is the usual one for it."""

if len(METHODS) != len(_ALL):
    raise RuntimeError("two methods share a name")


def usual_method(format: str, exact: Collection[str]) -> Method | None:
    """The method of `format` where a recipe names none (recipes.md, Deciding); None where no method makes it.

    `exact` are the formats that the source's stored words reach without decoding (`Source.exact`).
    """
    if format in exact and get_format(format).category != "direct":
        return IMPORT_ENCODED
    return next((method for method in _ALL if format in method.formats and method is not IMPORT_ENCODED), None)


__all__ = ["METHODS", "Encode", "Job", "Method", "usual_method"]
