"""Which bytes of a payload have been written, and whether each was written exactly once."""

from __future__ import annotations

from collections.abc import Iterable


class Coverage:
    """Half-open runs of written bytes; runs that touch are joined, so that few are kept whatever the order."""

    def __init__(self) -> None:
        self._end_of: dict[int, int] = {}
        self._begin_of: dict[int, int] = {}

    def add(self, begin: int, end: int) -> None:
        """Note that [begin, end) is written. Raises RuntimeError where a run begins or ends there already.

        Other overlaps are found by `check`: joining never makes them disappear.
        """
        if begin in self._end_of or end in self._begin_of:
            raise RuntimeError(f"bytes of [{begin}, {end}) are written twice")
        begin = self._join(self._begin_of, self._end_of, begin)
        end = self._join(self._end_of, self._begin_of, end)
        self._end_of[begin] = end
        self._begin_of[end] = begin

    def check(self, expected: Iterable[tuple[int, int]]) -> None:
        """Raise RuntimeError unless exactly the bytes of `expected`, runs in order, were written exactly once."""
        whole = Coverage()
        for begin, end in expected:
            whole.add(begin, end)
        written, declared = sorted(self._end_of.items()), sorted(whole._end_of.items())
        if written != declared:
            first = next((pair for pair in zip(written, declared, strict=False) if pair[0] != pair[1]), None)
            found = f"the first that differs: written {first[0]}, declared {first[1]}" if first else "some are missing"
            raise RuntimeError(f"the bytes written are not those declared, each once; {found}")

    @staticmethod
    def _join(other_of: dict[int, int], own_of: dict[int, int], border: int) -> int:
        """The far border of the run that touches at `border`, which is taken out; `border` itself if none does."""
        if border not in other_of:
            return border
        far = other_of.pop(border)
        del own_of[far]
        return far
