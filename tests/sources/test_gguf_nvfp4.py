"""GGUF NVFP4 weights with scales in tensors beside them (encoded-sources.md 7.5; field faults R31, R33)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from ninfer_convert.errors import SourceError
from ninfer_convert.formats import get_format
from ninfer_convert.sources.encoded import classify
from ninfer_convert.sources.gguf import open_gguf
from tests.oracle import gguf
from tests.oracle.gguf import File, Tensor

if TYPE_CHECKING:
    from ninfer_convert.sources.base import Checkpoint

GOLDEN = Path(__file__).parent.parent / "golden" / "gguf"
BLOCKS = gguf.read(GOLDEN / "extras.gguf")["blk.0.nvfp4.weight"][2]
NAME = "blk.0.ffn_down.weight"


def f32(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def opened(tmp_path: Path, beside: Sequence[Tensor], shape: tuple[int, ...] = (6, 512)) -> Checkpoint:
    path = tmp_path / "model.gguf"
    path.write_bytes(File([Tensor(NAME, 40, shape, BLOCKS.tobytes()), *beside]).build())
    return open_gguf(path, "model.gguf")


def unscaled(tmp_path: Path) -> NDArray[np.float32]:
    values: NDArray[np.float32] = opened(tmp_path, []).tensors[NAME].values(0, 3072).array
    return values


@pytest.mark.parametrize("name", ["blk.0.ffn_down.scale", "blk.0.ffn_down.weight.scale"])
@pytest.mark.parametrize("shape", [(1,), ()])
def test_the_factor_multiplies_the_values_and_its_reciprocal_is_the_divisor(
    tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    plain = unscaled(tmp_path)
    tensor = opened(tmp_path, [Tensor(name, 0, shape, f32(0.3))]).tensors[NAME]
    assert np.array_equal(tensor.values(0, 3072).array, plain * np.float32(0.3))
    assert np.array_equal(tensor.values(515, 1029).array, (plain * np.float32(0.3))[515:1029])
    words = tensor.words("nvfp4", 2, 5)
    assert words.divisors is not None
    assert words.divisors.tolist() == [np.float32(1 / np.float64(np.float32(0.3)))] * 3
    assert np.allclose(get_format("nvfp4").decode(words), tensor.values(1024, 2560).array.reshape(3, 512), rtol=3e-7)
    assert [origin.tensor for origin in tensor.origins] == [NAME, name]


def test_each_expert_has_its_own_factor(tmp_path: Path) -> None:
    plain = unscaled(tmp_path).reshape(3, -1)
    factors = (1e-3, 1.0, 1e3)
    tensor = opened(tmp_path, [Tensor("blk.0.ffn_down.scale", 0, (3,), f32(*factors))], (3, 2, 512)).tensors[NAME]
    expected = plain * np.array(factors, dtype=np.float32)[:, None]
    assert np.array_equal(tensor.values(0, 3072).array, expected.reshape(-1))
    assert np.array_equal(tensor.values(1000, 2060).array, expected.reshape(-1)[1000:2060])
    words = tensor.words("nvfp4", 1, 6)
    assert words.divisors is not None
    assert words.divisors.tolist() == [np.float32(1 / np.float64(np.float32(factors[row // 2]))) for row in range(1, 6)]


def test_scales_are_no_weights_of_their_own(tmp_path: Path) -> None:
    beside = [
        Tensor("blk.0.ffn_down.scale", 0, (1,), f32(2.0)),
        Tensor("blk.0.ffn_down.input_scale", 0, (1,), f32(0.5)),
        Tensor("blk.1.norm.scale", 0, (1,), f32(1.0)),
    ]
    checkpoint = opened(tmp_path, beside)
    assert set(checkpoint.tensors) == {NAME, *(tensor.name for tensor in beside)}
    classification = classify(checkpoint, None)
    assert classification.plain == tuple(classification.sources) == (NAME, "blk.1.norm.scale")
    assert (classification.skipped, classification.notes) == ({}, ())
    encoding = classification.sources[NAME].encoding
    assert encoding is not None
    assert encoding.divisors == (0.5,)
    assert (encoding.input_divisor, encoding.activations) == (2.0, {"blk.0.ffn_down.input_scale": (0.5,)})


def test_an_activation_scale_alone_changes_no_value(tmp_path: Path) -> None:
    plain = unscaled(tmp_path)
    tensor = opened(tmp_path, [Tensor("blk.0.ffn_down.input_scale", 0, (1,), f32(0.5))]).tensors[NAME]
    assert np.array_equal(tensor.values(0, 3072).array, plain)
    assert tensor.words("nvfp4", 0, 6).divisors is not None


@pytest.mark.parametrize("factor", [0.0, -0.0, -1.0, float("inf"), float("nan"), 2.0**-128, 2.0**-149])
def test_a_factor_that_is_no_positive_number_is_refused(tmp_path: Path, factor: float) -> None:
    tensor = opened(tmp_path, [Tensor("blk.0.ffn_down.scale", 0, (1,), f32(factor))]).tensors[NAME]
    message = f"{NAME}: its global scale blk.0.ffn_down.scale must be finite and positive"
    for read in (lambda: tensor.values(0, 1), lambda: tensor.words("nvfp4", 0, 1)):
        with pytest.raises(SourceError) as caught:
            read()
        assert caught.value.problems[0].message == message


@pytest.mark.parametrize(
    ("beside", "says"),
    [
        (
            [Tensor("blk.0.ffn_down.scale", 0, (6,), bytes(24))],
            "blk.0.ffn_down.scale is F32 [6], where F32 of 1",
        ),
        ([Tensor("blk.0.ffn_down.scale", 1, (1,), bytes(2))], "blk.0.ffn_down.scale is F16 [1]"),
        ([Tensor("blk.0.ffn_down.input_scale", 0, (0,))], "blk.0.ffn_down.input_scale is F32 [0]"),
        (
            [Tensor(f"blk.0.ffn_down{end}", 0, (1,), f32(1.0)) for end in (".scale", ".weight.scale")],
            f"blk.0.ffn_down.scale and blk.0.ffn_down.weight.scale are both there for {NAME}",
        ),
    ],
)
def test_scales_that_cannot_be_are_refused(tmp_path: Path, beside: Sequence[Tensor], says: str) -> None:
    with pytest.raises(SourceError) as caught:
        opened(tmp_path, beside)
    (problem,) = caught.value.problems
    assert problem.code == "bad-factor"
    assert problem.message.startswith(says)
