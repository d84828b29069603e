"""What the search of one group works on."""

from __future__ import annotations

from typing import Any, NamedTuple


class Grid(NamedTuple):
    """What codes and scales may be: the code interval as float32, and whether scales may be negative."""

    qmin: Any
    qmax: Any
    negative: bool


class Reach(NamedTuple):
    """Words of the largest magnitudes among a group's positive and negative values, 0 where there are none."""

    above: Any
    below: Any


class Candidates(NamedTuple):
    """Scale words in the order that decides ties, and room to judge them.

    `errors` are words of float32, which compare as their numbers do, NaN beyond all; `sums` are float64.
    """

    words: Any
    scales: Any
    inverses: Any
    errors: Any
    sums: Any
