"""An artifact written back as safetensors or GGUF: whole, in bounded memory, or not at all."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_convert.container.destination import refuse_inputs
from ninfer_convert.errors import ArtifactError, Problem, UsageError, printable, unknown
from ninfer_convert.pipeline.export import folder, gguf, safetensors
from ninfer_convert.pipeline.export.files import File, write_files
from ninfer_convert.pipeline.export.naming import named
from ninfer_convert.pipeline.export.staging import settle_leftovers, staged, standing
from ninfer_convert.pipeline.objects import COLUMNS
from ninfer_convert.pipeline.stored import open_artifact
from ninfer_convert.sources.labels import counted

if TYPE_CHECKING:
    from ninfer_convert.container import Directory
    from ninfer_convert.pipeline.export.naming import Named
    from ninfer_convert.pipeline.progress import Report
    from ninfer_convert.pipeline.stored import OpenArtifact
    from ninfer_convert.sources import Checkpoint

SHARD_BYTES = 5 * 10**9
"""Bytes of tensors above which a folder's safetensors are cut into shards, where nothing else is said."""


@dataclass(frozen=True)
class Exported:
    """What an export has written: (path, size) of each file.

    `parameters` counts what was exported, tensors of a checkpoint where names are those of one; `decoded` those that
    are written in another type than they are kept in, while the others keep their words. `left_out` names the
    resources that such an export has no place for.
    """

    files: tuple[tuple[str, int], ...]
    parameters: int
    decoded: int
    left_out: tuple[str, ...]
    seconds: float
    warnings: tuple[Problem, ...]


@dataclass(frozen=True)
class _Plan:
    """The files of an export, the one that makes the others count last, and the folder that they go to."""

    folder: str
    files: tuple[File, ...]
    decoded: int = 0
    left_out: tuple[str, ...] = ()
    owned: bool = False
    """Whether the folder as a whole is the export's (`staged`)."""


def export(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    dtype: str | None = None,
    max_shard_bytes: int | None = None,
    like: str | os.PathLike[str] | None = None,
    force: bool = False,
    jobs: int = 1,
    progress: Report | None = None,
) -> Exported:
    """Write the artifact at `path` back, on `jobs` threads.

    An `output` that ends in .gguf becomes a GGUF, one in .safetensors a file of the tensors alone; anything else is a
    folder, made or filled: safetensors, above `max_shard_bytes` bytes in shards with an index, config.json, resources.
    In safetensors parameters of direct formats keep their words, the others are decoded to `dtype`: fp32 (the usual)
    or bf16. In GGUF all keep their words. Tensors have the artifact's logical names and shapes; with the checkpoint
    `like` they are those of that checkpoint, each put together again of the parameters that are parts of it, and so is
    the config.json or a GGUF's metadata.

    What stands there is replaced with `force` alone; whatever is raised leaves it as it was. What killed exports to
    this `output` left is cleared up first, forced or not (`staging`). `progress` is called after every piece, from any
    thread, one call at a time. Raises UsageError for options that have no meaning for such an output, OutputError for
    the destination and for what the format cannot hold, ArtifactError and SourceError for what cannot be read,
    NumericError for a value beyond bf16.
    """
    start = time.monotonic()
    with open_artifact(path) as artifact:
        _refuse_unreadable(artifact)
        exported = named(artifact, like)
        plan = _plan(artifact, exported, os.fspath(output), dtype, max_shard_bytes)
        names = [file.name for file in plan.files]
        settle_leftovers(plan.folder, names, plan.owned)
        refuse_inputs(standing(plan.folder, names, plan.owned), _read(artifact, exported.like))
        needed = sum(file.size for file in plan.files)
        with staged(plan.folder, names, needed, owned=plan.owned, force=force) as temporary:
            write_files(plan.files, temporary, jobs, progress)
        return Exported(
            files=tuple((os.path.join(plan.folder, file.name), file.size) for file in plan.files),
            parameters=len(exported.tensors),
            decoded=plan.decoded,
            left_out=plan.left_out,
            seconds=time.monotonic() - start,
            warnings=(*exported.warnings, *_warnings(artifact.directory, exported.ordered)),
        )


def _plan(
    artifact: OpenArtifact,
    exported: Named,
    output: str,
    dtype: str | None,
    max_shard_bytes: int | None,
) -> _Plan:
    beside, name = os.path.split(output)
    stem, suffix = os.path.splitext(name)
    roles = tuple(role for component in artifact.directory.components.values() for role in component.resources)
    if suffix == gguf.SUFFIX and not os.path.isdir(output):
        _refuse_option("dtype", dtype, "a GGUF keeps all words as they are")
        _refuse_option("max_shard_bytes", max_shard_bytes, "a GGUF is written as one file")
        file = gguf.plan_file(exported.tensors, artifact, name, exported.like)
        return _Plan(beside, (file,), left_out=tuple(role for role in roles if role != gguf.METADATA_ROLE))
    decoded = sum(map(safetensors.is_decoded, exported.tensors))
    id, dtype = artifact.artifact.artifact_id, dtype or "fp32"
    if dtype not in safetensors.DTYPES:
        raise UsageError(Problem("unknown-dtype", unknown("dtype", dtype, safetensors.DTYPES)))
    if suffix == safetensors.SUFFIX and not os.path.isdir(output):
        _refuse_option("max_shard_bytes", max_shard_bytes, "one file is asked for; name a folder to have shards")
        return _Plan(beside, safetensors.plan_files(exported.tensors, id, stem, dtype, None), decoded, roles)
    limit = SHARD_BYTES if max_shard_bytes is None else max_shard_bytes
    weights = safetensors.plan_files(exported.tensors, id, folder.STEM, dtype, limit)
    others = folder.companions(artifact.artifact, [file.name for file in weights], exported.like)
    return _Plan(os.path.dirname(os.path.join(output, "")), (*others, *weights), decoded, owned=True)


def _refuse_option(name: str, value: object, reason: str) -> None:
    if value is not None:
        raise UsageError(Problem("no-such-option", f"{name} has no meaning here: {reason}"))


def _refuse_unreadable(artifact: OpenArtifact) -> None:
    """ArtifactError with every part that is missing or broken, and every object of an unknown format."""
    problems = [problem for broken in artifact.artifact.broken_parts().values() for problem in broken]
    for parameter in artifact.values():
        for span in parameter.spans:
            try:
                artifact.artifact.resolve(span.object)
            except ArtifactError as error:
                problems += error.problems
    if problems:
        raise ArtifactError(dict.fromkeys(problems))


def _read(artifact: OpenArtifact, like: Checkpoint | None) -> dict[Path, str]:
    """Every file that was read, with what it is of."""
    entry = Path(artifact.artifact.path)
    parts = (entry.with_name(file.path) for file in artifact.directory.files if file.path)
    return {
        **(dict.fromkeys(like.read, "the checkpoint") if like is not None else {}),
        **dict.fromkeys((entry, *parts), "the artifact"),
    }


def _warnings(directory: Directory, ordered: Collection[str]) -> Iterator[Problem]:
    """What the weights are used with, which neither format has a place for; columns are put back where `ordered`."""
    lost = Counter(
        role for use in directory.uses for role in use.auxiliaries if role != COLUMNS or use.parameter not in ordered
    )
    for role, count in sorted(lost.items()):
        message = (
            f"{printable(role)} of {counted(count, 'use')} is left out; the weights are written as they are stored"
        )
        yield Problem("auxiliary-left-out", message)
