"""What the parameters of small checkpoints hold, element by element, and which tensors are passed by."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.architectures import small
from tests.architectures.building import build

if TYPE_CHECKING:
    from ninfer_convert.values import Values


def floats(values: Values) -> list[float]:
    array = values.array
    if values.stored == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    found: list[float] = array.tolist()
    return found


@pytest.mark.parametrize("kind", small.KINDS.values(), ids=small.KINDS)
def test_each_parameter_is_its_part_of_the_checkpoint(tmp_path: Path, kind: small.Kind) -> None:
    tensors = small.write(tmp_path, kind)
    parameters = {parameter.name: parameter for parameter in build(tmp_path).parameters}
    expected = small.expected(kind, tensors)
    assert set(parameters) == set(expected)
    for name, array in expected.items():
        parameter = parameters[name]
        assert parameter.shape == array.shape, name
        assert parameter.stored == kind.stored
        elements = prod(parameter.shape)
        assert floats(parameter.source.values(0, elements)) == array.reshape(-1).tolist(), name
        third = elements // 3
        middle = parameter.source.values(third, elements - third)
        assert floats(middle) == array.reshape(-1)[third : elements - third].tolist(), name


def test_parameters_made_of_one_tensor_count_each_byte_of_it_once(tmp_path: Path) -> None:
    kind = small.KINDS["experts in banks"]
    tensors = small.write(tmp_path, kind)
    total = sum(parameter.source.nbytes for parameter in build(tmp_path).parameters)
    assert total == sum(2 * array.size for array in tensors.values())


def test_components_that_are_not_known_are_passed_by_with_a_line_each(tmp_path: Path) -> None:
    vision = ("model.visual.patch_embed.proj.weight", "model.visual.merger.norm.bias")
    small.write(tmp_path, small.Kind(extra=("mtp.fc.weight", *vision)))
    model = build(tmp_path)
    assert model.passed_by == {
        "component mtp is not converted yet": ("mtp.fc.weight",),
        "component vision is not converted yet": vision,
    }
    lines = [problem.message for problem in model.warnings if problem.code == "passed-by"]
    assert lines == [
        "1 tensor is passed by, component mtp is not converted yet: mtp.fc.weight",
        f"2 tensors are passed by, component vision is not converted yet: {vision[0]}, {vision[1]}",
    ]
    assert [component.name for component in model.components] == ["text"]


def test_the_own_tensor_of_a_tied_head_is_passed_by(tmp_path: Path) -> None:
    small.write(tmp_path, small.Kind(tied=True, extra=("lm_head.weight",)))
    model = build(tmp_path)
    assert model.passed_by == {"the head reads the embedding (tie_word_embeddings)": ("lm_head.weight",)}
    heads = [p for p in model.parameters if p.name in ("text/token_embedding", "text/output_head")]
    assert [p.uses for p in heads] == [(), ("text/final_hidden",)]
    assert [p.importance and p.importance.name for p in heads] == ["token_embd.weight"] * 2
