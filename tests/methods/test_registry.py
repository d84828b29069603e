"""The closed registry of methods, and which one is usual."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection

import numpy as np
import pytest

from ninfer_convert.formats import FORMATS, get_format
from ninfer_convert.methods import METHODS, usual_method
from tests.methods.arrays import source


def test_methods_make_known_formats_and_go_by_their_names() -> None:
    assert {"cast_direct", "grouped_absmax"} <= set(METHODS)
    for name, method in METHODS.items():
        assert method.name == name
        assert set(method.formats) <= set(FORMATS)


def test_the_registry_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        METHODS["mine"] = METHODS["cast_direct"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("format", "exact", "usual"),
    [
        ("bf16", (), "cast_direct"),
        ("fp32", (), "cast_direct"),
        ("int32", (), "cast_direct"),
        ("bf16", ("bf16",), "cast_direct"),
        ("q4_g64_fp16", (), "grouped_absmax"),
        ("q5_g64_fp16", (), "grouped_absmax"),
        ("q6_g64_fp16", (), "grouped_absmax"),
        ("q8_g32_fp16", (), "grouped_absmax"),
        ("q4_g64_fp16", ("gguf_q8_0", "q8_g32_fp16"), "grouped_absmax"),
        ("fp8_e4m3fn_row_bf16", (), "fp8_row_maxabs"),
        ("fp8_e4m3fn_row_fp16", (), "fp8_row_maxabs"),
        ("fp8_e4m3fn_row_fp16", ("fp8_e4m3fn_row_fp16",), "import_encoded"),
        ("nvfp4", (), None),
        ("q2_g64_fp16", (), None),
        ("t2_g128_fp16", (), None),
        ("gguf_q4_k", (), None),
        ("gguf_q4_k", ("gguf_q5_k",), None),
    ],
)
def test_the_usual_method_of_a_format(format: str, exact: Collection[str], usual: str | None) -> None:
    method = usual_method(format, exact)
    assert (method and method.name) == usual


def test_names_load_neither_numpy_nor_numba() -> None:
    lines = ["import sys", "import ninfer_convert.methods", "print({'numpy', 'numba'} & set(sys.modules))"]
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


REFUSALS = [
    (
        "grouped_absmax",
        "I64",
        "q4_g64_fp16",
        "grouped_absmax quantizes floating values, and I64 is integer",
    ),
    ("grouped_absmax", "BOOL", "q8_g32_fp16", "grouped_absmax quantizes floating values, and BOOL is bool"),
    ("grouped_absmax", "F8_E4M3", "q8_g32_fp16", "grouped_absmax quantizes floating values, and F8_E4M3 is opaque"),
    (
        "grouped_absmax",
        "F32",
        "t2_g128_fp16",
        "grouped_absmax makes q4_g64_fp16, q5_g64_fp16, q6_g64_fp16, q8_g32_fp16, not t2_g128_fp16, "
        "which is imported from codes, never made from values",
    ),
    (
        "grouped_absmax",
        "F32",
        "bf16",
        "grouped_absmax makes q4_g64_fp16, q5_g64_fp16, q6_g64_fp16, q8_g32_fp16, not bf16",
    ),
    (
        "grouped_search",
        "F32",
        "q2_g64_fp16",
        "grouped_search makes q4_g64_fp16, q5_g64_fp16, q6_g64_fp16, q8_g32_fp16, not q2_g64_fp16, "
        "which is imported from codes, never made from values",
    ),
    ("grouped_search", "I8", "q4_g64_fp16", "grouped_search quantizes floating values, and I8 is integer"),
    (
        "fp8_row_maxabs",
        "F32",
        "q8_g32_fp16",
        "fp8_row_maxabs makes fp8_e4m3fn_row_bf16, fp8_e4m3fn_row_fp16, not q8_g32_fp16",
    ),
    ("fp8_row_maxabs", "U8", "fp8_e4m3fn_row_bf16", "fp8_row_maxabs quantizes floating values, and U8 is integer"),
    ("cast_direct", "F32", "q4_g64_fp16", "cast_direct makes bf16, fp32, int32, not q4_g64_fp16"),
    ("cast_direct", "F8_E4M3", "bf16", "F8_E4M3 words have no values that could be cast"),
    ("cast_direct", "C64", "fp32", "C64 words have no values that could be cast"),
    ("grouped_absmax", "BF16", "q4_g64_fp16", None),
    ("grouped_absmax", "F64", "q8_g32_fp16", None),
    ("grouped_absmax", "Q4_K", "q4_g64_fp16", None),
    ("grouped_search", "Q4_K", "q5_g64_fp16", None),
    ("fp8_row_maxabs", "F16", "fp8_e4m3fn_row_fp16", None),
    ("cast_direct", "BOOL", "int32", None),
    ("cast_direct", "Q4_K", "bf16", None),
    ("cast_direct", "U64", "fp32", None),
]


@pytest.mark.parametrize(("method", "stored", "format", "why"), REFUSALS)
def test_refusals_from_header_facts(method: str, stored: str, format: str, why: str | None) -> None:
    opaque = source(np.zeros((2, 256), np.uint8), stored, decoded_as="F32")
    assert METHODS[method].refusal(opaque, get_format(format), {}) == why


def test_what_quantizes_says_so() -> None:
    assert not METHODS["cast_direct"].quantizes
    assert not METHODS["import_encoded"].quantizes
    assert all(METHODS[name].quantizes for name in ("grouped_absmax", "grouped_search", "fp8_row_maxabs"))
