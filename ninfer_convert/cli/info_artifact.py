"""What an artifact holds, as its directory says. Metadata and provenance are open: anything may stand in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from ninfer_convert.cli import render
from ninfer_convert.cli.provenance import plain, recorded
from ninfer_convert.container import members
from ninfer_convert.errors import ArtifactError, Problem, printable
from ninfer_convert.pipeline.bound import extents, logical_shape
from ninfer_convert.pipeline.kinds import kinds

if TYPE_CHECKING:
    from ninfer_convert.cli.output import Output
    from ninfer_convert.container import Artifact, Component, Directory, Use
    from ninfer_convert.pipeline.summary import Share

KINDS_SHOWN = 100


def show(output: Output, artifact: Artifact, with_tensors: bool, with_uses: bool) -> None:
    """Print an artifact."""
    output.warn(chain.from_iterable(artifact.broken_parts().values()))
    if output.json:
        output.document(_document(artifact))
    else:
        output.text(_lines(output, artifact, with_tensors, with_uses))


def show_parameter(output: Output, artifact: Artifact, name: str) -> None:
    """Print one parameter: what it is stored as, where that came from, its uses.

    Raises ArtifactError where there is none of that name.
    """
    directory = artifact.directory
    if name not in directory.bindings:
        message = render.no_such("parameter", name, directory.bindings)
        raise ArtifactError(Problem("unknown-parameter", message, path=artifact.path, tensor=name))
    record = _parameter(directory, name)
    if output.json:
        output.document({"parameter": record})
    else:
        output.text(_parameter_lines(output, record))


def _lines(output: Output, artifact: Artifact, with_tensors: bool, with_uses: bool) -> Iterator[str]:
    directory = artifact.directory
    yield output.heading(printable(artifact.path))
    yield from render.facts(_facts(artifact))
    yield ""
    yield from _components(output, directory)
    yield ""
    yield from render.shares_table(_formats(directory), ("format", "objects", "weights"), output.heading)
    yield ""
    yield from _kinds(output, directory)
    resources = directory.resources
    if resources:
        yield ""
        rows = [(each.id, f"{each.offset:,}", f"{each.bytes:,}") for each in resources]
        header = ("resource", "offset", "bytes")
        yield from render.table(header, rows, right=header[1:], heading=output.heading)
    if len(directory.files) > 1:
        yield ""
        rows = [
            (file.path or artifact.path, f"{file.payload_bytes:,}", f"{size:,}")
            for file, size in zip(directory.files, artifact.files.file_bytes, strict=True)
        ]
        header = ("file", "payload", "bytes")
        yield from render.table(header, rows, right=header[1:], heading=output.heading)
    provenance = [*recorded(directory.provenance)]
    if provenance:
        yield ""
        yield output.heading("provenance")
        yield from render.facts(provenance)
    if with_tensors:
        yield ""
        yield from _tensor_table(output, directory)
    if with_uses:
        yield ""
        yield from _use_table(output, directory.uses)


def _facts(artifact: Artifact) -> Iterator[tuple[str, str]]:
    directory = artifact.directory
    size = sum(artifact.files.file_bytes)
    elements = sum(each.elements for each in directory.tensors)
    for key, value in directory.metadata.items():
        yield key, plain(value)
    yield "id", artifact.artifact_id
    yield "size", f"{render.exact_size(size)} in {render.plural(len(directory.files), 'file')}"
    yield "weights", f"{elements:,} in {render.plural(len(directory.bindings), 'parameter')}"
    yield "bits per weight", f"{8 * size / max(elements, 1):.3f}"
    if directory.uses:
        yield "uses", f"{len(directory.uses):,}"


def _components(output: Output, directory: Directory) -> Iterator[str]:
    rows = [(name, *_component(component)) for name, component in directory.components.items()]
    return render.table(("component", "config", "resources", "notes"), rows, heading=output.heading)


def _component(component: Component) -> tuple[str, str, str]:
    notes = []
    if component.target is not None:
        notes.append(f"targets {component.target}")
    if component.proposal is not None:
        rows = component.proposal.rows
        notes.append("proposes every token" if rows is None else f"proposes {rows:,} tokens")
    classes = component.config.get("architectures")
    config = [plain(classes)] if classes else []
    config.append(render.plural(len(component.config), "member"))
    return ", ".join(config), ", ".join(component.resources) or "-", "; ".join(notes)


def _kinds(output: Output, directory: Directory) -> Iterator[str]:
    """The parameters by kind; of an artifact with names that have little in common, the first ones."""
    found = kinds(directory)
    rows = [
        (
            kind.names,
            f"{kind.count:,}",
            " + ".join(kind.formats),
            render.shape(kind.shape),
            f"{kind.bytes:,}",
            kind.parent or "-",
            kind.uses or "-",
        )
        for kind in found[:KINDS_SHOWN]
    ]
    header = ("parameters", "count", "format", "shape", "bytes", "in one object", "used with")
    told = [column for column in range(len(header)) if any(row[column] != "-" for row in rows)]
    yield from render.table(
        [header[column] for column in told],
        [[row[column] for column in told] for row in rows],
        right=("count", "bytes"),
        heading=output.heading,
    )
    if len(found) > KINDS_SHOWN:
        yield f"and {len(found) - KINDS_SHOWN:,} more kinds of parameters; --tensors lists every object"


def _tensor_table(output: Output, directory: Directory) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for name, binding in directory.bindings.items():
        for id in binding.objects:
            names.setdefault(id, []).append(name)
    rows = [
        (
            each.id,
            ", ".join(names.get(each.id, ("-",))),
            each.format,
            each.layout,
            render.shape(each.shape),
            f"{each.offset:,}",
            f"{each.bytes:,}",
        )
        for each in directory.tensors
    ]
    header = ("object", "parameters", "format", "layout", "shape", "offset", "bytes")
    return render.table(header, rows, right=header[5:], heading=output.heading)


def _use_table(output: Output, uses: tuple[Use, ...]) -> Iterator[str]:
    if not uses:
        yield "no uses: it records nothing of the inputs of its parameters"
        return
    rows = [(use.parameter, use.input, use.activation_policy or "-", ", ".join(use.auxiliaries) or "-") for use in uses]
    yield from render.table(("use of", "input", "activations", "auxiliaries"), rows, heading=output.heading)


def _parameter_lines(output: Output, record: Mapping[str, Any]) -> Iterator[str]:
    yield output.heading(printable(record["name"]))
    for part in record["parts"]:
        provenance = part["provenance"] if isinstance(part["provenance"], Mapping) else {}
        selection = ""
        if part["range"] is not None:
            selection = ", elements [{:,}, {:,}) of {}".format(*part["range"], render.shape(part["shape"]))
        yield from render.facts(
            (
                ("object", f"{part['object']}{selection}"),
                ("shape", render.shape(record["shape"])),
                ("format", f"{part['format']} in {part['layout']}"),
                ("size", render.exact_size(part["bytes"])),
                ("offset", f"{part['offset']:,} in the payload"),
                *((key, plain(value)) for key, value in provenance.items()),
            )
        )
    for use in record["uses"]:
        yield from render.facts([("use", plain(use))])


def _parameter(directory: Directory, name: str) -> dict[str, Any]:
    whole = directory.bindings[name].object is not None
    bound = tuple(extents(directory, directory.bindings[name]))
    parts = []
    for object, begin, end in bound:
        parts.append(
            {
                "object": object.id,
                "range": None if whole else [begin, end],
                "shape": object.shape,
                "format": object.format,
                "layout": object.layout,
                "offset": object.offset,
                "bytes": object.bytes,
                "provenance": _inside(directory.provenance, "objects", object.id),
            }
        )
    return {
        "name": name,
        "shape": logical_shape(directory, name, bound),
        "parts": parts,
        "provenance": _inside(directory.provenance, "parameters", name),
        "uses": [
            {"input": use.input, "activation_policy": use.activation_policy, "auxiliaries": list(use.auxiliaries)}
            for use in directory.uses
            if use.parameter == name
        ],
    }


def _formats(directory: Directory) -> tuple[Share, ...]:
    from ninfer_convert.pipeline.summary import format_shares

    return format_shares(directory.objects)


def _document(artifact: Artifact) -> dict[str, Any]:
    """The directory as it stands in the file, and what can be said of it."""
    directory = artifact.directory
    return {
        "kind": "artifact",
        "path": artifact.path,
        "artifact_id": artifact.artifact_id,
        "bytes": sum(artifact.files.file_bytes),
        "file_bytes": artifact.files.file_bytes,
        "payload_bytes": directory.payload_bytes,
        "payload_starts": [artifact.files.payload_start(index) for index in range(len(directory.files))],
        "formats": render.shares_json(_formats(directory), "objects"),
        **members(directory),
    }


def _inside(value: Any, *keys: str) -> Any:
    """The member `keys` lead to, None where there is none."""
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value
