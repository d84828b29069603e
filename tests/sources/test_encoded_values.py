"""Values of encoded weights: the peers' own decoding of their files, and an oracle's of every shape and type."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file

from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.config import read_config
from ninfer_convert.sources.encoded import classify
from ninfer_convert.sources.gguf import open_gguf
from tests.flush import flushed_subnormals
from tests.oracle import encoded as oracle
from tests.oracle import gguf
from tests.sources.modules import FP8_BLOCKS, compressed_tensors, nf4_state
from tests.sources.weights import Array, tensor, values, weight

if TYPE_CHECKING:
    from ninfer_convert.values import Source

GOLDEN = Path(__file__).parent.parent / "golden" / "encoded"
FOLDERS = sorted(path.parent.name for path in GOLDEN.glob("*/expected.safetensors"))

SEEDS = st.integers(0, 2**32 - 1)
FLOATS = st.sampled_from(["F32", "BF16", "F16"])


def peer(folder: str) -> dict[str, Source]:
    """The sources of a checkpoint that a peer wrote."""
    checkpoint = open_checkpoint(GOLDEN / folder)
    return dict(classify(checkpoint, read_config(checkpoint)).sources)


def test_the_corpus_is_whole() -> None:
    assert len(FOLDERS) == 12


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_peers_own_values(folder: str) -> None:
    """To the bit, but for NVFP4: there peers round twice, and the rule once (within 1 ulp, and the same bfloat16)."""
    sources, expected = peer(folder), load_file(GOLDEN / folder / "expected.safetensors")
    assert expected
    for name, reference in expected.items():
        found, wanted = values(sources[name]), reference.view(np.uint32)
        if sources[name].stored != "NVFP4":
            assert np.array_equal(found, wanted), name
            continue
        signless = found.astype(np.int64) & 0x7FFFFFFF, wanted.astype(np.int64) & 0x7FFFFFFF
        assert np.abs(signless[0] - signless[1]).max() <= 1, name
        assert np.array_equal(found.view(np.float32) < 0, reference < 0)
        assert np.array_equal(rounded_bf16(signless[0]), rounded_bf16(signless[1])), name


def rounded_bf16(words: NDArray[np.int64]) -> NDArray[np.int64]:
    """Magnitude words of binary32 rounded to bfloat16."""
    return (words + 0x7FFF + (words >> 16 & 1)) >> 16


@pytest.mark.parametrize("folder", ["ct_nvfp4", "modelopt_nvfp4"])
def test_nvfp4_is_rounded_once(folder: str) -> None:
    name = "model.layers.0.self_attn.k_proj"
    stored = load_file_as_bytes(GOLDEN / folder / "model.safetensors")
    source = peer(folder)[f"{name}.weight"]
    if folder == "ct_nvfp4":
        packed, scales, factor = (
            stored[f"{name}.{m}"] for m in ("weight_packed", "weight_scale", "weight_global_scale")
        )
    else:
        packed, scales, factor = (stored[f"{name}.{m}"] for m in ("weight", "weight_scale", "weight_scale_2"))
    expected = oracle.nvfp4(
        packed.reshape(128, 64), scales.reshape(128, 8), float(factor.view(np.float32)[0]), folder != "ct_nvfp4"
    )
    assert np.array_equal(values(source), expected)


def load_file_as_bytes(path: Path) -> dict[str, Array]:
    """The bytes of every tensor of a file."""
    from tests.oracle.safetensors import read

    return {name: np.frombuffer(data, np.uint8) for name, (_, _, data) in read(path.read_bytes()).items()}


@pytest.mark.parametrize("folder", FOLDERS)
def test_any_elements_are_those_of_the_whole(folder: str) -> None:
    rng = np.random.default_rng(7)
    for source in peer(folder).values():
        if source.encoding is None:
            continue
        whole = values(source).reshape(-1)
        cuts = [(0, 0), (whole.size, whole.size), (0, 1), (whole.size - 1, whole.size)]
        cuts += [tuple(sorted(rng.integers(0, whole.size + 1, 2).tolist())) for _ in range(12)]
        for begin, end in cuts:
            assert np.array_equal(source.values(begin, end).array.view(np.uint32), whole[begin:end])
        with pytest.raises(IndexError):
            source.values(0, whole.size + 1)


def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoded")


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


@pytest.mark.parametrize("kind", ["fp8", "mxfp8", "mxfp4", "awq", "int4"])
def test_a_thread_that_flushes_subnormals_reads_alike(tmp_path: Path, kind: str) -> None:
    """Scales, values or both are subnormal in binary32."""
    rng = np.random.default_rng(5)
    codes, least = rng.integers(0, 0x7F, (4, 64), np.uint8), rng.integers(1, 0x00800000, (4, 1), np.uint32)
    exponents, pairs = rng.integers(0, 3, (4, 2), np.uint8), rng.integers(0, 256, (4, 32), np.uint8)
    members = {
        "fp8": {"weight": tensor(codes, "F8_E4M3"), "weight_scale": tensor(least, "F32")},
        "mxfp8": {"weight": tensor(codes, "F8_E4M3"), "weight_scale": tensor(exponents)},
        "mxfp4": {"weight_packed": tensor(pairs), "weight_scale": tensor(exponents)},
        "awq": {
            "weight": tensor(pairs),
            "weight_scale": tensor(rng.integers(1, 9, (4, 4), np.uint8), "F8_E4M3"),
            "weight_scale_2": tensor(np.array(2.0**-110, np.float32)),
            "pre_quant_scale": tensor(np.full(64, 0x3900, np.uint16)),
        },
        "int4": {"weight": tensor(pairs), "weight_scale": tensor(least.repeat(2, 0).repeat(2, 1), "F32")},
    }[kind]
    found = values(weight(tmp_path, members))
    assert np.any((found & 0x7F800000 == 0) & (found & 0x7FFFFF != 0))
    with flushed_subnormals():
        assert np.array_equal(values(weight(tmp_path, members)), found)


# Tables by hand: the orders of elements inside words (field faults R36, R39)


def test_gptqs_order_by_hand(tmp_path: Path) -> None:
    """Rows are columns of words: 0x76543210 in word [0, n] are the codes 0 to 7 of row n."""
    qweight = np.array([[0x76543210, 0x0FEDCBA9], [0x22222222, 0x7FFFFFFF]], np.uint32).view(np.int32)
    members = {"qweight": tensor(qweight), "scales": tensor(np.array([[1, 2], [0.5, 4]], np.float16))}
    source = weight(tmp_path, members, {"quant_method": "gptq", "bits": 4, "group_size": 8})
    assert source.shape == (2, 16)
    assert values(source).view(np.float32).tolist() == [
        [-8, -7, -6, -5, -4, -3, -2, -1, *[0.5 * -6] * 8],
        [*[2 * (code - 8) for code in (9, 10, 11, 12, 13, 14, 15, 0)], *[4 * 7.0] * 7, 4 * -1.0],
    ]


def test_awqs_order_by_hand(tmp_path: Path) -> None:
    """Nibbles 0 to 7 of a word are rows 0, 2, 4, 6, 1, 3, 5, 7; zero points lie in the same order, as they are."""
    members = {
        "qweight": tensor(np.array([[0x75316420], [0x00000000]], np.uint32).view(np.int32)),
        "qzeros": tensor(np.array([[0x31312020]], np.uint32).view(np.int32)),
        "scales": tensor(np.array([[1, 1, 1, 1, 1, 1, 1, 0.5]], np.float16)),
    }
    source = weight(tmp_path, members, {"quant_method": "awq", "bits": 4, "group_size": 2})
    assert source.shape == (8, 2)
    zeros = [0, 1, 2, 3, 0, 1, 2, 3]
    steps = [1.0] * 7 + [0.5]
    expected = [[steps[row] * (row - zeros[row]), steps[row] * -zeros[row]] for row in range(8)]
    assert values(source).view(np.float32).tolist() == expected


def test_bitsandbytes_order_by_hand(tmp_path: Path) -> None:
    """The high nibble comes first; blocks run on over the ends of rows."""
    members = {
        "weight": tensor(np.array([[0x01], [0x23], [0x45], [0x67], [0x80]], np.uint8)),
        "weight.absmax": tensor(np.array([1, 10, 100], np.float32)),
        "weight.quant_map": tensor(np.arange(16, dtype=np.float32)),
        "weight.quant_state.bitsandbytes__nf4": nf4_state(shape=[3, 3], blocksize=4),
    }
    source = weight(tmp_path, members)
    assert values(source).view(np.float32).tolist() == [[0, 1, 2], [3, 40, 50], [60, 70, 800]]


def test_packed_integers_by_hand(tmp_path: Path) -> None:
    """Three bits each, the eleventh across two words; codes are moved up by 4."""
    codes = [4, 5, 6, 7, 3, 2, 1, 0, 4, 4, 7, 0]
    number = sum(code << 3 * i for i, code in enumerate(codes))
    words = np.frombuffer(number.to_bytes(8, "little"), np.int32).reshape(1, 2)
    members = {
        "weight_packed": tensor(words),
        "weight_scale": tensor(np.array([[1.0]], np.float32)),
        "weight_shape": tensor(np.array([1, 12], np.int64)),
    }
    source = weight(tmp_path, members, compressed_tensors({"num_bits": 3, "type": "int"}))
    assert values(source).view(np.float32).tolist() == [[code - 4 for code in codes]]


def test_mxfp4_of_gguf_and_hugging_face_are_one_array(tmp_path: Path) -> None:
    """Element i carries code i mod 16: GGUF splits a block in halves, the others pair neighbours."""
    codes = [i % 16 for i in range(32)]
    halves = bytes([127]) + bytes(codes[m] | codes[m + 16] << 4 for m in range(16))
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf.File([gguf.Tensor("w", 39, (1, 32), halves)]).build())
    from_gguf = open_gguf(path, "m.gguf").tensors["w"].values(0, 32).array
    pairs = np.array([codes[m] | codes[m + 1] << 4 for m in range(0, 32, 2)], np.uint8)
    members = {
        "proj_blocks": tensor(pairs.reshape(1, 1, 1, 16)),
        "proj_scales": tensor(np.full((1, 1, 1), 127, np.uint8)),
    }
    source = weight(tmp_path, members)
    expected = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6] * 2
    assert np.array_equal(values(source).reshape(-1), np.array(expected, np.float32).view(np.uint32))
    assert from_gguf.tolist() == expected  # ggml has no negative zero
