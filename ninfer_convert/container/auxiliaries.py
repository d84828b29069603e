"""What the auxiliaries of a use may be: one frozen object a role (container.md 2, uses)."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType

Fault = tuple[int, str]
"""The index of an element, and what is wrong with it."""


@dataclass(frozen=True)
class AuxiliaryRole:
    """A role: the direct format of its words, how many there are, and which words are legal.

    `scalar` roles hold one word, the others one for each of the K columns of the use's parameter, K a multiple of
    `multiple_of`. `word` unpacks one little-endian word. `faults` tells the illegal ones of a whole auxiliary.
    """

    name: str
    format: str
    word: struct.Struct
    faults: Callable[[Iterator[int | float]], Iterator[Fault]]
    scalar: bool = False
    multiple_of: int = 1
    category: str | None = None
    """The category of formats whose parameters may have it; None for all."""

    def count_fault(self, elements: int, columns: int | None) -> str | None:
        """Why it cannot have so many elements; `columns` is the parameter's K, None where it is not known."""
        if self.scalar:
            return None if elements == 1 else f"has {elements} elements; expected a scalar"
        if elements % self.multiple_of:
            return f"has {elements} elements; expected a multiple of {self.multiple_of}"
        if columns is not None and elements != columns:
            return f"has {elements} elements; expected {columns}, one for each column of the parameter"
        return None

    def value_faults(self, data: bytes) -> Iterator[Fault]:
        """The illegal words of an auxiliary whose elements are the little-endian `data`."""
        return self.faults(value for (value,) in self.word.iter_unpack(data))


def _divisor(values: Iterator[int | float]) -> Iterator[Fault]:
    for index, value in enumerate(values):
        if not (math.isfinite(value) and value > 0):
            yield index, f"is {value!r}; expected a positive finite number"


def _signs(words: Iterator[int | float]) -> Iterator[Fault]:
    for index, word in enumerate(words):
        if word not in (0x3F80, 0xBF80):
            yield index, f"is the bf16 word 0x{word:04X}; expected +1 (0x3F80) or -1 (0xBF80)"


def _permutation(columns: Iterator[int | float]) -> Iterator[Fault]:
    listed = list(columns)
    seen: set[int | float] = set()
    for index, column in enumerate(listed):
        if not 0 <= column < len(listed):
            yield index, f"is {column}; expected a column from 0 to {len(listed) - 1}"
        elif column in seen:
            yield index, f"is {column} again; expected every column once"
        seen.add(column)


_ALL = (
    AuxiliaryRole("activation_input_divisor", "fp32", struct.Struct("<f"), _divisor, scalar=True),
    AuxiliaryRole("hadamard_signs", "bf16", struct.Struct("<H"), _signs, multiple_of=1024),
    AuxiliaryRole("input_columns", "int32", struct.Struct("<i"), _permutation, category="gguf"),
)

AUXILIARIES = MappingProxyType({role.name: role for role in _ALL})
"""Every auxiliary role by its name."""
