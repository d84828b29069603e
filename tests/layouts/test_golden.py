"""The specification's vectors, both ways: words give the stored bytes, bytes the stored words."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ninfer_convert.layouts import Tensor, usual_layout
from ninfer_convert.values import Words
from tests.layouts.cases import DTYPES, assert_same, content, reader, stored, tensor
from tests.oracle import layouts as oracle

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "golden" / "layouts.json").read_text("utf-8"))


def words_of(vector: dict[str, Any], of: Tensor) -> Words:
    name = of.format.name
    if name in DTYPES:
        return Words(np.array(vector["words"], DTYPES[name]))
    if name == "nvfp4":
        codes = bytes.fromhex(vector["codes"])
        assert hashlib.sha256(codes).hexdigest() == vector["codes_sha256"]
        rows, columns = of.shape
        divisors = np.array(vector["divisor_words"], np.uint32).view(np.float32)
        return Words(
            np.frombuffer(codes, np.uint8).reshape(rows, columns),
            np.frombuffer(bytes.fromhex(vector["scales"]), np.uint8).reshape(rows, -1),
            divisors.repeat(rows // of.divisors),
        )
    return Words(np.array(vector["codes"], np.int8), np.array(vector["scale_words"], np.uint16))


def test_the_corpus_is_whole() -> None:
    assert len(VECTORS) == 18
    assert len({vector["format"] for vector in VECTORS}) == 9


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['format']}-{vector['shape']}")
def test_vector(vector: dict[str, Any]) -> None:
    of = tensor(vector["format"], *vector["shape"], divisors=vector.get("divisors", 1))
    layout = usual_layout(of.format.name)
    words, payload = words_of(vector, of), bytes.fromhex(vector["payload"])

    assert layout.misfit(of) is None
    assert layout.size(of) == len(payload)
    assert stored(of, words) == payload
    assert_same(layout.decode(of, 0, layout.matrix(of.shape)[0], reader(payload)), words)
    assert layout.padding_faults(of, 0, layout.matrix(of.shape)[0], reader(payload)) == ()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['format']}-{vector['shape']}")
def test_the_oracle_agrees(vector: dict[str, Any]) -> None:
    of = tensor(vector["format"], *vector["shape"], divisors=vector.get("divisors", 1))
    words, payload = content(words_of(vector, of), of.divisors), bytes.fromhex(vector["payload"])

    assert oracle.encode(of.format.name, of.shape, words) == payload
    assert oracle.decode(of.format.name, of.shape, payload, of.divisors) == words
