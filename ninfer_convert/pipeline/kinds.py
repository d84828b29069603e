"""An artifact's parameters as its owner thinks of them: those that are alike in every layer as one kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ninfer_convert.natural import NUMBER
from ninfer_convert.pipeline.bound import Extent, extents, logical_shape
from ninfer_convert.policies import POLICIES

if TYPE_CHECKING:
    from ninfer_convert.container import Directory, Use
    from ninfer_convert.values import Shape


class _Traits(NamedTuple):
    """What parameters of a kind have in common; `pattern` is their name with `*` for each number."""

    pattern: str
    formats: tuple[str, ...]
    shape: Shape
    parent: str
    uses: str


@dataclass(frozen=True)
class Kind:
    """Parameters whose names differ in numbers alone, and that are stored and used alike.

    `names` is a recipe's glob for them. `bytes` are theirs of the objects that they are in. `parent` names the
    parameters whose rows make up one object, in order, "" where a parameter is alone in its own. `uses` are the inputs
    that a parameter is multiplied with, and what they allow beyond the least.
    """

    names: str
    count: int
    formats: tuple[str, ...]
    shape: Shape
    bytes: int
    parent: str
    uses: str


def kinds(directory: Directory) -> tuple[Kind, ...]:
    """The kinds of parameters, in the order in which the first of each is bound."""
    bound = {name: tuple(extents(directory, binding)) for name, binding in directory.bindings.items()}
    parents = _parents(bound)
    uses = {name: _uses(of_one) for name, of_one in groupby(directory.uses, key=lambda use: use.parameter)}
    found: dict[_Traits, list[str]] = {}
    for name, parts in bound.items():
        traits = _Traits(
            pattern(name),
            (parts[0][0].format,) if len(parts) == 1 else tuple(dict.fromkeys(each.format for each, _, _ in parts)),
            logical_shape(directory, name, parts),
            parents.get(parts[0][0].id, ""),
            uses.get(name, ""),
        )
        found.setdefault(traits, []).append(name)
    variants: dict[str, int] = {}
    for traits in found:
        variants[traits.pattern] = variants.get(traits.pattern, 0) + 1
    return tuple(
        Kind(
            traits.pattern if variants[traits.pattern] == 1 else _numbered(traits.pattern, names),
            len(names),
            traits.formats,
            traits.shape,
            sum(_share(extent) for name in names for extent in bound[name]),
            traits.parent,
            traits.uses,
        )
        for traits, names in found.items()
    )


def pattern(name: str) -> str:
    """`text/layers/*/mlp/up` for `text/layers/3/mlp/up`."""
    return NUMBER.sub("*", name)


def _parents(bound: Mapping[str, Sequence[Extent]]) -> dict[str, str]:
    """What is to be said of each object: the parameters whose rows it holds, where there are several."""
    members: dict[str, list[tuple[int, str]]] = {}
    for name, parts in bound.items():
        for object, begin, _ in parts:
            members.setdefault(object.id, []).append((begin, name))
    shared = {id: inside for id, inside in members.items() if len(inside) > 1}
    return {id: _joined(tuple(pattern(name) for _, name in sorted(inside))) for id, inside in shared.items()}


@cache
def _joined(patterns: tuple[str, ...]) -> str:
    """`attention/query + key`; `moe/experts/*/gate + up, 256 of each`."""
    distinct = tuple(dict.fromkeys(patterns))
    common = _folder(distinct[0])
    while not all(each.startswith(common) for each in distinct):
        common = _folder(common[:-1])
    text = " + ".join(each.removeprefix(common) for each in distinct)
    return text if len(distinct) == len(patterns) else f"{text}, {len(patterns) // len(distinct)} of each"


def _folder(name: str) -> str:
    return name[: 1 + max(name.rfind("/"), name.rfind("."))]


def _uses(uses: Iterable[Use]) -> str:
    return "; ".join(_use(pattern(use.input), use.activation_policy, tuple(use.auxiliaries)) for use in uses)


@cache
def _use(input: str, policy: str | None, auxiliaries: tuple[str, ...]) -> str:
    """An input's name, with what it allows where that is more than the least."""
    allowed = () if policy in (None, POLICIES[0]) else (policy,)
    return ", ".join((input, *filter(None, allowed), *auxiliaries))


def _share(extent: Extent) -> int:
    object, begin, end = extent
    return object.bytes * end // object.elements - object.bytes * begin // object.elements


def _numbered(pattern: str, names: Sequence[str]) -> str:
    """The glob with the first number said, since other parameters of the pattern are of another kind."""
    numbers = sorted({int(found[0]) for name in names if (found := NUMBER.search(name))})
    return pattern.replace("*", f"{{{','.join(_runs(numbers))}}}" if len(numbers) > 1 else str(numbers[0]), 1)


def _runs(numbers: Sequence[int]) -> Iterator[str]:
    """`0`, `2`, `4..9` for 0, 2, 4, 5, 6, 7, 8, 9."""
    for _, run in groupby(enumerate(numbers), key=lambda item: item[1] - item[0]):
        first, *rest = (number for _, number in run)
        yield f"{first}..{rest[-1]}" if rest else str(first)
