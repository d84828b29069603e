"""What an engine would make of a plan: not bind it, as a recipe took what it needs, or not compute it (qwen35.md 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ninfer_convert.architectures import Outcome

if TYPE_CHECKING:
    from ninfer_convert.architectures import Model
    from ninfer_convert.errors import Problem
    from ninfer_convert.recipe import Resolution
    from ninfer_convert.values import Shape


def unbound(model: Model, resolution: Resolution, shapes: Mapping[str, Shape]) -> Iterator[Problem]:
    """Parameters that an engine would miss, or find in another shape.

    `shapes` are the logical ones as they are stored. Nothing, for artifacts that no engine binds in any case.
    """
    if model.unbindable is not None:
        return
    for skipped in resolution.skipped:
        message = f"{skipped.name} is left out, but an engine that binds {model.architecture} needs it"
        yield skipped.rule.place.problem("not-bound", message, skipped.name)
    for name, pieces in resolution.decisions.items():
        if shapes[name] != model.by_name[name].shape:
            place = next(piece.places["transpose"] for piece in pieces if piece.transpose)
            message = (
                f"{name} would be {list(shapes[name])}, but an engine binds it as {list(model.by_name[name].shape)}"
            )
            yield place.problem("not-bound", message, name)


def outcome(resolution: Resolution) -> Outcome:
    """What the recipe makes of each parameter, aliases too."""
    formats = {name: tuple(piece.format for piece in pieces) for name, pieces in resolution.decisions.items()}
    places = {
        name: (parent, at) for parent, group in enumerate(resolution.groups) for at, name in enumerate(group.members)
    }
    alone = (name for name, pieces in resolution.decisions.items() if name not in places and len(pieces) == 1)
    places |= {name: (object, 0) for object, name in enumerate(alone, len(resolution.groups))}
    for alias in resolution.shares:
        formats[alias.name] = formats[alias.target]
        if alias.target in places:
            places[alias.name] = places[alias.target]
    return Outcome(formats, places, resolution.uses)
