"""What an artifact's provenance says, as `provenance` writes it (recipes.md, Provenance).

Provenance is open: another program may have put anything there. What is not as we record it is passed by.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ninfer_convert.container import Directory
    from ninfer_convert.values import Shape


def made(directory: Directory) -> Iterator[tuple[list[str], list[str]]]:
    """Of every object the parameters that it holds and the tensors it was made from, both in the order of its rows."""
    for record in _object(directory.provenance.get("objects")).values():
        yield _names(_object(record).get("parameters")), _names(_object(record).get("tensors"))


def digest(directory: Directory, id: str) -> str | None:
    """The SHA-256 of an object's bytes, in hexadecimal where it is sound."""
    found = _member(directory, "objects", id).get("sha256")
    return None if found is None else str(found)


def shape(directory: Directory, name: str) -> Shape | None:
    """The logical shape of a parameter whose binding does not show it."""
    found = _member(directory, "parameters", name).get("shape")
    if not isinstance(found, list) or not all(type(extent) is int and extent > 0 for extent in found):
        return None
    return tuple(found)


def transposed(directory: Directory, name: str) -> tuple[str, str] | None:
    """(source, tensor) where a parameter was made from that tensor with the last two axes exchanged."""
    found = _object(_member(directory, "parameters", name).get("transposed"))
    source, tensor = found.get("source"), found.get("tensor")
    return (source, tensor) if isinstance(source, str) and isinstance(tensor, str) else None


def source_named(directory: Directory, files: Collection[tuple[str, str]]) -> str | None:
    """The name of the source that one of these files, (name, SHA-256 of its header), belongs to.

    Two may have the same header: the name decides, unless no source has the file under it.
    """
    headers = {header for _, header in files}
    found: dict[bool, str] = {}
    for source, record in _object(directory.provenance.get("sources")).items():
        for file in map(_object, _list(_object(record).get("files"))):
            if file.get("header_sha256") in headers:
                found.setdefault((file.get("name"), file.get("header_sha256")) in files, source)
    return found.get(True, found.get(False))


def skipped(directory: Directory) -> dict[str, str]:
    """Name -> reason of everything that was left out."""
    skips = map(_object, _list(directory.provenance.get("skipped")))
    return {str(skip["name"]): str(skip.get("reason", "")) for skip in skips if "name" in skip}


def later_tensors(directory: Directory) -> Iterator[str]:
    """The tensors of the later parts of split GGUFs that it was made from, in order."""
    for source in _object(directory.provenance.get("sources")).values():
        for file in _list(_object(source).get("files")):
            yield from _names(_object(file).get("tensors"))


def _member(directory: Directory, table: str, name: str) -> Mapping[str, Any]:
    return _object(_object(directory.provenance.get(table)).get(name))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _names(value: Any) -> list[str]:
    return [name for name in _list(value) if isinstance(name, str)]
