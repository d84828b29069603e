"""`ninfer-convert plan`: everything that convert would decide, shown; nothing written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ninfer_convert.cli import render
from ninfer_convert.cli.options import debug_option, destination, json_option, planning_options, refuse_lost
from ninfer_convert.strict_json import collector_paused

if TYPE_CHECKING:
    from ninfer_convert.cli.output import Output
    from ninfer_convert.container import FilePlan
    from ninfer_convert.pipeline.planned import Plan, Shaping
    from ninfer_convert.pipeline.run import Running
    from ninfer_convert.pipeline.summary import StoredPiece, Summary
    from ninfer_convert.recipe import Alias, Parent, Piece, Rule, Use


@click.command()
@planning_options
@json_option
@debug_option
@click.pass_obj
@collector_paused()
def command(output: Output, input: str, recipe: str, shaping: Shaping, out: str | None, running: Running) -> None:
    """Show what convert would do with INPUT, from its headers: each parameter's format, method, shape, bytes and the
    rule that decided, totals, file sizes to the byte, memory.

    \b
    ninfer-convert plan model.safetensors -r q4
    ninfer-convert plan model/ -r q4 --set '*.down_proj.weight:format=q6_g64_fp16'
    """
    from ninfer_convert.pipeline.plan import make_plan

    refuse_lost(out)
    plan = make_plan(input, recipe, shaping)
    show(output, plan, destination(out, plan.checkpoint.default_name), running)


def show(output: Output, plan: Plan, path: Path, running: Running) -> None:
    """Print a plan for an artifact at `path`."""
    from ninfer_convert.pipeline.run import check_memory, expected_memory, file_plan
    from ninfer_convert.pipeline.summary import summarise

    check_memory(plan, running)
    files = file_plan(plan, path, running)
    summary = summarise(plan, files.file_bytes)
    memory = expected_memory(plan, running)
    output.warn(plan.warnings)
    if output.json:
        output.document(_document(plan, summary, named_files(path, files), memory))
    else:
        output.text(_lines(output, plan, summary, named_files(path, files), running, memory))


def named_files(path: Path, files: FilePlan) -> list[tuple[str, int]]:
    """(path, size) of every file, the entry first."""
    names = [file.path or path.name for file in files.files]
    return [(str(path.with_name(name)), size) for name, size in zip(names, files.file_bytes, strict=True)]


def _lines(
    output: Output, plan: Plan, summary: Summary, files: list[tuple[str, int]], running: Running, memory: int
) -> Iterator[str]:
    header = ("parameter", "stored", "format", "method", "shape", "bytes", "decided by")
    yield from render.table(header, map(_row, summary.pieces), right=["bytes"], heading=output.heading)
    yield ""
    yield from render.shares_table(summary.formats, ("format", "objects", "weights"), output.heading)
    yield ""
    yield from render.facts(_totals(plan, summary, running, memory))
    yield ""
    rows = [(path, f"{size:,}") for path, size in files]
    yield from render.table(("file", "bytes"), rows, right=["bytes"], heading=output.heading)


def _row(piece: StoredPiece) -> tuple[str, ...]:
    selection = piece.selection
    name = f"{piece.parameter} [{_few_runs(selection)}]" if selection else piece.parameter
    format, method, shape, place = _decided(piece.member.piece, piece.lossy)
    return name, piece.stored, format, method, shape, f"{piece.bytes:,}", place


@cache
def _decided(piece: Piece, lossy: bool) -> tuple[str, str, str, str]:
    """Format, method, shape, and where that is said: the same of all parameters that are alike."""
    return (
        f"{piece.format} (no {piece.instead_of})" if piece.instead_of else piece.format,
        f"{piece.method.name} (lossy)" if lossy else piece.method.name,
        render.shape(piece.shape),
        _place(piece.rule),
    )


@cache
def _few_runs(selection: str) -> str:
    """`rows 0:256+512:768 and 22 more`; interleaved heads are many runs of rows, which --json tells all."""
    first, *others = selection.split("+")
    if len(others) <= 2:
        return selection
    return f"{first}+{others[0]} and {len(others) - 1} more"


@cache
def _place(rule: Rule | None) -> str:
    """Where the rule stands, the file by its name; "-": kept as the architecture or the stored type says."""
    if rule is None:
        return "-"
    place = rule.place
    return f"{_file_name(place.path)}:{place.line}" if place.in_file else place.path


def _file_name(path: str) -> str:
    """A recipe's name without its folder, but for a part of the built-in ones, which is called by both."""
    from ninfer_convert.recipe.loading import PARTS

    return path if os.path.dirname(path) == PARTS else os.path.basename(path)


def _totals(plan: Plan, summary: Summary, running: Running, memory: int) -> Iterator[tuple[str, str]]:
    resolution = plan.resolution
    yield "recipe", f"{plan.recipe.name}, architecture {plan.model.architecture}"
    if plan.model.unbindable:
        yield "engine", plan.model.unbindable
    yield "weights", f"{summary.elements:,} in {render.plural(len(plan.directory.bindings), 'parameter')}"
    yield "size", f"{render.size(plan.source_bytes)} -> {render.size(summary.artifact_bytes)}"
    yield "bits per weight", f"{summary.stored_bits:.3f} stored, {summary.nominal_bits:.3f} nominal"
    yield "untouched", f"{100 * resolution.untouched:.1f} % of the weights, which no assign speaks of"
    lossy = sum(piece.lossy for piece in summary.pieces)
    if lossy:
        yield "lossy", f"{render.plural(lossy, 'cast')} to a direct format that may round, marked above"
    for stored, count in resolution.defaults_applied.items():
        place = plan.recipe.places[f"defaults.{stored}"]
        kept = f"{stored} as {plan.recipe.defaults[stored]}: {render.plural(count, 'parameter')}"
        yield "default", f"{kept} ({_file_name(place.path)}:{place.line})"
    for format, count in resolution.misfits.items():
        yield "misfit", f"{render.plural(count, 'object')} that {format} does not fit, marked above"
    for rule, groups in _by_rule(resolution.groups):
        members = sum(len(group.members) for group in groups)
        of = f"{render.plural(len(groups), 'object')} of {render.plural(members, 'parameter')}"
        yield "group", f"{of} ({_place(rule) if rule else 'architecture'})"
    for rule, aliases in _by_rule(resolution.shares):
        more = f", and {len(aliases) - 1:,} more" if len(aliases) > 1 else ""
        yield "share", f"{aliases[0].name} is {aliases[0].target}{more} ({_place(rule)})"
    for rule, uses in _by_rule(resolution.uses):
        policies = ", ".join(dict.fromkeys(use.activation_policy for use in uses))
        yield "use", f"{render.plural(len(uses), 'input')}, {policies} ({_place(rule) if rule else 'architecture'})"
    if resolution.locked:
        yield "locked", f"{render.plural(len(resolution.locked), 'parameter')} that a wildcard passed by"
    if summary.resource_bytes:
        yield "resources", f"{len(plan.model.resources)}, {render.exact_size(summary.resource_bytes)}"
    for skip in resolution.skipped:
        yield "skipped", f"{skip.name}: {skip.reason} ({_place(skip.rule)})"
    yield "memory", f"about {render.size(memory)} at most, with {render.plural(running.jobs, 'thread')}"


_Ruled = TypeVar("_Ruled", "Parent", "Alias", "Use")


def _by_rule(decisions: Iterable[_Ruled]) -> Iterator[tuple[Rule | None, list[_Ruled]]]:
    """The decisions of each table, in the order of their first ones."""
    found: dict[Rule | None, list[_Ruled]] = {}
    for decision in decisions:
        found.setdefault(decision.rule, []).append(decision)
    return iter(found.items())


def _document(plan: Plan, summary: Summary, files: list[tuple[str, int]], memory: int) -> dict[str, Any]:
    resolution = plan.resolution
    return {
        "input": plan.checkpoint.shown,
        "recipe": plan.recipe.name,
        "architecture": plan.model.architecture,
        "unbindable": plan.model.unbindable,
        "parameters": [
            {
                "name": piece.parameter,
                "selection": piece.selection,
                "stored": piece.stored,
                "object": piece.object,
                "format": piece.format,
                "layout": piece.layout,
                "instead_of": piece.instead_of,
                "method": piece.method,
                "shape": piece.shape,
                "bytes": piece.bytes,
                "lossy": piece.lossy,
                "rule": _rule(piece.rule),
            }
            for piece in summary.pieces
        ],
        "formats": render.shares_json(summary.formats, "objects"),
        "resources": [
            {"component": resource.component, "role": resource.role, "bytes": len(resource.content)}
            for resource in plan.model.resources
        ],
        "groups": [
            {"object": planned.record.id, "members": list(group.members), "rule": _rule(group.rule)}
            for group, planned in zip(resolution.groups, plan.tensors, strict=False)
        ],
        "shares": [
            {"parameter": alias.name, "with": alias.target, "rule": _rule(alias.rule)} for alias in resolution.shares
        ],
        "uses": [
            {
                "parameter": use.parameter,
                "input": use.input,
                "activation_policy": use.activation_policy,
                "auxiliaries": dict(use.auxiliaries),
                "rule": _rule(use.rule),
            }
            for use in resolution.uses
        ],
        "skipped": [
            {"name": skip.name, "reason": skip.reason, "rule": _rule(skip.rule)} for skip in resolution.skipped
        ],
        "defaults": dict(resolution.defaults_applied),
        "misfits": dict(resolution.misfits),
        "locked": list(resolution.locked),
        "untouched": resolution.untouched,
        "elements": summary.elements,
        "bits_per_weight": {"stored": summary.stored_bits, "nominal": summary.nominal_bits},
        "source_bytes": plan.source_bytes,
        "payload_bytes": plan.payload_bytes,
        "artifact_bytes": summary.artifact_bytes,
        "files": [{"path": path, "bytes": size} for path, size in files],
        "memory_bytes": memory,
    }


def _rule(rule: Rule | None) -> dict[str, Any] | None:
    if rule is None:
        return None
    place = rule.place
    return {"file": place.path, "line": place.line, "column": place.column, "select": rule.select}
