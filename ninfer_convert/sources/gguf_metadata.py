"""The key values of a GGUF header: skipped over when the header is read, decoded when they are asked for."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

NAMES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64")
"""What messages and listings call the value types, by their number."""

_CODES = ("B", "b", "H", "h", "I", "i", "f", "?", None, None, "Q", "q", "d")
SCALARS = {number: struct.Struct(f"<{code}") for number, code in enumerate(_CODES) if code}
BOOL, STRING, ARRAY, UINT32 = (NAMES.index(name) for name in ("bool", "string", "array", "u32"))

MAX_DEPTH = 16
"""Arrays of arrays that may lie in each other."""

_U64 = struct.Struct("<Q")
_ARRAY = struct.Struct("<IQ")


class MetadataFault(Exception):
    """What is wrong with a value, as the end of a sentence ("the value of KEY ...")."""


def skip(data: bytes, kind: int, at: int, depth: int = 0) -> int:
    """Where the value of type `kind` at `at` ends; beyond `data` where a length says so.

    Raises MetadataFault for a type that does not exist, a bool that is neither 0 nor 1, arrays nested too deep;
    struct.error where `data` ends before the next length.
    """
    if kind in SCALARS:
        _check_bools(data, kind, at, 1)
        return at + SCALARS[kind].size
    if kind == STRING:
        return _skip_strings(data, at, 1)
    if kind != ARRAY:
        raise MetadataFault(f"has the type {kind}, which does not exist")
    if depth == MAX_DEPTH:
        raise MetadataFault(f"nests arrays deeper than {MAX_DEPTH}")
    item, count = _ARRAY.unpack_from(data, at)
    at += _ARRAY.size
    if item in SCALARS:
        _check_bools(data, item, at, count)
        end: int = at + count * SCALARS[item].size
        return end
    if item == STRING:
        return _skip_strings(data, at, count)
    if item != ARRAY:
        raise MetadataFault(f"is an array of the type {item}, which does not exist")
    for _ in range(count):
        at = skip(data, ARRAY, at, depth + 1)
    return at


def _skip_strings(data: bytes, at: int, count: int) -> int:
    unpack = _U64.unpack_from
    for _ in range(count):
        (length,) = unpack(data, at)
        at += 8 + length
    return at


def _check_bools(data: bytes, kind: int, at: int, count: int) -> None:
    if kind == BOOL and max(data[at : at + count], default=0) > 1:
        raise MetadataFault("holds a bool that is neither 0 nor 1")


@dataclass(frozen=True)
class MetadataArray:
    """An array among the key values; its elements are decoded when they are iterated over.

    `type` is that of the elements: u8 to f64, bool, string or array.
    """

    type: str
    _length: int
    _kind: int = field(repr=False)
    _data: bytes = field(repr=False)
    _begin: int = field(repr=False)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Value]:
        at = self._begin
        for _ in range(self._length):
            yield decode(self._data, self._kind, at)
            at = skip(self._data, self._kind, at)

    def head(self, count: int) -> list[Value]:
        """The first `count` elements."""
        return list(islice(self, count))


Value: TypeAlias = "bool | int | float | str | MetadataArray"


def decode(data: bytes, kind: int, at: int) -> Value:
    """The value of type `kind` that lies at `at`; bytes of a string that are not UTF-8 are spelled `\\xNN`."""
    if kind == STRING:
        (length,) = _U64.unpack_from(data, at)
        return data[at + 8 : at + 8 + length].decode("utf-8", "backslashreplace")
    if kind == ARRAY:
        item, count = _ARRAY.unpack_from(data, at)
        return MetadataArray(NAMES[item], count, item, data, at + _ARRAY.size)
    value: Value = SCALARS[kind].unpack_from(data, at)[0]
    return value


class Metadata(Mapping[str, Value]):
    """The key values of one header, in its order; each is decoded when it is looked up."""

    def __init__(self, data: bytes, entries: Mapping[str, tuple[int, int]]) -> None:
        """`entries`: key -> (type, where the value lies in `data`)."""
        self._data = data
        self._entries = entries

    def __getitem__(self, key: str) -> Value:
        return decode(self._data, *self._entries[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def type(self, key: str) -> str:
        """The name of the type of the key's value."""
        return NAMES[self._entries[key][0]]

    def stored(self, key: str) -> bytes:
        """The key, its type and its value as they stand in the header."""
        kind, at = self._entries[key]
        begin = at - SCALARS[UINT32].size - len(key.encode()) - _U64.size
        return self._data[begin : skip(self._data, kind, at)]
