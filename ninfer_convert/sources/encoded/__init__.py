"""Which tensors of a checkpoint make up one encoded weight (encoded-sources.md 3; recipes.md, Companions).

Tensors decide, the config is checked against them. Every tensor ends in exactly one place: in a module, among the
orphans, skipped, or plain.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import Problem, SourceError
from ninfer_convert.sources.encoded.base import PLAIN_FLOATS, Convention, EncodedModule, Module, is_activation_scale
from ninfer_convert.sources.encoded.bitnet import BITNET
from ninfer_convert.sources.encoded.bitsandbytes import BITSANDBYTES
from ninfer_convert.sources.encoded.declared import Declaration, read_declaration
from ninfer_convert.sources.encoded.fp8 import FP8
from ninfer_convert.sources.encoded.gptq import GPTQ
from ninfer_convert.sources.encoded.int8 import INT8
from ninfer_convert.sources.encoded.mlx import MLX
from ninfer_convert.sources.encoded.modelopt import MODELOPT
from ninfer_convert.sources.encoded.mxfp4_blocks import MXFP4_BLOCKS
from ninfer_convert.sources.encoded.packed import PACKED
from ninfer_convert.sources.encoded.unread import BARE, UNREAD
from ninfer_convert.sources.encoded.weight import UnreadWeight
from ninfer_convert.sources.labels import counted, label, some

if TYPE_CHECKING:
    from ninfer_convert.sources.base import Checkpoint, StoredTensor
    from ninfer_convert.values import Source

CONVENTIONS = (
    UNREAD,
    PACKED,
    MXFP4_BLOCKS,
    BITSANDBYTES,
    GPTQ,
    MLX,
    FP8,
    BITNET,
    MODELOPT,
    INT8,
    BARE,
)
"""Every convention, in the order in which they are asked."""

KEY_VALUE_SCALES = ("k_scale", "v_scale")
"""Scales of a quantized key/value cache; they belong to no weight."""

COMPANIONS = tuple(dict.fromkeys(name for convention in CONVENTIONS for name in convention.companions))
"""Names that mean nothing without a module that consumes them; `*` stands for any text."""

Named = Callable[[str], bool]
"""Whether a recipe names a parameter, in some way."""

_INSTEAD = "take a checkpoint of the model that is not quantized"


def _never(name: str) -> bool:
    return False


@dataclass(frozen=True)
class Classification:
    """Where every tensor of a checkpoint belongs, each list in file order."""

    modules: tuple[EncodedModule, ...]
    orphans: Mapping[str, tuple[str, ...]]
    """Companions that no module consumed, by their name within the module (one of COMPANIONS)."""
    skipped: Mapping[str, tuple[str, ...]]
    """Tensors that are no weights, by the reason for which they are left out."""
    plain: tuple[str, ...]
    notes: tuple[str, ...]
    """Warnings of one line each: where config and tensors differ and the tensors are believed; what is left out."""
    refused_method: str
    """A quant_method that is never read, where the config names one; else ""."""
    sources: Mapping[str, Source]
    """What may become a parameter, by name in file order: tensors of their own (orphans too) and encoded weights."""

    def problems(self, checkpoint: Checkpoint, skipped: Named = _never, claimed: Named = _never) -> list[Problem]:
        """Why the checkpoint cannot be converted: encodings, damaged modules and orphans, each kind together.

        `skipped` names what the recipe leaves out, `claimed` what it selects by its exact name: an orphan may be
        either, anything else is passed over only where it is left out. Reads the scales of encoded weights.
        """
        found = []
        if self.refused_method:
            message = f"is quantized by {label(self.refused_method)} (quant_method), which cannot be read; {_INSTEAD}"
            found.append(Problem("encoded", message, path=checkpoint.shown))
        faults: dict[str, list[str]] = {}
        encodings: dict[str, list[str]] = {}
        for module in self.modules:
            if skipped(module.parameter):
                continue
            if module.fault is not None:
                faults.setdefault(module.fault, []).append(module.parameter)
            elif module.source is None:
                details = f" ({module.details})" if module.details else ""
                encodings.setdefault(f"{module.encoding}{details}", []).append(module.parameter)
        for encoding, names in encodings.items():
            weights = counted(len(names), "weight")
            message = f"{weights} stored as {encoding} cannot be imported or decoded: {some(names)}; {_INSTEAD}"
            found.append(Problem("encoded", message, path=checkpoint.shown, tensor=names[0]))
        for fault, names in faults.items():
            found.append(Problem("bad-encoding", f"{some(names)}: {fault}", path=checkpoint.shown, tensor=names[0]))
        for companion, tensors in self.orphans.items():
            orphans = [name for name in tensors if not (skipped(name) or claimed(name))]
            if orphans:
                lone = counted(len(orphans), f"{companion} tensor")
                advice = "add a [[skip]] if they are not needed"
                message = f"{lone} without a weight to belong to: {some(orphans)}; {advice}"
                found.append(Problem("orphan", message, path=checkpoint.shown, tensor=orphans[0]))
        for name, source in self.sources.items():
            if not skipped(name):
                found += _bad_scales(source)
        return found


def classify(checkpoint: Checkpoint, config: Mapping[str, Any] | None) -> Classification:
    """Sort the tensors of a checkpoint; `config` is config.json's object, None where there is none.

    Reads headers and JSON files only. Raises SourceError for a quantization config that is malformed.
    """
    declared = read_declaration(checkpoint, config)
    modules: list[EncodedModule] = []
    for module in _modules(checkpoint.tensors):
        modules += _recognise(module, declared)
    companions = {name for tensor in checkpoint.tensors.values() for name in tensor.companions}
    taken = companions.union(*(module.tensors for module in modules))
    skipped: dict[str, list[str]] = {}
    orphans: dict[str, list[str]] = {}
    plain: list[str] = []
    for name in checkpoint.tensors:
        if name in taken:
            continue
        _, member = _split(name)
        companion = _companion(member)
        if companion is not None:
            orphans.setdefault(companion, []).append(name)
        elif member in KEY_VALUE_SCALES:
            skipped.setdefault("scale of a key/value cache", []).append(name)
        elif is_activation_scale(member) and (modules or declared.method):
            skipped.setdefault("activation scale of a weight that is not encoded", []).append(name)
        else:
            plain.append(name)
    return Classification(
        tuple(modules),
        {companion: tuple(names) for companion, names in orphans.items()},
        {reason: tuple(names) for reason, names in skipped.items()},
        tuple(plain),
        (*_differences(modules, declared), *_left_out(skipped)),
        declared.method if declared.refused else "",
        dict(_sources(checkpoint.tensors, modules, companions.union(*skipped.values()))),
    )


@lru_cache(maxsize=1024)
def _companion(member: str) -> str | None:
    """The one of COMPANIONS that a member is; the names within modules are few."""
    return next((known for known in COMPANIONS if fnmatchcase(member, known)), None)


def _sources(
    tensors: Mapping[str, StoredTensor], modules: Sequence[EncodedModule], skipped: Collection[str]
) -> Iterator[tuple[str, Source]]:
    """A module stands where its first tensor does; one that cannot be read is there to be skipped."""
    if not modules and not skipped:
        yield from tensors.items()
        return
    owners = {tensor: module for module in modules for tensor in module.tensors}
    placed: set[str] = set()
    for name, tensor in tensors.items():
        module = owners.get(name)
        if module is None:
            if name not in skipped:
                yield name, tensor
        elif module.parameter not in placed:
            placed.add(module.parameter)
            own = {member: tensors[member] for member in module.tensors}
            unread = UnreadWeight(module.parameter, module.encoding, module.shape or (), module.details, own)
            yield module.parameter, module.source or unread


def _bad_scales(source: Source) -> Sequence[Problem]:
    try:
        _ = source.encoding
    except SourceError as error:
        return error.problems
    return ()


def _modules(tensors: Mapping[str, StoredTensor]) -> list[Module]:
    """The modules that may be encoded with all their tensors, in order of the first tensor of each."""
    candidates = {_split(name)[0] for name, tensor in tensors.items() if tensor.stored not in PLAIN_FLOATS}
    if not candidates:
        return []
    modules: dict[str, dict[str, StoredTensor]] = {}
    for name, tensor in tensors.items():
        module, member = _split(name)
        if module in candidates:
            modules.setdefault(module, {})[member] = tensor
    return [Module(name, members) for name, members in modules.items()]


def _split(name: str) -> tuple[str, str]:
    """Module and name within it; what hangs on a weight (`weight.absmax`) is a member of the weight's module."""
    module, dot, rest = f".{name}".rpartition(".weight.")
    if dot:
        return module[1:], f"weight.{rest}"
    module, _, member = name.rpartition(".")
    return module, member


def _recognise(module: Module, declared: Declaration) -> list[EncodedModule]:
    found: list[EncodedModule] = []
    for convention in CONVENTIONS:
        new: list[EncodedModule] = []
        taken: set[str] = set()
        for encoded in convention.recognise(module, declared):
            # A scale of inputs may belong to several weights of a module, and is accounted for with the first.
            own = tuple(name for name in encoded.tensors if name not in taken)
            new.append(replace(encoded, tensors=own))
            taken.update(own)
        if taken:
            left = {name: tensor for name, tensor in module.tensors.items() if module.full(name) not in taken}
            module = Module(module.name, left)
        found += new
    return found


def _left_out(skipped: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for reason, names in skipped.items():
        yield f"{counted(len(names), 'tensor')} left out, {reason}: {some(names)}"


def _differences(modules: Sequence[EncodedModule], declared: Declaration) -> Iterator[str]:
    ignored = [module.module for module in modules if declared.ignores(module.module)]
    if ignored:
        yield f"{counted(len(ignored), 'module')} encoded, though the config ignores them: {some(ignored)}"
    if declared.method and not modules and not declared.refused:
        yield f"config says quant_method {label(declared.method)}, but no tensor is encoded: all are read as they are"


__all__ = ["COMPANIONS", "CONVENTIONS", "Classification", "Convention", "EncodedModule", "classify"]
