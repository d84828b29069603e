"""The files beside a checkpoint that an artifact keeps verbatim, and what an engine needs them to be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ninfer_convert import strict_json
from ninfer_convert.architectures.base import Resource
from ninfer_convert.architectures.tokens import GENERATION, TOKENIZER, TOKENIZER_CONFIG, token_faults
from ninfer_convert.errors import Problem, printable

if TYPE_CHECKING:
    from ninfer_convert.sources.base import Checkpoint

TEXT_FILES = (TOKENIZER, TOKENIZER_CONFIG, "chat_template.jinja", GENERATION)
"""Roles of the component `text`, which are the names of their files, in the order of the objects."""

Found = tuple[tuple[Resource, ...], tuple[Problem, ...]]


def optional_resources(checkpoint: Checkpoint, given: Sequence[Resource], made: Sequence[Resource] = ()) -> Found:
    """The text files that there are, what else the architecture has `made`, and whatever more is given, in this order.

    One that is given stands in for that of its role. A warning for each that is empty.
    """
    usual = {resource.role: resource for resource in (*_text_files(checkpoint, given), *made)}
    found, warnings = [], []
    for resource in (usual | {resource.role: resource for resource in given}).values():
        if resource.content:
            found.append(resource)
        else:
            message = f"is empty and does not become the resource {printable(resource.role)}"
            warnings.append(Problem("empty-resource", message, path=resource.origin))
    return tuple(found), tuple(warnings)


def text_resources(checkpoint: Checkpoint, given: Sequence[Resource], vocabulary: int) -> Found:
    """All text files, and why an engine would refuse them: absent, empty, unreadable, tokens that do not go together.

    `vocabulary` is the number of rows of the embedding (qwen35.md 1.6, 7.3).
    """
    found = {resource.role: resource for resource in _text_files(checkpoint, given)}
    problems = [
        Problem(
            "missing-resource",
            f"there is no {role}: put it there, or give it with --resource {role}=PATH",
            path=checkpoint.shown_beside(role),
        )
        for role in TEXT_FILES
        if role not in found
    ]
    for resource in given:
        if resource.role not in TEXT_FILES:
            message = (
                f"{printable(resource.role)} is no resource of {resource.component}; it has {', '.join(TEXT_FILES)}"
            )
            problems.append(Problem("unknown-resource", message, path=resource.origin))
    objects: dict[str, Any] = {}
    for role, resource in found.items():
        fault, objects[role] = _read(resource)
        if fault:
            problems.append(Problem("bad-resource", fault, path=resource.origin))
    # Of files that are missing or unreadable nothing is known; what the others say is judged all the same.
    if all(isinstance(objects.get(role), dict) for role in (TOKENIZER, TOKENIZER_CONFIG, GENERATION)):
        faults = token_faults(objects[TOKENIZER], objects[TOKENIZER_CONFIG], objects[GENERATION], vocabulary)
        problems += (Problem("bad-tokens", fault.message, found[fault.file].origin) for fault in faults)
    return tuple(found.values()), tuple(problems)


def _text_files(checkpoint: Checkpoint, given: Sequence[Resource]) -> Iterator[Resource]:
    """In the order of TEXT_FILES, those that there are; one that is given stands in for the file."""
    named = {resource.role: resource for resource in given}
    for role in TEXT_FILES:
        if role in named:
            yield named[role]
        elif (content := checkpoint.beside(role)) is not None:
            yield Resource("text", role, content, checkpoint.shown_beside(role))


def _read(resource: Resource) -> tuple[str, Any]:
    """What is wrong with its text, the end of a sentence that begins with its file; its value where it is JSON."""
    if not resource.content:
        return "is empty", None
    try:
        if not resource.role.endswith(".json"):
            resource.content.decode()
            return "", None
        value = strict_json.parse(resource.content)
    except UnicodeDecodeError as error:
        return f"is not UTF-8 at byte {error.start}", None
    except strict_json.JsonFault as error:
        return str(error), None
    return ("", value) if isinstance(value, dict) else ("is no JSON object", None)
