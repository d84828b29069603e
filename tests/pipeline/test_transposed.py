"""Parameters whose axes were exchanged: recorded, compared and exported as the tensors that they were made from lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ninfer_convert import compare, convert, export
from ninfer_convert.pipeline.planned import Shaping
from tests.oracle import container, gguf
from tests.pipeline import artifacts
from tests.pipeline.comparing import artifact
from tests.pipeline.converting import lines
from tests.pipeline.restored import decoded, tensors, values
from tests.support import gaussian, write_safetensors

Array = np.ndarray[Any, Any]
SHAPES = {"a": (3, 4), "b": (6, 2), "square": (4, 4), "bank": (2, 3, 3), "wide": (2, 3, 5)}


def assign(select: str, *says: str) -> str:
    return lines("[[assign]]", f"select = {select}", *says)


def converted(folder: Path, arrays: Mapping[str, Array], *tables: str) -> Path:
    """The checkpoint of these arrays; the artifact beside it is converted by a recipe of these tables."""
    source = folder / "model.safetensors"
    write_safetensors(source, {name: ("F32", each.shape, each.tobytes()) for name, each in arrays.items()})
    (folder / "r.toml").write_text(lines("schema = 1") + "".join(tables))
    convert(source, folder / "r.toml", folder / "a.ninfer")
    return source


def exact(folder: Path, source: Path) -> None:
    """Exported like the checkpoint, every word is as it was; compared with it, every value is the same."""
    export(folder / "a.ninfer", folder / "out.safetensors", like=source)
    assert tensors(folder / "out.safetensors") == tensors(source)
    found = compare(folder / "a.ninfer", source)
    assert (found.shapes, found.only_in_a, found.only_in_b) == ((), (), ())
    assert {
        parameter.name for parameter in found.parameters if parameter.metrics.max or not parameter.identical
    } == set()


def test_weights_lie_as_they_lay(tmp_path: Path) -> None:
    """As shapes cannot tell, the provenance does."""
    arrays = {name: gaussian(shape, seed) for seed, (name, shape) in enumerate(SHAPES.items())}
    rule = assign('["a", "square", "bank", "wide"]', 'format = "fp32"', "transpose = true")
    source = converted(tmp_path, arrays, rule)
    assert decoded(tmp_path / "a.ninfer")["square"].tolist() == arrays["square"].T.tolist()
    told = container.read(tmp_path / "a.ninfer").directory["provenance"]["parameters"]
    assert told == {
        name: {"transposed": {"source": "model", "tensor": name}} for name in ("a", "square", "bank", "wide")
    }
    exact(tmp_path, source)


def test_a_shape_is_told_beside_it(tmp_path: Path) -> None:
    converted(tmp_path, {"bank": gaussian((2, 64, 3))}, assign('"bank"', 'format = "q8_g32_fp16"', "transpose = true"))
    told = container.read(tmp_path / "a.ninfer").directory["provenance"]["parameters"]
    assert told == {"bank": {"shape": [2, 3, 64], "transposed": {"source": "model", "tensor": "bank"}}}
    (parameter,) = compare(tmp_path / "a.ninfer", tmp_path / "model.safetensors").parameters
    assert parameter.metrics.max < 0.05


def test_members_of_a_group(tmp_path: Path) -> None:
    arrays = {name: gaussian((64, 64), seed) for seed, name in enumerate("qk")}
    group = lines("[[group]]", "select = ['q', 'k']")
    exact(tmp_path, converted(tmp_path, arrays, assign('"*"', 'format = "fp32"', "transpose = true"), group))


@pytest.mark.parametrize("stored", [False, True])
def test_what_shares_a_transposed_parameter(tmp_path: Path, stored: bool) -> None:
    """In the checkpoint it holds the words of the parameter, where it is there."""
    arrays = {"a": gaussian((4, 4))} | ({"b": gaussian((4, 4)).T.copy()} if stored else {})
    share = lines("[[share]]", "parameter = 'b'", "with = 'a'")
    exact(tmp_path, converted(tmp_path, arrays, assign('"a"', 'format = "fp32"', "transpose = true"), share))


def test_encoded_weights_of_several_tensors(tmp_path: Path) -> None:
    """A square weight and a scale of each of its rows: its values come back as they lay, and not as they are kept."""
    codes = np.random.default_rng(0).integers(0, 0x7E, (128, 128), np.uint8)
    scales = np.exp2(np.arange(128) % 5).astype(np.float32).view(np.uint32) >> 16
    stored = {
        "w.weight": ("F8_E4M3", (128, 128), codes.tobytes()),
        "w.weight_scale": ("BF16", (128, 1), scales.astype(np.uint16).tobytes()),
    }
    source = tmp_path / "model.safetensors"
    write_safetensors(source, stored)
    rule = assign('"w.weight"', 'format = "fp32"', "requantize = true")
    for name, more in (("straight", ""), ("a", "transpose = true\n")):
        (tmp_path / "r.toml").write_text(lines("schema = 1") + rule + more)
        convert(source, tmp_path / "r.toml", tmp_path / f"{name}.ninfer")
    expected = decoded(tmp_path / "straight.ninfer")["w.weight"]
    assert np.array_equal(decoded(tmp_path / "a.ninfer")["w.weight"], expected.T)
    export(tmp_path / "a.ninfer", tmp_path / "out.safetensors", like=source)
    assert np.array_equal(values(tmp_path / "out.safetensors")["w.weight"], expected)
    (parameter,) = compare(tmp_path / "a.ninfer", source).parameters
    assert parameter.metrics.max == 0


def test_a_tensor_that_only_has_the_name_was_not_transposed(tmp_path: Path) -> None:
    """The parameter was made from another checkpoint's."""
    values = gaussian((32, 32))
    other = gguf.File([gguf.Tensor("blk.0.w", 0, (32, 32), values.tobytes())]).build()
    (tmp_path / "other.gguf").write_bytes(other)
    source = tmp_path / "model.safetensors"
    write_safetensors(source, {"w": ("F32", (32, 32), values.T.tobytes())})
    rule = assign('"w"', 'format = "fp32"', "transpose = true", 'source = "other"', 'tensor = "blk.0.w"')
    (tmp_path / "r.toml").write_text(lines("schema = 1", "[sources]", 'other = "another"') + rule)
    given = Shaping(sources={"other": str(tmp_path / "other.gguf")})
    convert(source, tmp_path / "r.toml", tmp_path / "a.ninfer", shaping=given)
    for checkpoint in (source, tmp_path / "other.gguf"):
        (parameter,) = compare(tmp_path / "a.ninfer", checkpoint).parameters
        assert parameter.metrics.max == 0, checkpoint


@pytest.mark.parametrize("told", [7, "true", 1, None])
def test_provenance_of_any_kind_transposes_nothing(tmp_path: Path, told: Any) -> None:
    weights = gaussian((4, 4))
    provenance = {"parameters": {"w": {"transposed": told}}}
    path = artifact(tmp_path, {"w": artifacts.floats("fp32", weights)}, provenance=provenance)
    source = tmp_path / "model.safetensors"
    write_safetensors(source, {"w": ("F32", (4, 4), weights.tobytes())})
    assert compare(path, source).identical


def test_vectors_have_no_axes_to_exchange(tmp_path: Path) -> None:
    """Whatever the provenance says of them, or of a matrix that meets one."""
    objects = {"v": artifacts.floats("fp32", gaussian((4,))), "w": artifacts.floats("fp32", gaussian((4, 4)))}
    made = {name: {"parameters": [name], "tensors": [name]} for name in objects}
    provenance = {
        "parameters": {name: {"transposed": {"source": "model", "tensor": name}} for name in objects},
        "objects": made,
    }
    path = artifact(tmp_path, objects, provenance=provenance)
    source = tmp_path / "model.safetensors"
    write_safetensors(source, {name: ("F32", (4,), gaussian((4,)).tobytes()) for name in objects})
    found = compare(path, source)
    assert [parameter.name for parameter in found.parameters] == ["v"]
    assert [(each.name, each.a, each.b) for each in found.shapes] == [("w", (4, 4), (4,))]


@pytest.mark.parametrize("tensor", ["square", "other"])
def test_what_was_transposed_in_another_input_lies_as_it_is_in_this_one(tmp_path: Path, tensor: str) -> None:
    """Under the name of the main input's tensor, or another one."""
    square = gaussian((4, 4))
    main = write_safetensors(tmp_path / "model.safetensors", {"square": ("F32", (4, 4), square.tobytes())})
    turned = np.ascontiguousarray(square.T)
    second = write_safetensors(tmp_path / "second.safetensors", {tensor: ("F32", (4, 4), turned.tobytes())})
    rule = assign('"square"', 'source = "second"', f'tensor = "{tensor}"', 'format = "fp32"', "transpose = true")
    (tmp_path / "r.toml").write_text(lines("schema = 1", "[sources]", 'second = ""') + rule)
    shaping = Shaping(sources={"second": str(second)})
    convert(main, tmp_path / "r.toml", tmp_path / "a.ninfer", shaping=shaping)
    exact(tmp_path, main)
    export(tmp_path / "a.ninfer", tmp_path / "like.safetensors", like=second)
    assert tensors(tmp_path / "like.safetensors") == tensors(second)
    assert compare(tmp_path / "a.ninfer", second).total.max == 0
