"""How parameters lie in an artifact, other than in the tensors they were made from: an assign may have exchanged their
axes, and blocks of a GGUF keep their columns, as uses tell (recipes.md, Assign; qwen35.md 8.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ninfer_convert.errors import ArtifactError, Problem, printable
from ninfer_convert.pipeline.objects import COLUMNS
from ninfer_convert.sources.views import gather_columns, inverted, runs_of, transpose

if TYPE_CHECKING:
    from ninfer_convert.container import Use
    from ninfer_convert.pipeline.stored import OpenArtifact
    from ninfer_convert.values import Source

Order = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Arrangement:
    """What was done to a tensor's elements: `transposed`, the last two axes; then `columns`, int32 [columns], the own
    column that each stored one is, None where each is in its place.
    """

    transposed: bool = False
    columns: Order | None = None

    def of(self, tensor: Source) -> Source:
        """`tensor` as the parameter lies; IndexError where it has no such axes or columns."""
        source = transpose(tensor) if self.transposed else tensor
        return source if self.columns is None else gather_columns(source, runs_of(self.columns))

    def undone(self, parameter: Source) -> Source:
        """`parameter`, which lies as this says, as its tensor does."""
        source = parameter if self.columns is None else gather_columns(parameter, inverted(self.columns))
        return transpose(source) if self.transposed else source


def column_orders(artifact: OpenArtifact) -> dict[str, Order]:
    """The `columns` of every parameter that has another order than its own.

    Raises ArtifactError where uses tell of several orders, or of none.
    """
    uses: dict[str, list[Use]] = {}
    for use in artifact.directory.uses:
        uses.setdefault(use.parameter, []).append(use)
    found: dict[str, Order] = {}
    for name, own in uses.items():
        orders = {use.auxiliaries.get(COLUMNS) for use in own}
        if orders == {None}:
            continue
        columns = artifact.auxiliary(own[0], COLUMNS).numpy() if len(orders) == 1 else np.empty(0, np.int32)
        if not np.array_equal(np.sort(columns), np.arange(artifact[name].shape[-1])):
            message = f"{printable(name)}: {COLUMNS} of its uses are no order of its columns; verify the artifact"
            raise ArtifactError(Problem("bad-auxiliary", message, tensor=name))
        found[name] = columns
    return found
