"""Values of encoded weights of every shape and type: an oracle's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle import encoded as oracle
from tests.sources.modules import FP8_BLOCKS, compressed_tensors, nf4_state
from tests.sources.weights import Array, tensor, values, weight

SEEDS = st.integers(0, 2**32 - 1)
FLOATS = st.sampled_from(["F32", "BF16", "F16"])


def folder(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("encoded")


def scale_words(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Array:
    """Scales of a type that are not negative, zero and subnormal ones among them, as their words."""
    if kind == "F32":
        return rng.integers(0, 0x7F000000, shape, np.uint32)
    return rng.integers(0, 0x7F00 if kind == "BF16" else 0x7C00, shape, np.uint16)


@given(SEEDS, FLOATS, st.integers(1, 7), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_fp8_under_blocks_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, seed: int, kind: str, n: int, k: int, rows: int, columns: int, banks: int
) -> None:
    """Block size from the config, partial blocks at both ends, banks whose rows no block spans (field fault R25)."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 0x7F, (banks, n, k), np.uint8) | (rng.integers(0, 2, (banks, n, k), np.uint8) << 7)
    scales = scale_words(rng, kind, (banks, -(-n // rows), -(-k // columns)))
    config = compressed_tensors({**FP8_BLOCKS, "block_structure": [rows, columns]})
    for name in ("weight_scale", "weight_scale_inv"):
        members = {"weight": tensor(codes, "F8_E4M3"), name: tensor(scales, kind)}
        source = weight(folder(tmp_path_factory), members, config)
        expected = [oracle.fp8(codes[bank], scales[bank], kind, (rows, columns)) for bank in range(banks)]
        if source.stored == "FP8_BLOCK":
            assert np.array_equal(values(source), np.concatenate(expected))


@given(SEEDS, FLOATS, st.integers(1, 6), st.integers(1, 300), st.sampled_from(["row", "tensor", "bank"]))
def test_fp8_under_a_scale_for_each_row_matrix_or_bank(
    tmp_path_factory: pytest.TempPathFactory, seed: int, kind: str, n: int, k: int, grain: str
) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 0x7F, (2, n, k), np.uint8)
    scales = scale_words(rng, kind, {"row": (2, n, 1), "tensor": (2, 1, 1), "bank": (1, 1, 1)}[grain])
    source = weight(
        folder(tmp_path_factory), {"weight": tensor(codes, "F8_E4M3"), "weight_scale": tensor(scales, kind)}
    )
    each = np.broadcast_to(scales, (2, n, 1))
    expected = [oracle.fp8(codes[bank], each[bank], kind, (1, k)) for bank in range(2)]
    assert np.array_equal(values(source), np.concatenate(expected))


@given(SEEDS, st.integers(1, 4), st.integers(1, 70), st.sampled_from(["U8", "F8_E8M0"]))
def test_mxfp8(tmp_path_factory: pytest.TempPathFactory, seed: int, n: int, k: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 0x7F, (n, k), np.uint8)
    scales = rng.integers(0, 0xFF, (n, -(-k // 32)), np.uint8)
    source = weight(
        folder(tmp_path_factory), {"weight": tensor(codes, "F8_E4M3"), "weight_scale": tensor(scales, kind)}
    )
    assert source.stored == "MXFP8"
    assert np.array_equal(values(source), oracle.fp8(codes, scales, kind, (1, 32)))


@given(SEEDS, FLOATS, st.integers(1, 5), st.integers(1, 300), st.booleans())
def test_int8(tmp_path_factory: pytest.TempPathFactory, seed: int, kind: str, n: int, k: int, by_row: bool) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(-128, 128, (n, k), np.int8)
    scales = scale_words(rng, kind, (n, 1) if by_row else (1,))
    source = weight(folder(tmp_path_factory), {"weight": tensor(codes), "weight_scale": tensor(scales, kind)})
    assert source.stored == "INT8"
    assert np.array_equal(values(source), oracle.int8(codes, scales.reshape(-1), kind))


@given(
    seed=SEEDS,
    kind=FLOATS,
    n=st.integers(1, 6),
    k=st.integers(1, 80),
    bits=st.integers(1, 8),
    group=st.integers(1, 40),
    zero_points=st.booleans(),
    order=st.sampled_from(["none", "sorted", "any", "absent"]),
)
def test_packed_integers(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    kind: str,
    n: int,
    k: int,
    bits: int,
    group: int,
    zero_points: bool,
    order: str,
) -> None:
    """Codes of 1 to 8 bits that cross words, partial groups, zero points, columns in the order of no group."""
    rng = np.random.default_rng(seed)
    groups = -(-k // group)
    words = rng.integers(-(2**31), 2**31, (n, -(-k * bits // 32)), np.int32)
    scales = scale_words(rng, kind, (n, groups))
    zeros = rng.integers(-(2**31), 2**31, (-(-n * bits // 32), groups), np.int32)
    index = np.arange(k) // group if order == "sorted" else rng.integers(0, groups, k)
    members = {
        "weight_packed": tensor(words),
        "weight_scale": tensor(scales, kind),
        "weight_shape": tensor(np.array([n, k], np.int64)),
    }
    if zero_points:
        members["weight_zero_point"] = tensor(zeros)
    if order != "absent":
        members["weight_g_idx"] = tensor(np.full(k, -1, np.int32) if order == "none" else index.astype(np.int32))
    said = {"num_bits": bits, "type": "int", "group_size": group, "symmetric": not zero_points}
    source = weight(folder(tmp_path_factory), members, compressed_tensors(said))
    assert (source.stored, source.shape) == ("INT4_PACKED", (n, k))
    expected = oracle.packed_integers(
        words.view(np.uint32),
        bits,
        k,
        scales,
        kind,
        (lambda column: column // group) if order in ("none", "absent") else (lambda column: int(index[column])),
        zeros.view(np.uint32) if zero_points else None,
    )
    assert np.array_equal(values(source), expected)


@given(SEEDS, FLOATS, st.integers(1, 4), st.integers(1, 3), st.integers(1, 20), st.booleans())
def test_modelopts_pairs_of_rows(
    tmp_path_factory: pytest.TempPathFactory, seed: int, kind: str, half: int, groups: int, group: int, awq: bool
) -> None:
    rng = np.random.default_rng(seed)
    packed = rng.integers(0, 256, (half, groups * group), np.uint8)
    scales = scale_words(rng, kind, (2 * half, groups)) >> np.uint16(1)
    factors = (rng.integers(0x3F00, 0x4100, groups * group)).astype(np.uint16)
    members = {"weight": tensor(packed), "weight_scale": tensor(scales, kind)}
    if scales.size == 1:
        return
    if awq:
        members["pre_quant_scale"] = tensor(factors)
    source = weight(folder(tmp_path_factory), members)
    expected = oracle.paired_rows(packed, scales, kind, group)
    found = values(source)
    assert np.array_equal(found, oracle.channels(expected, factors, "BF16") if awq else expected)
    first = source.values(groups * group, 2 * groups * group).array.view(np.uint32)
    assert np.array_equal(first, found[1])


@given(SEEDS, st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.booleans())
def test_nvfp4_of_both_dialects_and_banks(
    tmp_path_factory: pytest.TempPathFactory, seed: int, banks: int, n: int, groups: int, each: bool, multiplies: bool
) -> None:
    """A fused bank has one factor, or one for each of its matrices (field fault R33)."""
    rng = np.random.default_rng(seed)
    packed = rng.integers(0, 256, (banks, n, 8 * groups), np.uint8)
    scales = rng.integers(0, 0x7F, (banks, n, groups), np.uint8)
    factors = (10.0 ** rng.uniform(-3, 3, banks if each else 1)).astype(np.float32)
    names = ("weight", "weight_scale_2") if multiplies else ("weight_packed", "weight_global_scale")
    members = {
        names[0]: tensor(packed),
        "weight_scale": tensor(scales, "F8_E4M3"),
        names[1]: tensor(factors),
    }
    source = weight(folder(tmp_path_factory), members)
    factor = np.broadcast_to(factors, banks)
    expected = [oracle.nvfp4(packed[i], scales[i], float(factor[i]), multiplies) for i in range(banks)]
    assert np.array_equal(values(source), np.concatenate(expected))


@given(SEEDS, st.integers(1, 3), st.integers(1, 3))
def test_nvfp4_awq(tmp_path_factory: pytest.TempPathFactory, seed: int, n: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    packed, scales = rng.integers(0, 256, (n, 8 * groups), np.uint8), rng.integers(0, 0x7F, (n, groups), np.uint8)
    factors = rng.integers(0x3F00, 0x4100, 16 * groups).astype(np.uint16)
    members = {
        "weight": tensor(packed),
        "weight_scale": tensor(scales, "F8_E4M3"),
        "weight_scale_2": tensor(np.array(0.0123, np.float32)),
        "pre_quant_scale": tensor(factors),
    }
    source = weight(folder(tmp_path_factory), members, {"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ"})
    plain = oracle.nvfp4(packed, scales, float(np.float32(0.0123)), True)
    assert np.array_equal(values(source), oracle.channels(plain, factors, "BF16"))
    assert source.exact == ()


@given(SEEDS, st.integers(1, 4), st.integers(1, 3), st.sampled_from(["packed", "modelopt", "blocks"]))
def test_mxfp4_in_every_container(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n: int, groups: int, container: str
) -> None:
    rng = np.random.default_rng(seed)
    packed, exponents = rng.integers(0, 256, (n, 16 * groups), np.uint8), rng.integers(0, 0xFF, (n, groups), np.uint8)
    members: Mapping[str, Any]
    if container == "packed":
        members = {"weight_packed": tensor(packed), "weight_scale": tensor(exponents)}
    elif container == "modelopt":
        members = {"weight": tensor(packed), "weight_scale": tensor(exponents, "F8_E8M0")}
    else:
        blocks = packed.reshape(1, n, groups, 16)
        members = {"proj_blocks": tensor(blocks), "proj_scales": tensor(exponents.reshape(1, n, groups))}
    source = weight(folder(tmp_path_factory), members)
    assert (source.stored, source.shape[-2:]) == ("MXFP4", (n, 32 * groups))
    assert np.array_equal(values(source), oracle.mxfp4(packed, exponents))


@given(
    seed=SEEDS,
    bits=st.sampled_from([2, 4, 8]),
    words=st.integers(1, 5),
    rows=st.integers(1, 4),
    groups=st.integers(1, 3),
    version=st.sampled_from([1, 2]),
    order=st.sampled_from(["absent", "sorted", "act"]),
)
def test_gptq(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    bits: int,
    words: int,
    rows: int,
    groups: int,
    version: int,
    order: str,
) -> None:
    """Both versions of zero points, columns of any group (act-order), groups that do not divide the columns."""
    rng = np.random.default_rng(seed)
    n, k = rows * (32 // bits), words * (32 // bits)
    group = -(-k // groups)
    count = -(-k // group)
    qweight = rng.integers(-(2**31), 2**31, (words, n), np.int32)
    scales = rng.integers(1, 0x7C00, (count, n), np.uint16).view(np.float16)
    zero = (1 << (bits - 1)) - (version == 1)
    qzeros = np.full((count, n * bits // 32), sum(zero << i for i in range(0, 32, bits)), np.uint32).view(np.int32)
    index = rng.integers(0, count, k) if order == "act" else np.arange(k) // group
    members = {"qweight": tensor(qweight), "qzeros": tensor(qzeros), "scales": tensor(scales)}
    if order != "absent":
        members["g_idx"] = tensor(index.astype(np.int32))
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": order == "act", "sym": True}
    source = weight(folder(tmp_path_factory), members, config)
    assert (source.stored, source.shape) == ("GPTQ", (n, k))
    middle = 1 << (bits - 1)
    expected = oracle.gptq(qweight.view(np.uint32), bits, scales.view(np.uint16), lambda c: int(index[c]), middle)
    found = values(source)
    assert np.array_equal(found, expected)
    middle_row = source.values(n // 2 * k, (n // 2 + 1) * k).array.view(np.uint32)
    assert np.array_equal(middle_row, expected[n // 2])


@pytest.mark.parametrize(("n", "k"), [(2048, 16), (64, 8 * 4100)])
def test_a_few_rows_of_a_transposed_weight(tmp_path: Path, n: int, k: int) -> None:
    """Long pieces of few stored rows are read one by one, short ones of many with what lies between."""
    rng = np.random.default_rng(3)
    members = {
        "qweight": tensor(rng.integers(-(2**31), 2**31, (k // 8, n), np.int32)),
        "scales": tensor(rng.integers(1, 0x7C00, (k // 8, n), np.uint16).view(np.float16)),
    }
    source = weight(tmp_path, members, {"quant_method": "gptq", "bits": 4, "group_size": 8})
    whole = values(source)
    assert whole.shape == (n, k)
    for begin, end in ((0, n), (1, 2), (n // 3, n - 1), (n - 2, n)):
        part = source.values(begin * k, end * k).array.view(np.uint32)
        assert np.array_equal(part, whole[begin:end].reshape(-1))
    shown = slice(5, 6)
    expected = oracle.gptq(
        np.frombuffer(members["qweight"][2], np.uint32).reshape(k // 8, n)[:, shown],
        4,
        np.frombuffer(members["scales"][2], np.uint16).reshape(k // 8, n)[:, shown],
        lambda column: column // 8,
        8,
    )
    assert np.array_equal(whole[shown], expected)


@given(SEEDS, st.integers(1, 40), st.integers(1, 3), st.integers(1, 20))
def test_awq(tmp_path_factory: pytest.TempPathFactory, seed: int, k: int, eights: int, group: int) -> None:
    rng = np.random.default_rng(seed)
    count = -(-k // group)
    qweight = rng.integers(-(2**31), 2**31, (k, eights), np.int32)
    qzeros = rng.integers(-(2**31), 2**31, (count, eights), np.int32)
    scales = rng.integers(1, 0x7C00, (count, 8 * eights), np.uint16).view(np.float16)
    members = {"qweight": tensor(qweight), "qzeros": tensor(qzeros), "scales": tensor(scales)}
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "GEMM"}
    source = weight(folder(tmp_path_factory), members, config)
    if source.stored == "GPTQ":
        assert k == eights == 1  # a word of one row and column could be either
        return
    expected = oracle.awq(qweight.view(np.uint32), qzeros.view(np.uint32), scales.view(np.uint16), group)
    assert np.array_equal(values(source), expected)
    first, last = 3, 8 * eights - 2
    part = source.values(first * k, last * k).array.view(np.uint32)
    assert np.array_equal(part, expected[first:last].reshape(-1))


@given(SEEDS, st.integers(1, 5), st.integers(1, 300))
def test_bitsandbytes_of_8_bits(tmp_path_factory: pytest.TempPathFactory, seed: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(-128, 128, (n, k), np.int8)
    largest = rng.integers(1, 0x7F000000, n, np.uint32).view(np.float32)
    members = {"weight": tensor(codes), "SCB": tensor(largest), "weight_format": tensor(np.zeros((), np.uint8))}
    source = weight(folder(tmp_path_factory), members)
    assert source.stored == "BNB_INT8"
    assert np.array_equal(values(source), oracle.int8(codes, largest.view(np.uint32), "F32", 127))


@given(SEEDS, st.integers(1, 5), st.integers(1, 50), st.sampled_from([2, 16, 64]), st.booleans(), st.booleans())
def test_bitsandbytes_of_4_bits(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n: int, k: int, block: int, nested: bool, fp4: bool
) -> None:
    rng = np.random.default_rng(seed)
    count, blocks = n * k, -(-n * k // block)
    packed = rng.integers(0, 256, (-(-count // 2), 1), np.uint8)
    table = rng.uniform(-1, 1, 16).astype(np.float32)
    table[7] = 0
    kind = "fp4" if fp4 else "nf4"
    members = {"weight": tensor(packed), "weight.quant_map": tensor(table)}
    state: dict[str, Any] = {"shape": [n, k], "blocksize": block, "quant_type": kind}
    if nested:
        codes, outer = rng.integers(0, 256, blocks, np.uint8), rng.uniform(0, 9, -(-blocks // 3)).astype(np.float32)
        nested_table, offset = rng.uniform(-1, 1, 256).astype(np.float32), float(np.float32(0.4567))
        members |= {"weight.absmax": tensor(codes), "weight.nested_absmax": tensor(outer)}
        members["weight.nested_quant_map"] = tensor(nested_table)
        state |= {"nested_blocksize": 3, "nested_offset": offset}
        absmax = oracle.nested_absmax(codes, nested_table.view(np.uint32), outer.view(np.uint32), 3, offset)
    else:
        largest = rng.uniform(0, 5, blocks).astype(np.float32)
        members["weight.absmax"] = tensor(largest)
        absmax = largest.view(np.uint32)
    members[f"weight.quant_state.bitsandbytes__{kind}"] = nf4_state(**state)
    source = weight(folder(tmp_path_factory), members)
    assert (source.stored, source.shape) == ("BNB_4BIT", (n, k))
    expected = oracle.four_bit(packed.reshape(-1), table.view(np.uint32), absmax, block, count)[0]
    assert np.array_equal(values(source).reshape(-1), expected)
    begin, end = sorted(rng.integers(0, count + 1, 2).tolist())
    assert np.array_equal(source.values(begin, end).array.view(np.uint32), expected[begin:end])
