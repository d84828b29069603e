"""The registry: thirty formats and their facts as formats section 1 gives them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ninfer_convert.formats import FORMATS, get_format

BITS_PER_WEIGHT = {
    "bf16": 16,
    "fp32": 32,
    "int32": 32,
    "q2_g64_fp16": 2.25,
    "q4_g64_fp16": 4.25,
    "q5_g64_fp16": 5.25,
    "q6_g64_fp16": 6.25,
    "q8_g32_fp16": 8.50,
    "t2_g128_fp16": 2.125,
    "nvfp4": 4.5,
    "fp8_e4m3fn_row_bf16": 8,
    "fp8_e4m3fn_row_fp16": 8,
    "gguf_q8_0": 8.50,
    "gguf_q4_0": 4.50,
    "gguf_q5_0": 5.50,
    "gguf_q2_0": 2.25,
    "gguf_q2_k": 2.625,
    "gguf_q3_k": 3.4375,
    "gguf_q4_k": 4.50,
    "gguf_q5_k": 5.50,
    "gguf_q6_k": 6.5625,
    "gguf_iq2_xxs": 2.0625,
    "gguf_iq2_xs": 2.3125,
    "gguf_iq3_xxs": 3.0625,
    "gguf_iq1_s": 1.5625,
    "gguf_iq4_nl": 4.50,
    "gguf_iq3_s": 3.4375,
    "gguf_iq2_s": 2.5625,
    "gguf_iq4_xs": 4.25,
    "gguf_iq1_m": 1.75,
}


def test_the_registry_holds_the_thirty_formats_in_order() -> None:
    assert list(FORMATS) == list(BITS_PER_WEIGHT)
    assert all(FORMATS[name].name == name for name in FORMATS)


@pytest.mark.parametrize("name", BITS_PER_WEIGHT)
def test_bits_per_weight(name: str) -> None:
    assert FORMATS[name].bits_per_weight == BITS_PER_WEIGHT[name]


def test_categories() -> None:
    counts = dict.fromkeys(("direct", "grouped", "block-scaled", "row-scaled", "gguf"), 0)
    for format in FORMATS.values():
        counts[format.category] += 1
    assert counts == {"direct": 3, "grouped": 6, "block-scaled": 1, "row-scaled": 2, "gguf": 18}


def test_summaries_say_code_group_and_scale() -> None:
    assert get_format("q4_g64_fp16").summary == "codes -8 to 7, 4 bits; one binary16 scale per 64"
    assert get_format("fp8_e4m3fn_row_fp16").summary == "E4M3FN codes, 8 bits; one binary16 scale per row"
    assert get_format("gguf_iq2_xxs").summary == "ggml IQ2_XXS blocks of 256 values in 66 bytes"
    assert len({format.summary for format in FORMATS.values()}) == len(FORMATS)


def test_an_unknown_name_gives_the_nearest() -> None:
    with pytest.raises(LookupError, match="unknown format 'q4_g64'; did you mean q4_g64_fp16"):
        get_format("q4_g64")


def test_facts_load_no_numpy() -> None:
    lines = ["import sys", "from ninfer_convert.formats import FORMATS", "print('numpy' in sys.modules)"]
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
