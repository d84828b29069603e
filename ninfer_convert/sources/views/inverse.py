"""What views look at, out of what they show: each node of the closed set is undone by another one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ninfer_convert.sources.views.base import View
from ninfer_convert.sources.views.rows import Rows, merge_rows

if TYPE_CHECKING:
    from ninfer_convert.values import Source


def inverse(root: Source, parts: Iterable[tuple[Source, Source]]) -> Source:
    """`root` again, out of (view of it, data that has the view's elements) of all parts; nothing is read.

    A view is `root` itself, or nodes on top of it; no two are equal. Words are kept as far as nodes and data keep them.
    Raises IndexError where a row is in no view, or in two views.
    """
    levels: dict[int, dict[Source, Source]] = {0: {}}
    for view, data in parts:
        levels.setdefault(_height(view, root), {})[view] = data
    for height in range(max(levels), 0, -1):
        below = levels.setdefault(height - 1, {})
        above: dict[Source, list[tuple[View, Source]]] = {}
        for view, data in levels[height].items():
            assert isinstance(view, View)
            above.setdefault(view.whole, []).append((view, data))
        for whole, shown in above.items():
            rows = [(view.runs, data) for view, data in shown if isinstance(view, Rows)]
            if whole in below or len(shown) > max(len(rows), 1):
                raise IndexError("all rows are there twice")
            first, shows = shown[0]
            below[whole] = merge_rows(whole, rows) if rows else first.undone(shows)
    return levels[0][root]


def _height(view: Source, root: Source) -> int:
    """How many nodes the view is on top of the root."""
    height = 0
    while view is not root:
        assert isinstance(view, View), "a view of another source"
        view, height = view.whole, height + 1
    return height
