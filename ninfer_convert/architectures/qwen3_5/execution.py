"""What binds, but that the engine is not known to compute: sizes, and formats that do not go together (qwen35.md 7.4).

An operation reads banks: parameters that stand one after the other in one object. The facts are those of the engine's
kernels as far as they are known, so that what is not among them is worth a warning, never a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ninfer_convert.architectures.qwen3_5.config import FULL, LINEAR
from ninfer_convert.architectures.qwen3_5.text import Sizes

if TYPE_CHECKING:
    from ninfer_convert.architectures.base import Outcome, Use
    from ninfer_convert.architectures.qwen3_5.config import TextConfig

LARGE, SMALL = 5120, 2048
"""The hidden sizes of the two models that there are kernels for: dense, and with experts."""

_BF16, _NVFP4, _FP8, _T2 = "bf16", "nvfp4", "fp8_e4m3fn_row_bf16", "t2_g128_fp16"
_Q4, _Q5, _Q6, _Q8 = "q4_g64_fp16", "q5_g64_fp16", "q6_g64_fp16", "q8_g32_fp16"
_GGUF, _ANY = "gguf_*", "*"

_Way = Mapping[str, tuple[str, ...]]
"""Banks that are computed together: members in their order -> the formats that one of them may have."""

_PARTS = {"query": (_GGUF,), "key": (_GGUF,)}
_EXPERTS = range(256)
_GATE_UP = " ".join(f"experts/{expert}/{half}" for expert in _EXPERTS for half in ("gate", "up"))
_DOWN = " ".join(f"experts/{expert}/down" for expert in _EXPERTS)

_DENSE: Mapping[str, tuple[_Way, ...]] = {
    "attention/": (
        {"query key gate value": (_NVFP4, _FP8, _BF16)},
        {"query key": (_Q4,), "gate value": (_Q5,)},
        {"query key": (_T2,), "gate value": (_T2,)},
        {**_PARTS, "gate": (_GGUF,), "value": (_GGUF,)},
    ),
    "gdn/": (
        {"query key value z": (_NVFP4, _FP8)},
        {"query key": (_Q4,), "value z": (_Q5,)},
        {"query key": (_T2,), "value z": (_T2,)},
        {**_PARTS, "value": (_GGUF,), "z": (_GGUF,)},
    ),
    "mlp/": ({"gate up": (_ANY,)}, {"gate": (_GGUF,), "up": (_GGUF,)}),
}
_WITH_EXPERTS: Mapping[str, tuple[_Way, ...]] = {
    "attention/": ({"query key gate value": (_Q8,)},),
    "gdn/": ({"query key value z": (_Q8,), "a_projection b_projection": (_BF16,)},),
    "moe/": tuple(
        {
            "router shared_score": (_BF16,),
            _GATE_UP: gate_up,
            _DOWN: down,
            "shared/gate shared/up": shared,
            "shared/down": shared,
        }
        for gate_up, down, shared in (
            ((_Q4,), (_Q5, _Q6), (_Q8,)),
            ((_Q8,), (_Q8,), (_Q8,)),
            ((_NVFP4,), (_NVFP4,), (_Q8, _NVFP4)),
        )
    ),
}
"""By the folder of an operation's parameters: the ways in which it is computed."""

_MIXERS = {"attention/": FULL, "gdn/": LINEAR}
"""The kind of layer that an operation is of, where it is not of all."""

_EMBEDDING, _HEAD = "text/token_embedding", "text/output_head"
_ALONE = (_EMBEDDING, _HEAD, "attention/output", "gdn/output", "mlp/down")
"""How the names of parameters end that are computed by themselves."""


def unknown_sizes(text: TextConfig) -> Iterator[str]:
    """Sizes that no kernel is made for."""
    s = Sizes.of(text)
    if FULL in text.layer_types and (s.Q, s.K, s.H) not in ((6144, 1024, LARGE), (4096, 512, SMALL)):
        yield (
            f"queries of {s.Q}, keys of {s.K} and a hidden size of {s.H} bind, but the engine computes full attention "
            "of 6144, 1024 and 5120 or of 4096, 512 and 2048 only"
        )
    if LINEAR in text.layer_types and (s.KG, s.VG, s.H) not in ((2048, 6144, LARGE), (2048, 4096, SMALL)):
        yield (
            f"keys of {s.KG}, values of {s.VG} and a hidden size of {s.H} bind, but the engine computes linear "
            "attention of 2048, 6144 and 5120 or of 2048, 4096 and 2048 only"
        )
    chosen = text.size("num_experts_per_tok")
    if text.moe and (s.E, chosen, s.H, s.Fe, s.Fs) != (256, 8, SMALL, 512, 512):
        yield (
            f"{chosen} of {s.E} experts of {s.Fe}, a shared one of {s.Fs} and a hidden size of {s.H} bind, but the "
            "engine computes 8 of 256 of 512, 512 and 2048 only"
        )


def unknown_banks(text: TextConfig, outcome: Outcome) -> Iterator[str]:
    """Banks that no kernel is known to read, for the sizes that kernels are made for; layers alike in it together."""
    operations = _WITH_EXPERTS if text.moe else _DENSE
    failing: dict[str, list[str]] = {}
    for layer, kind in enumerate(text.layer_types):
        for folder, ways in operations.items():
            before = f"text/layers/{layer}/{folder}"
            of_this_kind = folder not in _MIXERS or _MIXERS[folder] == kind
            if of_this_kind and not any(_computes(way, outcome, before) for way in ways):
                failing.setdefault(folder, []).append(before)
    for folder, places in failing.items():
        banks = "; ".join(_described(members, outcome, places[0]) for members in operations[folder][0])
        layers = "1 layer" if len(places) == 1 else f"{len(places)} layers"
        yield (
            f"{folder}: {banks} in {layers} ({places[0]}...) bind, but may not run: the engine is known to compute "
            f"with the objects {', or '.join(map(_spelled, operations[folder]))}"
        )


def unread(outcome: Outcome) -> Iterator[str]:
    """What no kernel is known to read, although every format has one."""
    cut = [name for name, formats in outcome.formats.items() if len(formats) > 1 and name.endswith(_ALONE)]
    if cut:
        yield f"{_and_more(cut)} bind in pieces by rows, but the engine computes with one region of one object"
    rotated = any("hadamard_signs" in use.auxiliaries for use in outcome.uses if use.parameter == _HEAD)
    if _T2 in outcome.formats[_EMBEDDING] and not rotated:
        yield (
            f"{_EMBEDDING} as {_T2} binds, but the engine reads that only beside a rotated head, one whose use has "
            f"hadamard_signs: give them in a [[use]] of {_HEAD}, or choose another format"
        )
    policies, divisors = [], []
    for names, uses in _shared_nvfp4(outcome):
        found = {use.activation_policy for use in uses}
        if len(found) > 1:
            policies.append(names)
        elif found == {"AllowA4"} and len({use.auxiliaries.get("activation_input_divisor") for use in uses}) > 1:
            divisors.append(names)
    if policies:
        yield (
            f"{_and_more(policies)} bind as nvfp4 in one object with several activation policies, but the engine "
            "computes all of it by the strictest"
        )
    if divisors:
        yield (
            f"{_and_more(divisors)} bind as nvfp4 in one object with several activation_input_divisors, but the engine "
            "computes 4-bit activations with one"
        )


def across_layers(outcome: Outcome) -> Iterator[str]:
    """Objects that several layers read, which an engine on several devices has no place for."""
    layers: dict[int, dict[str, str]] = {}
    for name, (object, _) in outcome.places.items():
        if name.startswith("text/layers/"):
            layers.setdefault(object, {}).setdefault(name.split("/")[2], name)
    shared = [" and ".join([*names.values()][:2]) for names in layers.values() if len(names) > 1]
    if shared:
        yield f"{_and_more(shared)} are in one object, which an engine refuses where their layers are on other devices"


def _shared_nvfp4(outcome: Outcome) -> Iterator[tuple[str, list[Use]]]:
    """Names of several parameters in one nvfp4 object, and their uses."""
    members: dict[int, list[str]] = {}
    for name, (object, _) in outcome.places.items():
        if outcome.formats[name] == (_NVFP4,):
            members.setdefault(object, []).append(name)
    uses: dict[str, list[Use]] = {}
    for use in outcome.uses:
        uses.setdefault(use.parameter, []).append(use)
    for names in members.values():
        if len(names) > 1:
            yield f"{names[0]} to {names[-1]}", [use for name in names for use in uses.get(name, ())]


def _and_more(names: list[str]) -> str:
    return f"{names[0]} (and {len(names) - 1} more)" if len(names) > 1 else names[0]


def _computes(way: _Way, outcome: Outcome, before: str) -> bool:
    return all(_reads(outcome.bank(_full(members, before)), formats) for members, formats in way.items())


def _reads(format: str | None, formats: tuple[str, ...]) -> bool:
    return format is not None and any(
        format == known or (known[-1] == "*" and format.startswith(known[:-1])) for known in formats
    )


def _full(members: str, before: str) -> list[str]:
    return [before + member for member in members.split()]


def _described(members: str, outcome: Outcome, before: str) -> str:
    """What a bank of the layer is stored as."""
    format = outcome.bank(_full(members, before))
    if format is not None:
        return f"{_listed(members, ' + ')} as {format}"
    formats = dict.fromkeys(found for name in _full(members, before) for found in outcome.formats[name])
    return f"{_listed(members, ', ')} apart, as {', '.join(formats)}"


def _spelled(way: _Way) -> str:
    """The objects of a way: `query + key as q4_g64_fp16 and gate + value as q5_g64_fp16`."""
    return " and ".join(f"{_listed(members, ' + ')} as {_one_of(formats)}" for members, formats in way.items())


def _one_of(formats: tuple[str, ...]) -> str:
    *others, last = ("any format" if format == _ANY else format for format in formats)
    return f"{', '.join(others)} or {last}" if others else last


def _listed(members: str, between: str) -> str:
    names = members.split()
    return between.join(names) if len(names) <= 4 else f"{names[0]} to {names[-1]}"
