"""import_encoded copies what the source hands out, and is the usual method wherever that is exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ninfer_convert.formats import FORMATS, get_format
from ninfer_convert.methods import METHODS, Job, usual_method
from ninfer_convert.sources.gguf import open_gguf

EXTRAS = Path(__file__).parent.parent / "golden" / "gguf" / "extras.gguf"
IMPORTED = METHODS["import_encoded"]


def test_it_makes_every_format_with_codes() -> None:
    made = {name for name, format in FORMATS.items() if format.category != "direct"}
    assert made - set(IMPORTED.formats) == {"q4_g64_fp16", "q5_g64_fp16", "q6_g64_fp16"}
    assert len(set(IMPORTED.formats)) == len(IMPORTED.formats) == 24
    assert not IMPORTED.quantizes


def test_words_are_the_sources_own() -> None:
    source = open_gguf(EXTRAS, "extras.gguf").tensors["blk.0.nvfp4.weight"]
    encode = IMPORTED.encoder(Job(source, get_format("nvfp4"), 6, 512, {}))
    expected, found = source.words("nvfp4", 1, 4), encode(1, 4)
    assert np.array_equal(found.codes, expected.codes)
    for one, other in ((found.scales, expected.scales), (found.divisors, expected.divisors)):
        assert one is not None
        assert other is not None
        assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("tensor", "format", "refusal"),
    [
        ("blk.0.nvfp4.weight", "nvfp4", None),
        ("blk.0.tq2_0.weight", "t2_g128_fp16", None),
        ("blk.0.mxfp4.weight", "nvfp4", "stored as MXFP4, it holds words of no format that could be imported"),
        ("blk.0.tq2_0.weight", "gguf_q2_0", "stored as TQ2_0, it can be imported as t2_g128_fp16, not as gguf_q2_0"),
    ],
)
def test_what_it_cannot_import_it_says_from_the_header(tensor: str, format: str, refusal: str | None) -> None:
    source = open_gguf(EXTRAS, "extras.gguf").tensors[tensor]
    assert IMPORTED.refusal(source, get_format(format), {}) == refusal


@pytest.mark.parametrize("format", IMPORTED.formats)
def test_it_is_the_usual_method_where_exact_and_nowhere_else(format: str) -> None:
    usual = usual_method(format, [format])
    assert usual is IMPORTED
    assert usual_method(format, []) is not IMPORTED
