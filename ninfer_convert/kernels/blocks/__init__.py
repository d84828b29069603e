"""Decoding ggml's blocks, to the bit of what ggml's own C code computes (encoded-sources.md 7.1, formats 3.4).

One kernel a type, each a loop over `blocks` [n, block bytes] into `out` [n, block values]. Loops over the values of
a block take their length from `out`: one that the compiler knows it unrolls before it could vectorise it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ninfer_convert.kernels.blocks import codebooks, i_quants, k_quants, trits, uniform
from ninfer_convert.kernels.blocks.tables import (
    IQ4_VALUES,
    Table,
    grid,
    mxfp4_books,
    nvfp4_books,
    signs_of_bytes,
    signs_of_seven_bits,
)


@dataclass(frozen=True)
class Decoder:
    """How one block type decodes: `kernel(blocks, out, *tables())`."""

    kernel: Callable[..., None]
    block_bytes: int
    block_values: int
    tables: Callable[[], tuple[Table, ...]] = tuple


DECODERS = MappingProxyType(
    {
        2: Decoder(uniform.decode_q4_0, 18, 32),
        3: Decoder(uniform.decode_q4_1, 20, 32),
        6: Decoder(uniform.decode_q5_0, 22, 32),
        7: Decoder(uniform.decode_q5_1, 24, 32),
        8: Decoder(uniform.decode_q8_0, 34, 32),
        10: Decoder(k_quants.decode_q2_k, 84, 256),
        11: Decoder(k_quants.decode_q3_k, 110, 256),
        12: Decoder(k_quants.decode_q4_k, 144, 256),
        13: Decoder(k_quants.decode_q5_k, 176, 256),
        14: Decoder(k_quants.decode_q6_k, 210, 256),
        16: Decoder(i_quants.decode_iq2_xxs, 66, 256, lambda: (grid("IQ2_XXS"), signs_of_seven_bits())),
        17: Decoder(i_quants.decode_iq2_xs, 74, 256, lambda: (grid("IQ2_XS"), signs_of_seven_bits())),
        18: Decoder(i_quants.decode_iq3_xxs, 98, 256, lambda: (grid("IQ3_XXS"), signs_of_seven_bits())),
        19: Decoder(i_quants.decode_iq1_s, 50, 256, lambda: (grid("IQ1_S"),)),
        20: Decoder(codebooks.decode_iq4_nl, 18, 32, lambda: (IQ4_VALUES,)),
        21: Decoder(i_quants.decode_iq3_s, 110, 256, lambda: (grid("IQ3_S"), signs_of_bytes())),
        22: Decoder(i_quants.decode_iq2_s, 82, 256, lambda: (grid("IQ2_S"), signs_of_bytes())),
        23: Decoder(codebooks.decode_iq4_xs, 136, 256, lambda: (IQ4_VALUES,)),
        29: Decoder(i_quants.decode_iq1_m, 56, 256, lambda: (grid("IQ1_S"),)),
        34: Decoder(trits.decode_tq1_0, 54, 256),
        35: Decoder(trits.decode_tq2_0, 66, 256),
        39: Decoder(codebooks.decode_mxfp4, 17, 32, lambda: (mxfp4_books(),)),
        40: Decoder(codebooks.decode_nvfp4, 36, 64, lambda: (nvfp4_books(),)),
        41: Decoder(uniform.decode_q1_0, 18, 128),
        42: Decoder(uniform.decode_q2_0, 18, 64),
        142: Decoder(uniform.decode_q2_0, 34, 128),
        143: Decoder(trits.decode_ptq1_0, 28, 128),
    }
)
"""Every block type that decodes, by ggml's type id."""


def decode_blocks(ggml_id: int, blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The values of rows of blocks: uint8 [rows, row bytes] -> float32 [rows, K].

    Raises ValueError for a type without a decoder, or a row that is no whole number of blocks.
    """
    decoder = _decoder(ggml_id)
    rows, row_bytes = blocks.shape
    out = np.empty((rows, row_bytes // decoder.block_bytes * decoder.block_values), dtype=np.float32)
    decode_blocks_into(ggml_id, blocks, out)
    return out


def decode_blocks_into(ggml_id: int, blocks: NDArray[np.uint8], out: NDArray[Any]) -> None:
    """As `decode_blocks`, into float32 `out` [rows, K], contiguous in C order."""
    decoder = _decoder(ggml_id)
    rows, row_bytes = blocks.shape
    count, rest = divmod(row_bytes, decoder.block_bytes)
    if rest:
        raise ValueError(f"a row of {row_bytes} bytes is no whole number of blocks of {decoder.block_bytes} bytes")
    if out.shape != (rows, count * decoder.block_values) or out.dtype != np.float32 or not out.flags.c_contiguous:
        raise ValueError(f"out must be contiguous float32 {(rows, count * decoder.block_values)}")
    flat = np.ascontiguousarray(blocks).reshape(rows * count, decoder.block_bytes)
    decoder.kernel(flat, out.reshape(rows * count, decoder.block_values), *decoder.tables())


def _decoder(ggml_id: int) -> Decoder:
    try:
        return DECODERS[ggml_id]
    except KeyError:
        raise ValueError(f"ggml type {ggml_id} has no decoder") from None
