"""Parameters whose columns are stored in another order than their own, which their uses tell (qwen35.md 8.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ninfer_convert.errors import ArtifactError, Problem, printable
from ninfer_convert.pipeline.objects import COLUMNS

if TYPE_CHECKING:
    from ninfer_convert.container import Use
    from ninfer_convert.pipeline.stored import OpenArtifact

Order = NDArray[np.integer[Any]]


def column_orders(artifact: OpenArtifact) -> dict[str, Order]:
    """For each such parameter its own column that each stored one is: int32 [columns].

    Raises ArtifactError where its uses tell of several orders, or of none.
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
