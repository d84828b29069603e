"""Damaged encoded weights, whatever the damage: accounted for, and read or refused."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_convert.errors import SourceError
from ninfer_convert.sources import open_checkpoint
from tests.oracle.safetensors import BITS
from tests.sources.modules import (
    AWQ,
    GPTQ,
    MODELOPT,
    NF4,
    NVFP4,
    PACKED,
    Member,
    classified,
    compressed_tensors,
    module,
    nvfp4,
)

if TYPE_CHECKING:
    import pytest

    from ninfer_convert.sources.encoded.weight import EncodedWeight


VALID: list[tuple[Mapping[str, Member], Mapping[str, Any] | None]] = [
    (nvfp4(), compressed_tensors(NVFP4)),
    (MODELOPT, {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
    ({**MODELOPT, "pre_quant_scale": ("BF16", (32,)), "input_scale": ("F32", ())}, None),
    (PACKED, compressed_tensors({"num_bits": 4, "type": "int"})),
    (
        {**PACKED, "weight_zero_point": ("I32", (1, 1)), "weight_g_idx": ("I32", (32,))},
        compressed_tensors({"num_bits": 4, "type": "int", "symmetric": False}),
    ),
    ({**GPTQ, "g_idx": ("I32", (64,))}, {"quant_method": "gptq", "bits": 4}),
    (AWQ, {"quant_method": "awq", "bits": 4}),
    (NF4, None),
    ({"weight": ("I8", (4, 8)), "SCB": ("F32", (4,)), "weight_format": ("U8", ())}, None),
    ({"weight_packed": ("U8", (4, 32)), "weight_scale": ("U8", (4, 2))}, None),
    ({"p_blocks": ("U8", (2, 4, 1, 16)), "p_scales": ("U8", (2, 4, 1)), "q_blocks": ("U8", (1, 1, 16))}, None),
    (
        {"weight": ("F8_E4M3", (6, 8)), "weight_scale_inv": ("F32", (3, 2)), "activation_scale": ("F32", ())},
        {"quant_method": "fp8", "weight_block_size": [2, 4]},
    ),
    ({"weight": ("F8_E4M3", (6, 64)), "weight_scale": ("U8", (6, 2))}, None),
    ({"weight": ("F8_E4M3", (6, 8)), "weight_scale": ("F16", (6, 1))}, None),
    ({"x": ("F8_E4M3", (2, 6, 8)), "x_scale": ("F32", (2,)), "x_input_scale": ("F32", (2,))}, None),
    ({"weight": ("I8", (4, 8)), "weight_scale": ("F32", (4, 1))}, None),
    ({"weight": ("U8", (4, 64)), "weight_scale": ("BF16", (8, 2))}, None),
    ({"weight": ("U8", (4, 16)), "weight.quant_map": ("F4", (8,)), "input_scale": ("F32", ())}, None),
]


@st.composite
def damaged(draw: st.DrawFn) -> tuple[dict[str, Member], Mapping[str, Any] | None]:
    """A weight of any convention, bytes of any meaning, with up to two members dropped, retyped or reshaped."""
    valid, config = draw(st.sampled_from(VALID))
    headers = {name: (dtype, list(shape)) for name, (dtype, shape, *_) in valid.items()}
    for name in draw(st.lists(st.sampled_from(sorted(headers)), max_size=2)):
        dtype, shape = headers.get(name, ("U8", []))
        change = draw(st.sampled_from(["drop", "type", "axis", "add", "cut"]))
        if change == "drop":
            headers.pop(name, None)
            continue
        if change == "type":
            dtype = draw(st.sampled_from(sorted(BITS)))
        elif change == "axis" and shape:
            shape[draw(st.integers(0, len(shape) - 1))] = draw(st.sampled_from([0, 1, 2, 3, 8, 16]))
        elif change == "add":
            shape.append(draw(st.sampled_from([0, 1, 2])))
        elif shape:
            shape.pop()
        headers[name] = dtype, shape
    members: dict[str, Member] = {}
    for name, (dtype, shape) in headers.items():
        if prod(shape) * BITS[dtype] % 8:
            shape.append(8)
        size = prod(shape) * BITS[dtype] // 8
        stored = list(valid[name])[2:]
        if stored and len(stored[0]) == size and draw(st.booleans()):
            members[name] = valid[name]
        else:
            repeated = draw(st.binary(min_size=1, max_size=5)) * (size + 1)
            members[name] = dtype, shape, repeated[:size]
    return members, config


@given(damaged())
@settings(max_examples=300)
def test_damaged_weights_are_accounted_for_and_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[dict[str, Member], Mapping[str, Any] | None]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    members, config = drawn
    found = classified(folder, module("a", **members), config)
    placed = [tensor for one in found.modules for tensor in one.tensors]
    placed += [tensor for orphans in found.orphans.values() for tensor in orphans]
    placed += [tensor for skipped in found.skipped.values() for tensor in skipped]
    assert sorted([*placed, *found.plain]) == sorted(f"a.{name}" for name in members)
    found.problems(open_checkpoint(folder))
    for one in found.modules:
        if one.source is not None and 0 not in one.source.shape:
            with suppress(SourceError):
                read_all(one.source)


def read_all(source: EncodedWeight) -> None:
    assert source.encoding is not None
    rows = prod(source.shape[:-1])
    for format in (*source.exact, *source.encoding.rounded):
        assert len(source.words(format, 0, rows).codes) == rows
    assert source.values(0, prod(source.shape)).array.size == prod(source.shape)


def test_what_is_damaged_there_is_whole_to_begin_with(tmp_path: Path) -> None:
    for number, (members, config) in enumerate(VALID[:-1]):
        (tmp_path / str(number)).mkdir()
        found = classified(tmp_path / str(number), module("a", **members), config)
        assert found.modules != ()
        assert [(one.fault, one.source is None) for one in found.modules] == [(None, False)] * len(found.modules)
