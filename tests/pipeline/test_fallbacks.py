"""Misfits, quantizing again, NaN and infinities: what a recipe says for them, down to the bytes (recipes.md)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ninfer_convert.pipeline.run import Running, run
from tests.oracle import objects
from tests.pipeline.converting import (
    Array,
    bound,
    checkpoint,
    convert,
    expected,
    lines,
    made,
    messages,
    nvfp4_checkpoint,
    planned,
    record,
    refused,
    stored,
)

GOLDEN = Path(__file__).parent.parent / "golden"
BLOCKS = GOLDEN / "gguf" / "blocks.gguf"
DECODED = load_file(GOLDEN / "gguf" / "expected.safetensors")
MISFIT = GOLDEN / "encoded" / "ct_nvfp4_misfit"
KEPT = lines("[defaults]", "F16 = 'fp32'")


def assign(select: str, *says: str) -> str:
    return lines("[[assign]]", f"select = '{select}'", *says)


# Quantizing again.


def test_the_key_admits_quantizing_its_own_matches_again(tmp_path: Path) -> None:
    select = "blk.0.{q8_0,iq2_xxs}.weight"
    recipe = KEPT + assign(select, "format = 'q5_g64_fp16'")
    assert messages(refused(BLOCKS, recipe, tmp_path)) == [
        "6: blk.0.iq2_xxs.weight, blk.0.q8_0.weight (1 IQ2_XXS, 1 Q8_0): grouped_absmax would quantize decoded values "
        "once more: say requantize = true, or pass --requantize, if that is meant"
    ]
    artifact = convert(BLOCKS, recipe + "requantize = true\n", tmp_path)
    for name in ("blk.0.q8_0.weight", "blk.0.iq2_xxs.weight"):
        assert stored(artifact, name) == ("q5_g64_fp16", [6, 512], expected("q5_g64_fp16", DECODED[name]))
    assert artifact.directory["provenance"]["overrides"]["requantize"] is False


def test_the_option_admits_all(tmp_path: Path) -> None:
    recipe = KEPT + assign("blk.0.*.weight", "where.dtype = 'encoded'", "format = 'q4_g64_fp16'")
    artifact = convert(BLOCKS, recipe, tmp_path, requantize=True)
    names = [name for name in artifact.directory["bindings"] if stored(artifact, name)[0] == "q4_g64_fp16"]
    assert len(names) == 18
    for name in names:
        assert stored(artifact, name)[2] == expected("q4_g64_fp16", DECODED[name]), name
        assert made(artifact, name)["method"] == "grouped_absmax"
    assert artifact.directory["provenance"]["overrides"]["requantize"] is True


def test_an_override_admits_them_too(tmp_path: Path) -> None:
    recipe = KEPT + assign("blk.0.q6_k.weight", "format = 'q8_g32_fp16'")
    artifact = convert(BLOCKS, recipe, tmp_path, overrides=("blk.0.q6_k.weight:requantize=true",))
    data = expected("q8_g32_fp16", DECODED["blk.0.q6_k.weight"])
    assert stored(artifact, "blk.0.q6_k.weight") == ("q8_g32_fp16", [6, 512], data)


# Misfits.


def values(name: str) -> Array:
    """A weight as the peer decodes it."""
    found: Array = load_file(MISFIT / "expected.safetensors")[name]
    return found


def test_what_the_layout_does_not_hold_takes_the_misfit_format(tmp_path: Path) -> None:
    recipe = assign("*_proj.weight", "where.dtype = 'NVFP4'", "format = 'nvfp4'")
    found = messages(refused(MISFIT, recipe, tmp_path))
    assert len(found) == 3
    assert all('; say misfit = "bf16" (or another format) for it' in message for message in found)
    recipe += "misfit = 'bf16'\n"
    plan = planned(MISFIT, recipe, tmp_path)
    assert plan.resolution.misfits == {"nvfp4": 3}
    artifact = convert(MISFIT, recipe, tmp_path)
    for name in load_file(MISFIT / "expected.safetensors"):
        shape = list(values(name).shape)
        assert stored(artifact, name) == ("bf16", shape, objects.bf16(values(name))), name
        assert made(artifact, name)["method"] == "cast_direct"


def test_a_misfit_format_that_quantizes_needs_the_key_too(tmp_path: Path) -> None:
    recipe = assign("*_proj.weight", "where.dtype = 'NVFP4'", "format = 'nvfp4'", "misfit = 'q8_g32_fp16'")
    assert "6: " in messages(refused(MISFIT, recipe, tmp_path))[0]
    artifact = convert(MISFIT, recipe + "requantize = true\n", tmp_path)
    for name in load_file(MISFIT / "expected.safetensors"):
        assert stored(artifact, name)[2] == expected("q8_g32_fp16", values(name)), name


@pytest.mark.parametrize("kinds", [("gate", "up"), ("gate", "up", "odd")])
def test_a_parent_is_judged_whole(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """Members of 128, 128 and 64 rows: with the last the parent misfits, and none of it is nvfp4."""
    nvfp4_checkpoint(tmp_path, {f"l.0.{kind}": 2.0 for kind in kinds}, rows={"l.0.odd": 64})
    globs = ", ".join(f"'l.*.{kind}.weight'" for kind in kinds)
    recipe = assign("*", "format = 'nvfp4'", "misfit = 'bf16'") + lines("[[group]]", f"select = [{globs}]")
    artifact = convert(tmp_path / "quantized", recipe, tmp_path)
    plan = planned(tmp_path / "quantized", recipe, tmp_path)
    ((id, _, end),) = bound(artifact, "l.0.gate.weight")
    assert end == 128 * 64
    whole = "odd" not in kinds
    assert record(artifact, id)["format"] == ("nvfp4" if whole else "bf16")
    assert record(artifact, id)["shape"] == [256 if whole else 320, 64]
    assert plan.resolution.misfits == ({} if whole else {"nvfp4": 1})


def test_a_piece_is_judged_by_itself(tmp_path: Path) -> None:
    nvfp4_checkpoint(tmp_path, {"l.0.up": 2.0}, rows={"l.0.up": 192})
    recipe = assign("*", "format = 'nvfp4'", "misfit = 'fp32'") + assign("*", "rows = [128, 192]", "format = 'bf16'")
    artifact = convert(tmp_path / "quantized", recipe, tmp_path)
    found = [record(artifact, id) for id, _, _ in bound(artifact, "l.0.up.weight")]
    assert [(each["format"], each["shape"]) for each in found] == [("nvfp4", [128, 64]), ("bf16", [64, 64])]


# NaN and infinities.


@pytest.mark.parametrize(
    ("said", "warned", "kept"),
    [("", True, True), ("warn", True, True), ("keep", False, True), ("refuse", False, False)],
)
def test_non_finite_words_of_direct_formats(tmp_path: Path, said: str, warned: bool, kept: bool) -> None:
    words = np.array([0x7FC1, 0xFF80, 0x3F80, 0xFFFF], np.uint16)
    path = checkpoint(tmp_path / "m.safetensors", {"w": words})
    recipe = assign("w", "format = 'bf16'", *([f"non_finite = '{said}'"] if said else []))
    if not kept:
        (problem,) = refused(path, recipe, tmp_path).problems
        assert problem.tensor == "w"
        assert "3" in problem.message
        return
    result = run(planned(path, recipe, tmp_path), tmp_path / "b.ninfer", Running())
    counted = ["w: 3 NaN or infinite values are kept bit for bit"]
    assert [warning.message for warning in result.warnings] == (counted if warned else [])
    assert stored(convert(path, recipe, tmp_path), "w") == ("bf16", [4], words.tobytes())


@pytest.mark.parametrize("said", ["warn", "refuse", "keep"])
def test_a_cast_that_makes_an_infinity_is_refused_unless_it_is_kept(tmp_path: Path, said: str) -> None:
    path = checkpoint(tmp_path / "m.safetensors", {"w": np.array([1.0, 3.4e38], np.float32)})
    recipe = assign("w", "format = 'bf16'", f"non_finite = '{said}'")
    if said == "keep":
        assert stored(convert(path, recipe, tmp_path), "w")[2] == b"\x80\x3f\x80\x7f"
    else:
        assert "[1]" in str(refused(path, recipe, tmp_path))
