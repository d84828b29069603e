"""Tables meet a checkpoint: every row finds its tensor, every tensor its row; all that does not fit is told at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer_convert.architectures.base import Parameter
from ninfer_convert.errors import Problem, nearest, printable
from ninfer_convert.values import ImportanceEntry

if TYPE_CHECKING:
    from ninfer_convert.architectures.base import Request
    from ninfer_convert.architectures.table import Placed, Row
    from ninfer_convert.sources.base import Checkpoint
    from ninfer_convert.values import Shape, Source

PassedBy = Callable[[str], "str | None"]
"""Why a tensor that no row names is passed by, None for one that must not be there."""

_SHOWN = 3
_SAMPLES = 8
_HINTS_AMONG = 100
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class Filling:
    """Parameters and candidate groups in the order of their tables; where there are `problems`, not all of them."""

    parameters: tuple[Parameter, ...]
    groups: tuple[tuple[str, ...], ...]
    passed_by: Mapping[str, tuple[str, ...]]
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]
    """One line for each reason for which tensors are passed by."""


def fill(
    places: Iterable[Placed],
    sources: Mapping[str, Source],
    checkpoint: Checkpoint,
    prefix: str,
    passed_by: PassedBy,
    request: Request,
) -> Filling:
    """Give each row of the blocks its tensor; `prefix` is what most names of tensors should begin with.

    Tensors of another shape become problems, and so do, but for an input beside the main one, missing tensors and those
    that neither a row nor `passed_by` nor the recipe's skips know.
    """
    parameters: list[Parameter] = []
    groups: list[tuple[str, ...]] = []
    expected: dict[str, Shape] = {}
    for place in places:
        for row in place.block.rows:
            tensor = place.tensors + row.tensor
            expected[tensor] = row.shape
            source = sources.get(tensor)
            if source is not None and source.shape == row.shape:
                parameters.append(_parameter(place, row, source))
        groups += (tuple(place.names + name for name in group) for group in place.block.groups)
    missing = [tensor for tensor in expected if tensor not in sources]
    surplus: list[str] = []
    passed: dict[str, list[str]] = {}
    for name in sources:
        if name not in expected:
            reason = passed_by(name) or request.skips(name)
            (surplus if reason is None else passed.setdefault(reason, [])).append(name)
    differences = _differences(missing, surplus, prefix, checkpoint, len(expected)) if request.main is None else ()
    problems = (*_wrong_shapes(sources, expected), *differences)
    notes = (Problem("passed-by", _note(reason, names), path=checkpoint.shown) for reason, names in passed.items())
    reasons = {reason: tuple(names) for reason, names in passed.items()}
    return Filling(tuple(parameters), tuple(groups), reasons, problems, tuple(notes))


def tied_head(name: str, tied: bool) -> str | None:
    """Why a head's own tensor is passed by where the embedding is its weight too."""
    own = name in ("lm_head.weight", "output.weight")
    return "the head reads the embedding (tie_word_embeddings)" if tied and own else None


def _note(reason: str, names: Sequence[str]) -> str:
    shown = ", ".join(map(printable, names[:_SHOWN]))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    tensors = "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"
    return f"{tensors} passed by, {reason}: {shown}{more}"


def _parameter(place: Placed, row: Row, source: Source) -> Parameter:
    return Parameter(
        place.names + row.name,
        row.view(source) if row.view else source,
        row.direct,
        row.locked,
        (place.names + row.input,) if row.input else (),
        ImportanceEntry(place.gguf + row.gguf, row.expert, row.columns) if row.gguf else None,
    )


def _wrong_shapes(sources: Mapping[str, Source], expected: Mapping[str, Shape]) -> Iterator[Problem]:
    for tensor, shape in expected.items():
        source = sources.get(tensor)
        if source is not None and source.shape != shape:
            message = f"{tensor} has the shape {list(source.shape)}, where config.json makes it {list(shape)}"
            yield Problem("wrong-shape", message, path=source.origins[0].file, tensor=tensor)


def _differences(
    missing: Sequence[str], surplus: Sequence[str], prefix: str, checkpoint: Checkpoint, expected: int
) -> Iterator[Problem]:
    """What is missing of the `expected` number and what is too much, tensors under another prefix taken together; and
    where most are missing, that alone."""
    where = checkpoint.shown
    found, renamed = _other_prefix(missing, surplus, prefix)
    if renamed:
        begin = f"begin with '{printable(found)}'" if found else "have no prefix"
        example = next(iter(renamed))
        message = (
            f"the names of {len(renamed)} tensors {begin} where '{prefix}' was expected, as in "
            f'{printable(renamed[example])} for {example}; rename them, or say architecture = "generic"'
        )
        yield Problem("other-prefix", message, path=where, tensor=renamed[example])
    known = set(renamed.values())
    missing = [name for name in missing if name not in renamed]
    surplus = [name for name in surplus if name not in known]
    if 2 * len(missing) > expected:
        config = checkpoint.shown_beside("config.json")
        message = (
            f"lacks {len(missing)} of the {expected} tensors of the model that {config} describes, {missing[0]} the "
            "first: this is another model, or not all of it"
        )
        yield Problem("another-model", message, path=where, tensor=missing[0])
        return
    alike = _Alike(surplus)
    for name in missing:
        close = alike.names(name)
        hint = f"; is it {' or '.join(map(printable, close))}?" if close else ""
        yield Problem("missing-tensor", f"{name} is missing{hint}", path=where, tensor=name)
    for name in surplus:
        message = f"{printable(name)} is no tensor of this model; leave it out with [[skip]]"
        yield Problem("unknown-tensor", message, path=where, tensor=name)


def _other_prefix(missing: Sequence[str], surplus: Sequence[str], prefix: str) -> tuple[str, dict[str, str]]:
    """The prefix that most missing tensors bear in the place of the expected one, and these: expected -> found.

    No tensors where it is not most of them.
    """
    wanted = [name for name in missing if name.startswith(prefix)]
    ends = tuple(name.removeprefix(prefix) for name in wanted[:_SAMPLES])
    candidates = {
        name[: -len(end)] for name in surplus if name.endswith(ends) for end in ends if f".{name}".endswith(f".{end}")
    }
    present = set(surplus)
    best: tuple[str, dict[str, str]] = ("", {})
    for candidate in sorted(candidates):
        pairs = {name: candidate + name.removeprefix(prefix) for name in wanted}
        pairs = {name: found for name, found in pairs.items() if found in present}
        if len(pairs) > len(best[1]):
            best = candidate, pairs
    return best if 2 * len(best[1]) > len(missing) else ("", {})


class _Alike:
    """Names that may stand for another: those with the same numbers in them, where these are few."""

    def __init__(self, names: Collection[str]) -> None:
        self._by_numbers: dict[tuple[str, ...], list[str]] = {}
        for name in names:
            self._by_numbers.setdefault(tuple(_NUMBER.findall(name)), []).append(name)

    def names(self, name: str) -> list[str]:
        """The closest, best first."""
        candidates = self._by_numbers.get(tuple(_NUMBER.findall(name)), [])
        return nearest(name, candidates, 2) if len(candidates) <= _HINTS_AMONG else []
