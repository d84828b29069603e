"""Which bytes of a payload have been written, and whether each was written exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


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
        runs = 0
        for begin, end in _joined(expected):
            if self._end_of.get(begin) != end:
                message = f"[{begin}, {end}) of the payload is not what was written of it"
                raise RuntimeError(f"{message}: the bytes declared, each once")
            runs += 1
        if runs < len(self._end_of):
            raise RuntimeError("more was written than the bytes declared, each once")

    @staticmethod
    def _join(other_of: dict[int, int], own_of: dict[int, int], border: int) -> int:
        """The far border of the run that touches at `border`, which is taken out; `border` itself if none does."""
        if border not in other_of:
            return border
        far = other_of.pop(border)
        del own_of[far]
        return far


def _joined(runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Runs that touch as one."""
    joined: tuple[int, int] | None = None
    for begin, end in runs:
        if joined is not None and joined[1] == begin:
            joined = joined[0], end
            continue
        if joined is not None:
            yield joined
        joined = begin, end
    if joined is not None:
        yield joined
