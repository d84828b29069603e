"""What exported tensors are called: the artifact's logical names, or the names that a checkpoint has for them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ninfer_convert.errors import OutputError, Problem, printable
from ninfer_convert.pipeline.counterparts import pair
from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.labels import counted, some

if TYPE_CHECKING:
    from ninfer_convert.pipeline.stored import OpenArtifact, StoredParameter

Named = tuple[dict[str, "StoredParameter"], tuple[Problem, ...]]


def named(artifact: OpenArtifact, like: str | os.PathLike[str] | None) -> Named:
    """The parameters by the names that they are exported under, and warnings.

    With the checkpoint `like` each has the name of the tensor there that it was made from; of parameters with the same
    data, such as a tied head that the checkpoint does not have, the first counts. Raises OutputError with every
    parameter that has no tensor there, or one of another shape; SourceError where the checkpoint cannot be read.
    """
    if like is None:
        return dict(artifact), ()
    shown = os.fspath(like)
    pairing = pair(artifact, open_checkpoint(shown))
    problems = [
        Problem("no-counterpart", f"{printable(name)}: was made from no tensor of {printable(shown)}", tensor=name)
        for name in pairing.only_in_a
    ]
    found: dict[str, StoredParameter] = {}
    for parameter, counterpart in pairing.pairs:
        first = found.setdefault(counterpart.name, parameter)
        if parameter.shape != counterpart.shape:
            fault = f"has the shape {list(parameter.shape)}, {printable(counterpart.name)} {list(counterpart.shape)}"
        elif parameter.spans != first.spans:
            fault = f"was made from {printable(counterpart.name)}, and so was {printable(first.name)}"
        else:
            continue
        problems.append(Problem("no-counterpart", f"{printable(parameter.name)}: {fault}", tensor=parameter.name))
    if problems:
        raise OutputError(problems)
    missing = pairing.only_in_b
    warning = f"{counted(len(missing), 'weight')} not in the artifact, so not exported: {some(missing)}"
    return found, (Problem("not-in-artifact", warning, path=shown),) if missing else ()
