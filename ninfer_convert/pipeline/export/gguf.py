"""Exports as GGUF: ggml's own blocks and direct words, under the metadata that the artifact has kept.

`gguf.GGUFWriter` refuses types that it does not know (Q2_0), encodes every value of the metadata anew and keeps
tensors in memory, so the header is made here; the package's reader is its judge in the tests.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ninfer_convert.errors import OutputError, Problem, printable
from ninfer_convert.pipeline.counterparts import by_provenance
from ninfer_convert.pipeline.export.files import File, Region
from ninfer_convert.pipeline.export.tensors import KEEPING, region
from ninfer_convert.sources.gguf_header import MAGIC, MAX_DIMENSIONS, VERSION, parse_section
from ninfer_convert.sources.gguf_metadata import STRING
from ninfer_convert.sources.labels import counted, label, some

if TYPE_CHECKING:
    from ninfer_convert.container import Directory
    from ninfer_convert.pipeline.stored import OpenArtifact, StoredParameter
    from ninfer_convert.sources.gguf_header import Header

SUFFIX = ".gguf"
METADATA_ROLE = "gguf_metadata"
ALIGNMENT = 32


def plan_file(parameters: Mapping[str, StoredParameter], artifact: OpenArtifact, file_name: str) -> File:
    """The file that holds `parameters`, by the name each has there.

    The metadata is what the artifact has kept of its source's, but for alignment and split keys, and tensors stand in
    the source's order, new ones behind; where nothing was kept only the architecture is named. Raises OutputError with
    every parameter that GGUF cannot hold, SourceError where the kept metadata cannot be read.
    """
    if problems := list(_problems(parameters)):
        raise OutputError(problems)
    kept = _kept(artifact)
    in_header, in_data = _orders(parameters, artifact.directory, kept)
    regions: dict[str, Region] = {}
    end = 0
    for name in in_data:
        regions[name] = region(parameters[name], KEEPING[parameters[name].format], end)
        end = _aligned(regions[name].end)
    entries = _entries(kept) if kept is not None else _least_entries(artifact.directory)
    infos = [_info(name, parameters[name], regions[name].offset) for name in in_header]
    head = MAGIC + struct.pack("<IQQ", VERSION, len(infos), len(entries)) + b"".join((*entries, *infos))
    start = _aligned(len(head))
    placed = tuple(replace(each, offset=start + each.offset) for each in regions.values())
    return File(file_name, start + end, head, placed)


def _problems(parameters: Mapping[str, StoredParameter]) -> Iterator[Problem]:
    """What GGUF cannot hold, parameters of one format together."""
    strange: dict[str, list[str]] = {}
    for name, parameter in parameters.items():
        if parameter.format not in KEEPING:
            strange.setdefault(parameter.format, []).append(name)
        elif (fault := _shape_fault(parameter)) is not None:
            yield Problem("not-gguf", f"{label(name)}: {fault}; export as safetensors", tensor=name)
    for format, names in strange.items():
        message = f"GGUF has no type for {printable(format)}, in which {counted(len(names), 'parameter')} "
        message += f"({some(names)}) {'is' if len(names) == 1 else 'are'} kept; export as safetensors"
        yield Problem("not-gguf", message, tensor=names[0])


def _shape_fault(parameter: StoredParameter) -> str | None:
    """Why GGUF cannot hold the words of a type that it has, None if it can."""
    if len(parameter.shape) > MAX_DIMENSIONS:
        return f"has {len(parameter.shape)} axes, more than the {MAX_DIMENSIONS} that GGUF allows"
    kind, columns = KEEPING[parameter.format], parameter.shape[-1] if parameter.shape else 1
    if kind.kind == "block" and any(
        span.columns != columns or span.begin % columns or span.end % columns for span in parameter.spans
    ):
        return f"is not made of whole rows of {kind.name} blocks"
    return None


def _kept(artifact: OpenArtifact) -> Header | None:
    """The header of the GGUF that the artifact was made from, None where it was made from something else."""
    for component in artifact.directory.components.values():
        if METADATA_ROLE in component.resources:
            record = artifact.directory.by_id[component.resources[METADATA_ROLE]]
            section = artifact.artifact.read(record.offset, record.bytes)
            return parse_section(section, f"{artifact.artifact.path}, {METADATA_ROLE}")
    return None


def _orders(
    parameters: Mapping[str, StoredParameter], directory: Directory, kept: Header | None
) -> tuple[list[str], list[str]]:
    """The names in the order of tensor infos, and of data; of a split set the first part's come first."""
    infos = kept.infos if kept is not None else ()
    later = list(_later_tensors(directory))
    origins = by_provenance(directory, {name: name for name in (*(info.name for info in infos), *later)})

    def ordered(tensors: Sequence[str]) -> list[str]:
        places = {tensor: place for place, tensor in enumerate(tensors)}
        return sorted(parameters, key=lambda name: places.get(origins.get(parameters[name].name, ""), len(places)))

    by_offset = sorted(infos, key=lambda info: info.offset)
    return ordered([*(info.name for info in infos), *later]), ordered([*(info.name for info in by_offset), *later])


def _later_tensors(directory: Directory) -> Iterator[str]:
    """The tensors of a split set's later parts in order, as the provenance lists them; anything may stand there."""
    sources = directory.provenance.get("sources")
    for source in sources.values() if isinstance(sources, dict) else ():
        files = source.get("files") if isinstance(source, dict) else None
        for file in files if isinstance(files, list) else ():
            tensors = file.get("tensors") if isinstance(file, dict) else None
            yield from (str(name) for name in (tensors if isinstance(tensors, list) else ()))


def _entries(kept: Header) -> list[bytes]:
    """The kept key values as they were; alignment and division were the old file's."""
    keys = (key for key in kept.metadata if key != "general.alignment" and not key.startswith("split."))
    return [kept.metadata.stored(key) for key in keys]


def _least_entries(directory: Directory) -> list[bytes]:
    """What every reader asks for first."""
    names = (directory.main.config.get(member) for member in ("architecture", "model_type"))
    architecture = next((name for name in names if isinstance(name, str)), "unknown")
    return [_text("general.architecture") + struct.pack("<I", STRING) + _text(architecture)]


def _info(name: str, parameter: StoredParameter, offset: int) -> bytes:
    """The tensor's info: dimensions are listed fastest first."""
    dimensions = parameter.shape[::-1]
    kind = KEEPING[parameter.format]
    return _text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind.ggml, offset)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
