"""Views of a source: lazy nodes that choose, rearrange or compute its elements, and copy nothing until they are read.

A closed set, whose nodes undo one another (`inverse`). Rows keep encoded words, and so does a reshape that leaves the
rows as they are; columns keep a GGUF's blocks; everything else has values only. Reading any range of elements costs
memory for that range, the rows it touches, and a span of bounded size.
"""

from ninfer_convert.sources.views.base import indices, inverted, numbers, runs_of
from ninfer_convert.sources.views.computed import add, log_neg, neg_exp
from ninfer_convert.sources.views.inverse import inverse
from ninfer_convert.sources.views.rearranged import gather_columns, reshape, transpose
from ninfer_convert.sources.views.rows import gather_rows, merge_rows, take_rows

__all__ = [
    "add",
    "gather_columns",
    "gather_rows",
    "indices",
    "inverse",
    "inverted",
    "log_neg",
    "merge_rows",
    "neg_exp",
    "numbers",
    "reshape",
    "runs_of",
    "take_rows",
    "transpose",
]
