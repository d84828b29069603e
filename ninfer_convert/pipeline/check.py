"""Is an artifact what a plan would give: by its directory and resources, or by every byte of its payload."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer_convert.container import open_artifact
from ninfer_convert.errors import ArtifactError
from ninfer_convert.pipeline.against import resource_differences, tensor_differences
from ninfer_convert.pipeline.differences import Difference, directory_differences
from ninfer_convert.pipeline.preflight import preflight

if TYPE_CHECKING:
    from ninfer_convert.container import Artifact
    from ninfer_convert.pipeline.planned import Plan
    from ninfer_convert.pipeline.progress import Report


@dataclass(frozen=True)
class CheckReport:
    """In what an artifact is not what a plan gives.

    `full` says that every payload byte was compared, and not only what the directory records of the inputs: the
    digests of recipe files and headers, names, shapes, formats, sizes.
    """

    path: str
    full: bool
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        """Whether no difference was found."""
        return not self.differences


def check(
    path: str | os.PathLike[str],
    plan: Plan,
    *,
    full: bool = False,
    jobs: int = 1,
    progress: Report | None = None,
) -> CheckReport:
    """Compare the artifact at `path` with what carrying out `plan` would give; with `full`, byte by byte.

    A full check converts everything again on `jobs` threads, in bounded memory, and writes nothing; `progress` is
    called after every piece of it, from any thread, one call at a time. What is wrong with the artifact is a
    difference too. Raises SourceError where a file cannot be read, and what a conversion raises for the inputs.
    """
    shown = os.fspath(path)
    try:
        with open_artifact(shown) as artifact:
            differences = tuple(_differences(artifact, plan, full, jobs, progress))
    except ArtifactError as error:
        differences = tuple(Difference(problem.code, str(problem)) for problem in error.problems)
    return CheckReport(shown, full, differences)


def _differences(
    artifact: Artifact, plan: Plan, full: bool, jobs: int, progress: Report | None
) -> Iterator[Difference]:
    for problems in artifact.broken_parts().values():
        yield from (Difference(problem.code, str(problem)) for problem in problems)
    yield from directory_differences(artifact.directory, plan.directory)
    yield from resource_differences(artifact, plan)
    if full:
        preflight(plan)
        yield from tensor_differences(artifact, plan, jobs, progress)
