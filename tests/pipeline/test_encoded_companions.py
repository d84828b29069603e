"""What stands beside encoded weights in a conversion: activation scales, scales of caches, orphans."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.oracle import encoded as oracle
from tests.oracle import safetensors
from tests.pipeline.encoded import assign, bound, checkpoint, convert, planned, refused, written
from tests.sources.modules import module, numbers


def test_activation_scales_go_into_the_provenance_with_one_line(tmp_path: Path) -> None:
    """Field fault R27: no abort, nothing multiplied into the weight."""
    input = checkpoint("ct_fp8_tensor", tmp_path)
    plan = planned(input, "import", tmp_path)
    (warning,) = [warning for warning in plan.warnings if warning.code == "activation-scales"]
    assert warning.message.startswith("7 activation scales kept in the provenance, as no use takes them: ")
    kept = plan.directory.provenance["activation_scales"]
    tensors = safetensors.read((input / "model.safetensors").read_bytes())
    stored = {
        name: float(oracle.scale(int.from_bytes(data, "little"), "BF16"))
        for name, (_, _, data) in tensors.items()
        if name.endswith("input_scale")
    }
    assert {f"{name.removesuffix('input_scale')}weight": {name: value} for name, value in stored.items()} == kept


def test_activation_scales_that_are_no_numbers_are_spelled_out(tmp_path: Path) -> None:
    tensors = module(
        "a",
        weight=("F8_E4M3", (2, 2), b"\x38" * 4),
        weight_scale=numbers("F32", (), 1.0),
        input_scale=numbers("F32", (3,), float("nan"), float("inf"), 0.5),
    )
    artifact = convert(written(tmp_path / "m", tensors), "import", tmp_path)
    assert artifact.directory["provenance"]["activation_scales"] == {"a.weight": {"a.input_scale": ["nan", "inf", 0.5]}}


def test_scales_of_a_key_value_cache_are_left_out_with_one_line(tmp_path: Path) -> None:
    tensors = {
        "l.k_scale": numbers("F32", (), 1.0),
        "l.v_scale": numbers("F32", (), 1.0),
        "l.weight": numbers("F32", (2,), 1.0),
    }
    plan = planned(written(tmp_path / "m", tensors), "import", tmp_path)
    messages = [warning.message for warning in plan.warnings if warning.code == "source-note"]
    assert messages == ["2 tensors left out, scale of a key/value cache: l.k_scale, l.v_scale"]
    skipped = plan.directory.provenance["skipped"]
    assert [entry["name"] for entry in skipped] == ["l.k_scale", "l.v_scale"]


ORPHANS = {
    "a.weight_scale": numbers("F32", (1,), 1.0),
    "b.weight_scale": numbers("F32", (1,), 2.0),
    "c.weight": numbers("F32", (2, 2), 1.0),
}


def test_orphans_are_an_error_unless_the_recipe_names_them(tmp_path: Path) -> None:
    input = written(tmp_path / "m", ORPHANS)
    (problem,) = refused(input, "import", tmp_path).problems
    assert problem.code == "orphan"
    assert "2 weight_scale tensors without a weight to belong to: a.weight_scale, b.weight_scale" in problem.message
    skip = '[[skip]]\nselect = "{}"\nreason = "left over"\n'
    (problem,) = refused(input, skip.format("a.*"), tmp_path).problems
    assert "1 weight_scale tensor without a weight to belong to: b.weight_scale" in problem.message
    both = convert(input, skip.format("?.weight_scale"), tmp_path)
    assert list(both.directory["bindings"]) == ["c.weight"]
    assert [entry["reason"] for entry in both.directory["provenance"]["skipped"]] == ["left over"] * 2
    named = convert(input, skip.format("a.*") + assign("b.weight_scale", format="fp32"), tmp_path)
    assert bound(named, "b.weight_scale") == ("fp32", struct.pack("<f", 2.0))
    (problem,) = refused(input, assign("*.weight_scale", format="fp32"), tmp_path).problems
    assert problem.code == "orphan"


def test_orphans_are_named_as_rename_calls_them(tmp_path: Path) -> None:
    input = written(tmp_path / "m", ORPHANS)
    rename = '[[rename]]\nmatch = "(.)\\\\.weight_scale"\nto = "scales/\\\\1"\n'
    text = rename + '[[skip]]\nselect = "scales/a"\nreason = "x"\n' + assign("scales/b", format="fp32")
    assert list(convert(input, text, tmp_path).directory["bindings"]) == ["c.weight", "scales/b"]
