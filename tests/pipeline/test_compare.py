"""What compare finds: the oracle's errors, identical words, totals, progress and thresholds."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from ninfer_convert.errors import ArtifactError, SourceError, UsageError
from ninfer_convert.kernels.metrics import CHUNK
from ninfer_convert.pipeline.compare import compare
from ninfer_convert.pipeline.conversion import convert
from ninfer_convert.pipeline.metrics import MEASURES, Metrics
from ninfer_convert.pipeline.progress import Progress
from ninfer_convert.pipeline.run import Running
from ninfer_convert.pipeline.stored import open_artifact
from tests.oracle import gguf
from tests.oracle.metrics import metrics
from tests.pipeline import artifacts
from tests.pipeline.comparing import Array, agrees, artifact, checkpoint, only
from tests.support import TINY_LLAMA, gaussian, write_sparse_safetensors

GOLDEN = Path(__file__).parents[1] / "golden" / "gguf"


def noisy(values: Array, seed: int = 0) -> Array:
    noise = np.random.default_rng(seed).standard_normal(values.shape) * np.abs(values).mean() / 10
    changed: Array = (values + noise).astype(np.float32)
    return changed


@pytest.mark.parametrize("format", artifacts.EVERY_FORMAT)
def test_every_format_against_a_checkpoint(format: str, tmp_path: Path) -> None:
    stored = artifacts.stored(format)
    if format in ("bf16", "fp32"):
        stored = artifacts.floats(format, gaussian((5, 130)))
    reference = noisy(stored.values)
    found = compare(artifact(tmp_path, {"w": stored}), checkpoint(tmp_path, {"w": reference}))
    parameter = only(found)
    assert (parameter.format, parameter.reference, parameter.shape) == (format, "F32", stored.shape)
    assert (parameter.identical, parameter.non_finite, parameter.disagreeing) == (False, 0, 0)
    agrees(parameter, stored.values, reference)
    if not parameter.integral:
        assert found.total == parameter.metrics


@pytest.mark.parametrize("format", artifacts.EVERY_FORMAT)
def test_every_format_against_an_artifact(format: str, tmp_path: Path) -> None:
    """Identical words are said to be that; one code that differs is an error of that code alone."""
    stored = artifacts.stored(format)
    path = artifact(tmp_path, {"w": stored})
    assert compare(path, artifact(tmp_path, {"w": stored}, "b")).identical

    payload = bytes([stored.payload[0] ^ 0x01]) + stored.payload[1:]
    other = artifacts.Stored(format, stored.shape, payload, stored.codes, None, stored.values, stored.divisors)
    found = compare(path, artifact(tmp_path, {"w": other}, "c"))
    assert not found.identical
    assert not only(found).identical
    assert only(found).metrics.max > 0
    assert only(found).disagreeing == 0


def test_different_formats_of_one_tensor(tmp_path: Path) -> None:
    weights = gaussian((70, 200))
    source = checkpoint(tmp_path, {"w": weights})
    values = {}
    for recipe in ("q4", "q8", "bf16"):
        convert(source, recipe, tmp_path / f"{recipe}.ninfer")
        with open_artifact(tmp_path / f"{recipe}.ninfer") as opened:
            values[recipe] = opened["w"].numpy()
    for a, b in (("q4", "q8"), ("q8", "bf16"), ("bf16", "q4")):
        parameter = only(compare(tmp_path / f"{a}.ninfer", tmp_path / f"{b}.ninfer"))
        agrees(parameter, values[a], values[b])
        assert not parameter.identical


@pytest.mark.parametrize(
    ("tensor", "stored", "identical"),
    [
        (
            np.arange(65536, dtype=np.uint16),
            artifacts.direct("bf16", (65536,), np.arange(65536, dtype=np.uint16)),
            True,
        ),
        (gaussian((3, 5)), artifacts.floats("fp32", gaussian((3, 5))), True),
        (np.arange(-3, 3, dtype=np.int32), artifacts.direct("int32", (6,), np.arange(-3, 3, dtype=np.int32)), True),
        (np.arange(4, dtype=np.float16), artifacts.floats("fp32", np.arange(4.0)), False),
        (np.arange(4, dtype=np.float64), artifacts.floats("fp32", np.arange(4.0)), False),
        (np.arange(4, dtype=np.float32), artifacts.floats("bf16", np.arange(4.0)), False),
        (np.arange(4, dtype=np.int64), artifacts.direct("int32", (4,), np.arange(4, dtype=np.int32)), False),
        (np.arange(4, dtype=np.uint8), artifacts.floats("fp32", np.arange(4.0)), False),
        (np.array([True, False]), artifacts.floats("bf16", np.array([1.0, 0.0])), False),
    ],
    ids=lambda value: value.format if isinstance(value, artifacts.Stored) else str(getattr(value, "dtype", value)),
)
def test_equal_values_and_identical_words(
    tensor: Array, stored: artifacts.Stored, identical: bool, tmp_path: Path
) -> None:
    """Words are identical in the same type alone; equal values of another type have no error all the same."""
    parameter = only(compare(artifact(tmp_path, {"w": stored}), checkpoint(tmp_path, {"w": tensor})))
    assert parameter.identical == identical
    assert parameter.metrics == Metrics(0.0, 0.0, 0.0, math.inf, 1.0)
    assert parameter.disagreeing == 0
    assert parameter.integral == (
        stored.format == "int32" or (tensor.dtype.kind in "iub" and tensor.dtype != np.uint16)
    )


def test_bits_count_where_values_are_equal(tmp_path: Path) -> None:
    """A zero of the other sign and a NaN of another payload are other words."""
    ours, theirs = np.array([0x00000000, 0x7FC00000], np.uint32), np.array([0x80000000, 0x7FC00001], np.uint32)
    parameter = only(
        compare(
            artifact(tmp_path, {"w": artifacts.direct("fp32", (2,), ours)}),
            checkpoint(tmp_path, {"w": theirs.view(np.float32)}),
        )
    )
    assert not parameter.identical
    assert (parameter.metrics.max, parameter.non_finite, parameter.disagreeing) == (0.0, 1, 0)


def test_what_is_not_finite_is_counted_and_left_out(tmp_path: Path) -> None:
    inf, nan = math.inf, math.nan
    ours = np.array([1, nan, inf, -inf, nan, 2.0, inf, 4], np.float32)
    theirs = np.array([1.5, nan, inf, -inf, 1, nan, -inf, 4], np.float32)
    found = compare(artifact(tmp_path, {"w": artifacts.floats("fp32", ours)}), checkpoint(tmp_path, {"w": theirs}))
    parameter = only(found)
    assert (parameter.non_finite, parameter.disagreeing) == (6, 3)
    agrees(parameter, ours, theirs)
    assert [problem.code for problem in found.judge({"max": 1.0})] == ["non-finite"]
    assert found.judge({}) == ()


def test_extreme_numbers(tmp_path: Path) -> None:
    """Squares of subnormal and of the largest binary32 numbers are kept; of binary64 ones they may overflow."""
    ours = artifacts.floats("fp32", np.array([1e-45, 3e38, -3e38]))
    theirs = np.array([0, -3e38, -3e38], np.float32)
    agrees(only(compare(artifact(tmp_path, {"w": ours}), checkpoint(tmp_path, {"w": theirs}))), ours.values, theirs)
    wide = checkpoint(tmp_path, {"w": np.array([0, 1e200, -1e308])})
    found = compare(tmp_path / "a.ninfer", wide)
    assert only(found).metrics.rms == math.inf
    assert {problem.code for problem in found.judge(dict.fromkeys(MEASURES, 0.5))} == set(MEASURES)


def test_zeros_on_either_side(tmp_path: Path) -> None:
    zeros, ones = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    objects = {"both": artifacts.floats("fp32", zeros), "ours": artifacts.floats("fp32", zeros)}
    objects["theirs"] = artifacts.floats("fp32", ones)
    found = compare(artifact(tmp_path, objects), checkpoint(tmp_path, {"both": zeros, "ours": ones, "theirs": zeros}))
    both, ours, theirs = found.parameters
    assert both.metrics == Metrics(0.0, 0.0, 0.0, math.inf, 1.0)
    assert ours.metrics == Metrics(1.0, 1.0, 1.0, 0.0, 0.0)
    assert theirs.metrics == Metrics(1.0, 1.0, math.inf, -math.inf, 0.0)


def test_blocks_are_identical_words_and_compare_by_decoded_values(tmp_path: Path) -> None:
    """An artifact of a GGUF's own blocks; the types that stay F16 or have no format are cast to fp32."""
    source = GOLDEN / "blocks.gguf"
    recipe = tmp_path / "r.toml"
    recipe.write_text('schema = 1\nname = "r"\n[defaults]\nF16 = "fp32"\n')
    convert(source, recipe, tmp_path / "own.ninfer")
    found = compare(tmp_path / "own.ninfer", source)
    identical = {parameter.name for parameter in found.parameters if parameter.identical}
    assert {parameter.name for parameter in found.parameters} - identical == {"token_embd.weight"}
    assert all(parameter.metrics.max == 0 for parameter in found.parameters)
    assert {p.reference for p in found.parameters} >= {"Q4_K", "IQ2_XXS", "F32", "F16"}

    values = {name: artifacts.stored(f"gguf_{name.split('.')[2]}").values for name in identical if ".q4_k." in name}
    (name,) = values
    objects = {name: artifacts.floats("bf16", values[name])}
    found = compare(artifact(tmp_path, objects), source)
    agrees(only(found), objects[name].values, values[name])
    assert len(found.only_in_b) == len(gguf.read(source)) - 1


def test_blocks_and_the_exact_format_of_other_words(tmp_path: Path) -> None:
    """Q8_0 blocks and the q8_g32_fp16 words that they hold."""
    name = "blk.0.q8_0.weight"
    _, shape, rows = gguf.read(GOLDEN / "blocks.gguf")[name]
    blocks = rows.reshape(6, 16, 34)
    codes, scales = blocks[:, :, 2:].view(np.int8).reshape(6, 512), blocks[:, :, :2].copy().view(np.uint16)[:, :, 0]
    assert codes.min() > -128
    payload = codes.tobytes() + scales.tobytes()
    values = artifacts.stored("gguf_q8_0").values
    stored = artifacts.Stored("q8_g32_fp16", shape, payload, codes, scales, values)
    parameter = only(compare(artifact(tmp_path, {name: stored}), GOLDEN / "blocks.gguf"))
    assert parameter.identical
    assert (parameter.format, parameter.reference) == ("q8_g32_fp16", "Q8_0")


def test_words_that_the_format_cannot_hold_are_compared_by_value(tmp_path: Path) -> None:
    block = np.array([0x3C00], np.uint16).tobytes() + np.arange(-128, -96, dtype=np.int8).tobytes()
    source = tmp_path / "m.gguf"
    source.write_bytes(gguf.File([gguf.Tensor("w", 8, (1, 32), block)]).build())
    stored = artifacts.stored("q8_g32_fp16", 1, 32)
    parameter = only(compare(artifact(tmp_path, {"w": stored}), source))
    assert not parameter.identical
    agrees(parameter, stored.values, np.arange(-128, -96, dtype=np.float32).reshape(1, 32))


def long_pair(tmp_path: Path) -> tuple[Path, Path]:
    """Parameters of many chunks and pieces: a vector, a matrix whose rows no chunk meets, one of a few long rows."""
    shapes = {"vector": (5_000_001,), "matrix": (1000, 3001), "long": (3, 1_000_001)}
    weights = {name: gaussian(shape, seed) for seed, (name, shape) in enumerate(shapes.items())}
    source = checkpoint(tmp_path, weights)
    recipe = tmp_path / "r.toml"
    assign = '[[assign]]\nselect = "{}"\nformat = "{}"\n'
    recipe.write_text(
        'schema = 1\nname = "r"\n' + assign.format("vector", "bf16") + assign.format("{matrix,long}", "q5_g64_fp16")
    )
    convert(source, recipe, tmp_path / "a.ninfer", running=Running(jobs=2))
    return tmp_path / "a.ninfer", source


def test_any_number_of_threads_and_any_piece_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = long_pair(tmp_path)
    found = compare(*paths)
    assert len(found.parameters) == 3
    assert not any(parameter.identical for parameter in found.parameters)
    assert found == compare(*paths, jobs=2) == compare(*paths, jobs=8)
    monkeypatch.setattr("ninfer_convert.pipeline.compare.PIECE_ELEMENTS", CHUNK)
    assert found == compare(*paths) == compare(*paths, jobs=3)
    reverse = compare(paths[0], paths[0], jobs=2)
    assert reverse.identical


@pytest.mark.parametrize("position", [0, CHUNK, 12 * CHUNK - 1, 12 * CHUNK + 2])
def test_one_word_in_a_million_is_seen(position: int, tmp_path: Path) -> None:
    words = np.arange(12 * CHUNK + 3, dtype=np.uint32)
    path = artifact(tmp_path, {"w": artifacts.direct("fp32", words.shape, words)})
    words[position] ^= 0x80000000
    parameter = only(compare(path, checkpoint(tmp_path, {"w": words.view(np.float32)}), jobs=3))
    assert not parameter.identical
    assert parameter.metrics.max == 2 * abs(float(words.view(np.float32)[position]))


def test_memory_does_not_grow_with_the_parameter(tmp_path: Path) -> None:
    """256 MiB of values, all zero and on no disk, in a small part of that."""
    shape = (1 << 14, 1 << 12)
    source = write_sparse_safetensors(tmp_path / "m.safetensors", {"w": ("BF16", shape, 2 << 26)})
    convert(source, "q4", tmp_path / "a.ninfer", running=Running(digest=False))
    tracemalloc.start()
    found = compare(tmp_path / "a.ninfer", source)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert only(found).metrics.max == 0
    assert peak < 20 << 20


def test_the_total_is_taken_over_all_values_but_whole_numbers(tmp_path: Path) -> None:
    arrays = {"a": gaussian((40, 64), 1), "b": gaussian((300,), 2)}
    changed = {name: noisy(array) for name, array in arrays.items()}
    ids = np.arange(100_000, 100_512, dtype=np.int64)
    objects = {name: artifacts.floats("fp32", array) for name, array in changed.items()}
    objects["ids"] = artifacts.direct("int32", (512,), ids.astype(np.int32) + 1)
    found = compare(artifact(tmp_path, objects), checkpoint(tmp_path, {**arrays, "ids": ids}))
    a, b, numbers = found.parameters
    assert [parameter.integral for parameter in (a, b, numbers)] == [False, False, True]
    agrees(numbers, ids + 1, ids)
    wanted = metrics(
        *(np.concatenate([side["a"].ravel(), side["b"]]).astype(float).tolist() for side in (changed, arrays))
    )
    assert asdict(found.total) == pytest.approx(wanted, rel=1e-12)


def test_the_first_must_be_an_artifact(tmp_path: Path) -> None:
    path = artifact(tmp_path, {"w": artifacts.floats("fp32", gaussian((4,)))})
    with pytest.raises(UsageError, match="name the artifact first"):
        compare(checkpoint(tmp_path, {"w": gaussian((4,))}), path)
    with pytest.raises(SourceError, match="does not exist"):
        compare(path, tmp_path / "missing")
    damaged = tmp_path / "damaged.ninfer"
    damaged.write_bytes(path.read_bytes()[:-1])
    for pair in ((path, damaged), (damaged, path)):
        with pytest.raises(ArtifactError, match="cut off"):
            compare(*pair)


def test_progress_counts_the_bytes_of_both_sides(tmp_path: Path) -> None:
    source = checkpoint(tmp_path, {"a": gaussian((100,)), "b": gaussian((3, 50))})
    objects = {"a": artifacts.floats("bf16", gaussian((100,))), "b": artifacts.floats("fp32", gaussian((3, 50)))}
    seen: list[Progress] = []
    compare(artifact(tmp_path, objects), source, progress=seen.append)
    assert seen == [Progress(600, 1800, "a"), Progress(1800, 1800, "b")]


def test_thresholds(tmp_path: Path) -> None:
    found = compare(
        artifact(tmp_path, {"w": artifacts.floats("fp32", np.array([1.0, 2.5]))}),
        checkpoint(tmp_path, {"w": np.array([1.0, 2.0], np.float32)}),
    )
    values = asdict(only(found).metrics)
    assert found.judge(values) == ()
    for measure, value in values.items():
        worse = math.nextafter(value, -math.inf if measure in ("max", "rms", "relative") else math.inf)
        (problem,) = found.judge({measure: worse})
        assert (problem.code, problem.tensor) == (measure, "w")
        assert f"w: {measure} is {value:.6g}" in problem.message


def test_a_conversion_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "a.ninfer"
    convert(TINY_LLAMA, "q4", path)
    found = compare(path, TINY_LLAMA)
    assert (found.only_in_a, found.only_in_b, found.shapes) == ((), (), ())
    assert {parameter.identical for parameter in found.parameters if parameter.format == "bf16"} == {True}
    assert 18 < found.total.sqnr < 24
    assert found.judge({"sqnr": 18.0}) == ()
