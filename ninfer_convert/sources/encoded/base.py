"""What a convention is: how the tensors of one module are recognised as one encoded weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ninfer_convert.sources.base import StoredTensor
    from ninfer_convert.sources.encoded.declared import Declaration
    from ninfer_convert.sources.encoded.weight import EncodedWeight
    from ninfer_convert.values import Shape

FLOATS = ("F32", "BF16", "F16")
"""How float scales are stored."""
PLAIN_FLOATS = frozenset((*FLOATS, "F64"))
"""No encoding consists of these alone."""
EXPONENTS = ("U8", "F8_E8M0")
"""How E8M0 scales are stored."""

ACTIVATION_SCALES = (
    "input_scale",
    "input_global_scale",
    "activation_scale",
    "output_scale",
    "input_zero_point",
    "output_zero_point",
    "qscale_act",
)
"""Scales of a module's inputs and outputs; they are no part of its weight (recipes.md, Companions)."""
_ENDS_OF_SCALES = tuple(f"_{name}" for name in ACTIVATION_SCALES)


def is_activation_scale(member: str) -> bool:
    """Whether a member is a scale of inputs or outputs, of a weight's own name too (`gate_up_proj_input_scale`)."""
    return member in ACTIVATION_SCALES or member.endswith(_ENDS_OF_SCALES)


MEANING_CHANGERS = ("weight_zero_point", "weight_g_idx", "pre_quant_scale", "svdquant_lora_a", "svdquant_lora_b")
"""Companions without which codes and scales alone are another weight (encoded-sources.md 3, rule 5)."""


@dataclass(frozen=True)
class Module:
    """The tensors of one module by their names within it (`weight`, `weight_scale`, `weight.absmax`)."""

    name: str
    tensors: Mapping[str, StoredTensor]

    def full(self, member: str) -> str:
        """The whole name of a member."""
        return f"{self.name}.{member}" if self.name else member

    def has(self, *members: str) -> bool:
        return all(member in self.tensors for member in members)

    def stored(self, member: str) -> str:
        """The stored type of a member, "" where it is absent."""
        return self.tensors[member].stored if member in self.tensors else ""

    def shape(self, member: str) -> Shape:
        return self.tensors[member].shape

    def rows(self, member: str) -> tuple[Shape, int]:
        """All axes of a member but the last, and the last; a scalar is one column."""
        shape = self.shape(member)
        return shape[:-1], shape[-1] if shape else 1


@dataclass(frozen=True)
class EncodedModule:
    """One weight that several tensors make up (or that lacks the tensors it would need)."""

    module: str
    parameter: str
    """Its logical name: `<module>.weight`, `<proj>` for `<proj>_blocks`."""
    encoding: str
    """Name of the stored type (`formats.stored`), or a description where it has none."""
    shape: Shape | None
    """Logical shape; None where no header tells it."""
    tensors: tuple[str, ...]
    """Whole names of the tensors it consumes, activation scales included."""
    details: str = ""
    """The convention and what distinguishes this one: block size, bits, group."""
    fault: str | None = None
    """Why it is damaged or contradicts itself, the end of a sentence that begins with its name."""
    source: EncodedWeight | None = None
    """Its values and words; None where it can be neither imported nor decoded."""

    @property
    def prospect(self) -> str:
        """What a conversion can make of it, from headers alone."""
        if self.source is not None:
            return self.source.prospect
        return f"refused: {self.fault}" if self.fault else "refused: can be neither imported nor decoded"


Recognise = Callable[[Module, "Declaration"], Iterator[EncodedModule]]

Read = Callable[["str", "str", "Shape", "str", "Mapping[str, StoredTensor]"], "EncodedWeight"]
"""Makes a weight's source of its name, stored type, shape, details and tensors (`weight.EncodedWeight`)."""


@dataclass(frozen=True)
class Convention:
    """One way to store an encoded weight: one object each, see `encoded.CONVENTIONS`.

    `recognise` gives the weights of a module that are stored this way; the module it is handed holds only what no
    earlier convention took. `companions` are the names that mean nothing by themselves: left over, they are orphans;
    one that ends in `*` stands for all that begin so.
    """

    name: str
    recognise: Recognise
    companions: tuple[str, ...] = ()


def encoded(
    module: Module,
    members: Sequence[str],
    encoding: str,
    shape: Shape | None,
    declared: Declaration,
    details: str = "",
    fault: str | None = None,
    parameter: str = "weight",
    read: Read | None = None,
) -> EncodedModule:
    """The weight that `members` make up, with the companions every convention shares and the checks all need.

    `read` makes its source; where it is None, or anything is wrong, there is none.
    """
    changers = [name for name in MEANING_CHANGERS if name in module.tensors and name not in members]
    scheme = declared.scheme(module.name)
    if fault is None and changers:
        fault = f"{changers[0]} changes the weight's meaning and is not supported by import_encoded, nor decoded"
    twice = parameter in module.tensors and parameter not in members
    if fault is None and twice:
        fault = f"is stored twice, as {', '.join(members)} and as {parameter}"
    if fault is None:
        fault = declared.changes
    if fault is None and scheme.contradicts(encoding):
        fault = f"config says {scheme.words}, but the tensors are {encoding}"
    activations = (*ACTIVATION_SCALES, *(f"{parameter}_{name}" for name in ACTIVATION_SCALES))
    taken = dict.fromkeys(name for name in (*members, *changers, *activations, parameter) if name in module.tensors)
    name = module.full(parameter)
    source = None
    if read is not None and fault is None and shape is not None:
        source = read(name, encoding, shape, details, {role: module.tensors[role] for role in taken})
    tensors = tuple(module.full(role) for role in taken)
    return EncodedModule(module.name, name, encoding, shape, tensors, details, fault, source)


def groups(columns: int, size: int) -> int:
    """Number of groups of `size` in a row of `columns`, the last one partial where it does not divide."""
    return -(-columns // size)


def group_size(columns: int, count: int, said: int | None) -> int:
    """Columns of a group: what the config says, or else what shares them among `count` groups; 1 at least."""
    return said if said is not None and said > 0 else max(groups(columns, max(count, 1)), 1)


def one_element(shape: Shape) -> bool:
    return prod(shape) == 1


def wrong_shape(member: str, found: Shape, expected: Shape) -> str:
    """The fault of a companion whose shape does not fit its weight."""
    return f"{member} is {list(found)}, where {list(expected)} was expected"


def wrong_factor(module: Module, member: str, shape: Shape) -> str | None:
    """The fault of a global scale: F32, one for the weight or one for each matrix of a bank."""
    found = module.shape(member)
    if module.stored(member) == "F32" and prod(found) in (1, prod(shape[:-2])):
        return None
    return f"{member} is {module.stored(member)} {list(found)}, where F32 of {prod(shape[:-2])} or 1 was expected"
