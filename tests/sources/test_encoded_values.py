"""Values of encoded weights: the peers' own decoding of their files, and tables by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from ninfer_convert.sources import open_checkpoint
from ninfer_convert.sources.config import read_config
from ninfer_convert.sources.encoded import classify
from ninfer_convert.sources.gguf import open_gguf
from tests.flush import flushed_subnormals
from tests.oracle import encoded as oracle
from tests.oracle import gguf
from tests.sources.modules import compressed_tensors, nf4_state
from tests.sources.weights import Array, tensor, values, weight

if TYPE_CHECKING:
    from ninfer_convert.values import Source


GOLDEN = Path(__file__).parent.parent / "golden" / "encoded"
FOLDERS = sorted(path.parent.name for path in GOLDEN.glob("*/expected.safetensors"))


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
