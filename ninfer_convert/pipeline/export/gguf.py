"""Exports as GGUF: ggml's own blocks and direct words, under the metadata that the artifact has kept.

`gguf.GGUFWriter` refuses types that it does not know (Q2_0), encodes every value of the metadata anew and keeps
tensors in memory, so the header is made here; the package's reader is its judge in the tests.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ninfer_convert.errors import OutputError, Problem, printable
from ninfer_convert.pipeline import recorded
from ninfer_convert.pipeline.counterparts import by_provenance
from ninfer_convert.pipeline.export.files import File, Region
from ninfer_convert.pipeline.export.tensors import region
from ninfer_convert.pipeline.parameters import KEEPING
from ninfer_convert.sources.gguf_header import MAGIC, MAX_DIMENSIONS, VERSION, parse_section
from ninfer_convert.sources.gguf_metadata import STRING
from ninfer_convert.sources.labels import counted, label, some

if TYPE_CHECKING:
    from ninfer_convert.container import Directory
    from ninfer_convert.formats.stored import StoredType
    from ninfer_convert.pipeline.export.tensors import Tensor
    from ninfer_convert.pipeline.stored import OpenArtifact
    from ninfer_convert.sources import Checkpoint
    from ninfer_convert.sources.gguf_header import Header
    from ninfer_convert.values import Shape

SUFFIX = ".gguf"
METADATA_ROLE = "gguf_metadata"
ALIGNMENT = 32


def plan_file(tensors: Sequence[Tensor], artifact: OpenArtifact, file_name: str, like: Checkpoint | None) -> File:
    """The file that holds `tensors`.

    The metadata is that of the GGUF `like`, which has the same names, else what the artifact has kept of its source's,
    but for alignment and split keys, and tensors stand in that one's order, new ones behind; where nothing was kept
    only the architecture is named. Raises OutputError with
    every tensor that GGUF cannot hold, SourceError where the kept metadata cannot be read.
    """
    if problems := list(_problems(tensors)):
        raise OutputError(problems)
    kinds = {tensor.name: tensor.kind for tensor in tensors if tensor.kind is not None}
    by_name = {tensor.name: tensor for tensor in tensors}
    like = like if like is not None and like.kind == "gguf" else None
    kept = _kept(artifact) if like is None else parse_section(like.raw_metadata, like.shown)
    in_header, in_data = _orders(tuple(by_name), artifact.directory, kept, like)
    regions: dict[str, Region] = {}
    end = 0
    for name in in_data:
        regions[name] = region(by_name[name], kinds[name], end)
        end = _aligned(regions[name].end)
    entries = _entries(kept) if kept is not None else _least_entries(artifact.directory)
    infos = [_info(name, by_name[name].shape, kinds[name], regions[name].offset) for name in in_header]
    head = MAGIC + struct.pack("<IQQ", VERSION, len(infos), len(entries)) + b"".join((*entries, *infos))
    start = _aligned(len(head))
    placed = tuple(replace(each, offset=start + each.offset) for each in regions.values())
    return File(file_name, start + end, head, placed)


def _problems(tensors: Sequence[Tensor]) -> Iterator[Problem]:
    """What GGUF cannot hold, tensors of formats that it has no type for together."""
    strange: dict[str, list[str]] = {}
    for tensor in tensors:
        fault = None
        if len(tensor.shape) > MAX_DIMENSIONS:
            fault = f"has {len(tensor.shape)} axes, more than the {MAX_DIMENSIONS} that GGUF allows"
        if tensor.kind is None:
            if tensor.formats not in KEEPING:
                strange.setdefault(tensor.formats, []).append(tensor.name)
                continue
            fault = f"is not made of whole rows of {KEEPING[tensor.formats].name} blocks"
        if fault is not None:
            yield Problem("not-gguf", f"{label(tensor.name)}: {fault}; export as safetensors", tensor=tensor.name)
    for format, names in strange.items():
        message = f"GGUF has no type for {printable(format)}, in which {counted(len(names), 'parameter')} "
        message += f"({some(names)}) {'is' if len(names) == 1 else 'are'} kept; export as safetensors"
        yield Problem("not-gguf", message, tensor=names[0])


def _kept(artifact: OpenArtifact) -> Header | None:
    """The header of the GGUF that the artifact was made from, None where it was made from something else."""
    for component in artifact.directory.components.values():
        if METADATA_ROLE in component.resources:
            record = artifact.directory.by_id[component.resources[METADATA_ROLE]]
            section = artifact.artifact.read(record.offset, record.bytes)
            return parse_section(section, f"{artifact.artifact.path}, {METADATA_ROLE}")
    return None


def _orders(
    names: Sequence[str], directory: Directory, kept: Header | None, like: Checkpoint | None
) -> tuple[list[str], list[str]]:
    """The `names` in the order of tensor infos, and of data; of a split set the first part's come first."""
    infos = kept.infos if kept is not None else ()
    first = dict.fromkeys(info.name for info in infos)
    if like is not None:
        later = [name for name in like.tensors if name not in first]
        origins = {name: name for name in names}
    else:
        later = list(recorded.later_tensors(directory))
        origins = by_provenance(directory, {name: name for name in (*first, *later)})

    def ordered(tensors: Sequence[str]) -> list[str]:
        places = {tensor: place for place, tensor in enumerate(tensors)}
        return sorted(names, key=lambda name: places.get(origins.get(name, ""), len(places)))

    by_offset = sorted(infos, key=lambda info: info.offset)
    return ordered([*first, *later]), ordered([*(info.name for info in by_offset), *later])


def _entries(kept: Header) -> list[bytes]:
    """The kept key values as they were; alignment and division were the old file's."""
    keys = (key for key in kept.metadata if key != "general.alignment" and not key.startswith("split."))
    return [kept.metadata.stored(key) for key in keys]


def _least_entries(directory: Directory) -> list[bytes]:
    """What every reader asks for first."""
    names = (directory.main.config.get(member) for member in ("architecture", "model_type"))
    architecture = next((name for name in names if isinstance(name, str)), "unknown")
    return [_text("general.architecture") + struct.pack("<I", STRING) + _text(architecture)]


def _info(name: str, shape: Shape, kind: StoredType, offset: int) -> bytes:
    """The tensor's info: dimensions are listed fastest first."""
    return _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind.ggml, offset)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT
