"""Artifacts under logical names, held against the checkpoints that they were made from, and against each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninfer_convert import compare, convert
from tests.architectures import small
from tests.architectures.small_gguf import write as write_gguf
from tests.oracle import container
from tests.pipeline import artifacts
from tests.support import gaussian


@pytest.mark.parametrize("kind", ["dense", "experts of their own", "experts in banks"])
def test_every_parameter_meets_its_part_of_the_checkpoint(tmp_path: Path, kind: str) -> None:
    small.write(tmp_path, small.KINDS[kind])
    convert(tmp_path, "bf16", tmp_path / "a.ninfer")
    found = compare(tmp_path / "a.ninfer", tmp_path)
    assert (found.only_in_a, found.only_in_b, found.shapes) == ((), (), ())
    assert len(found.parameters) == (59 if kind == "dense" else 103)
    assert found.total.max == 0


def test_what_is_quantized_is_measured_part_by_part(tmp_path: Path) -> None:
    small.write(tmp_path, small.KINDS["dense"])
    convert(tmp_path, "q8", tmp_path / "a.ninfer")
    found = compare(tmp_path / "a.ninfer", tmp_path)
    errors = {parameter.name: parameter.metrics.max for parameter in found.parameters}
    assert len(errors) == 59
    assert 0 < errors["text/layers/1/attention/gate"] < 1
    assert errors["text/final_norm"] == 0


def test_what_was_passed_by_is_only_in_the_checkpoint(tmp_path: Path) -> None:
    small.write(tmp_path, small.Kind(extra=("mtp.fc.weight",)))
    convert(tmp_path, "bf16", tmp_path / "a.ninfer")
    found = compare(tmp_path / "a.ninfer", tmp_path)
    assert found.only_in_b == ()
    assert found.skipped == {"mtp.fc.weight": "component mtp is not converted yet"}


def test_a_generic_artifact_of_the_same_checkpoint_is_met_by_the_tensors_names(tmp_path: Path) -> None:
    small.write(tmp_path, small.KINDS["dense"])
    (tmp_path / "r.toml").write_text('schema = 1\narchitecture = "generic"\n')
    convert(tmp_path, tmp_path / "r.toml", tmp_path / "a.ninfer")
    found = compare(tmp_path / "a.ninfer", tmp_path)
    assert (found.only_in_a, found.only_in_b) == ((), ())
    assert found.total.max == 0


def test_columns_in_llama_cpps_order_are_met_in_it(tmp_path: Path) -> None:
    """A GGUF's blocks keep their columns, so that an artifact of them stores them otherwise than any other does."""
    kind = small.KINDS["dense"]
    write_gguf(tmp_path, kind, blocks=True)
    small.write(tmp_path / "hf", kind)
    convert(tmp_path / "m.gguf", "gguf", tmp_path / "gguf.ninfer")
    convert(tmp_path / "hf", "q8", tmp_path / "q8.ninfer")
    convert(tmp_path / "hf", "bf16", tmp_path / "bf16.ninfer")
    name = "text/layers/0/gdn/output"
    for ours, other, step, reference in (
        ("gguf.ninfer", "m.gguf", 0, "Q8_0"),
        ("gguf.ninfer", "hf", 1, "BF16"),
        ("gguf.ninfer", "q8.ninfer", 2, "q8_g32_fp16"),
        ("q8.ninfer", "gguf.ninfer", 2, "gguf_q8_0"),
        ("gguf.ninfer", "gguf.ninfer", 0, "gguf_q8_0"),
        ("bf16.ninfer", "m.gguf", 1, "Q8_0"),
    ):
        (found,) = (each for each in compare(tmp_path / ours, tmp_path / other).parameters if each.name == name)
        # Values are whole numbers up to 128: an 8-bit step is about 1, another order would be off by hundreds.
        assert found.metrics.max <= step, (ours, other)
        assert found.reference == reference, (ours, other)


def test_columns_of_a_parameter_of_another_shape_are_not_moved(tmp_path: Path) -> None:
    write_gguf(tmp_path, small.KINDS["dense"], blocks=True)
    convert(tmp_path / "m.gguf", "gguf", tmp_path / "gguf.ninfer")
    name = "text/layers/0/gdn/output"
    other = artifacts.write(tmp_path / "b.ninfer", {name: artifacts.floats("fp32", gaussian((4, 6)))})
    (told,) = compare(tmp_path / "gguf.ninfer", other).shapes
    assert (told.name, told.b) == (name, (4, 6))
    (told,) = compare(other, tmp_path / "gguf.ninfer").shapes
    assert (told.name, told.a) == (name, (4, 6))


def test_the_same_blocks_under_another_order_of_columns_are_other_values(tmp_path: Path) -> None:
    write_gguf(tmp_path, small.KINDS["dense"], blocks=True)
    convert(tmp_path / "m.gguf", "gguf", tmp_path / "gguf.ninfer")
    made = container.read(tmp_path / "gguf.ninfer")
    half = small.NV * small.DV // 2
    for use in made.directory["uses"]:
        if "auxiliaries" in use:
            object = use["auxiliaries"]["input_columns"]["object"]
            parts = [{"object": object, "range": [half, 2 * half]}, {"object": object, "range": [0, half]}]
            use["auxiliaries"]["input_columns"] = {"parts": parts}
    container.write(tmp_path / "moved.ninfer", made.directory, made.payload)
    for other in ("gguf.ninfer", "m.gguf"):
        found = {each.name: each for each in compare(tmp_path / "moved.ninfer", tmp_path / other).parameters}
        assert found["text/layers/0/gdn/output"].metrics.max > 50, other
        assert found["text/layers/0/gdn/z"].metrics.max == 0
