"""GPTQ and AWQ: I32 `qweight`, transposed, with `scales` and zero points for each group (encoded-sources.md 8.1)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ninfer_convert.sources.encoded.base import (
    FLOATS,
    Convention,
    EncodedModule,
    Module,
    encoded,
    group_size,
    groups,
    wrong_shape,
)
from ninfer_convert.sources.encoded.gptq_weight import AwqWeight, GptqWeight
from ninfer_convert.sources.labels import label

if TYPE_CHECKING:
    from ninfer_convert.sources.encoded.declared import Declaration

_MEMBERS = ("qweight", "qzeros", "scales", "g_idx")


def _recognise(module: Module, declared: Declaration) -> Iterator[EncodedModule]:
    if not module.has("qweight", "scales"):
        return
    qweight, scales = module.shape("qweight"), module.shape("scales")
    bits = _bits(module, declared)
    matrix = module.stored("qweight") == "I32" and len(qweight) == len(scales) == 2 and bits
    if matrix and qweight[1] == scales[1]:
        yield _gptq(module, bits, declared)
    elif matrix and qweight[1] * 32 == scales[1] * bits:
        yield _awq(module, bits, declared)
    else:
        encoding = "AWQ" if declared.method == "awq" else "GPTQ"
        fault = f"qweight {list(qweight)} and scales {list(scales)} fit neither GPTQ nor AWQ (GEMM)"
        yield encoded(module, _MEMBERS, encoding, None, declared, "", fault)


def _gptq(module: Module, bits: int, declared: Declaration) -> EncodedModule:
    """qweight [K * bits / 32, N], scales [G, N], qzeros [G, N * bits / 32], g_idx [K]."""
    words, rows = module.shape("qweight")
    columns = words * 32 // bits
    size = group_size(columns, module.shape("scales")[0], declared.scheme(module.name).group)
    fault = _wrong(module, (groups(columns, size), rows * bits // 32))
    if fault is None and not declared.scheme(module.name).symmetric:
        fault = "config says sym false: v1 stores zero points less one, v2 as they are, and files do not tell which"
    elif fault is None and module.has("g_idx"):
        stored, found = module.stored("g_idx"), module.shape("g_idx")
        fault = (
            None
            if (stored, found) == ("I32", (columns,))
            else f"g_idx is {stored} {list(found)}, for {columns} columns"
        )
    elif fault is None and declared.act_order:
        fault = "config says desc_act, but there is no g_idx"
    details = f"{bits} bits, group {size}{', act-order' if declared.act_order else ''}"
    read = partial(GptqWeight, bits=bits, group=size) if bits in (2, 4, 8) else None
    return encoded(module, _MEMBERS, "GPTQ", (rows, columns), declared, details, fault, read=read)


def _awq(module: Module, bits: int, declared: Declaration) -> EncodedModule:
    """qweight [K, N / 8], scales [G, N], qzeros [G, N / 8]."""
    columns, words = module.shape("qweight")
    size = group_size(columns, module.shape("scales")[0], declared.scheme(module.name).group)
    fault = _wrong(module, (groups(columns, size), words))
    if fault is None and not (module.has("qzeros") and declared.zero_points):
        fault = "has no zero points, or config says zero_point false: only AWQ with zero points is decoded"
    elif fault is None and declared.version not in ("", "gemm"):
        fault = f"config says version {label(declared.version)}; only gemm is decoded"
    details = f"{bits} bits, group {size}"
    read = partial(AwqWeight, bits=bits, group=size) if bits == 4 else None
    return encoded(module, _MEMBERS, "AWQ", (module.shape("scales")[1], columns), declared, details, fault, read=read)


def _bits(module: Module, declared: Declaration) -> int:
    """Bits of a code, from the config or else from the packing of the zero points; 0 where neither tells."""
    said = declared.scheme(module.name).bits
    if said:
        return said
    if module.has("qzeros"):
        _, columns = module.rows("scales")
        _, words = module.rows("qzeros")
        return words * 32 // columns if columns else 0
    return 0


def _wrong(module: Module, zeros: tuple[int, int]) -> str | None:
    """What is wrong with scales [G, N] and zero points, which are to be I32 of the shape `zeros`."""
    count, rows = module.shape("scales")
    if module.stored("scales") not in FLOATS:
        return f"scales is {module.stored('scales')}, where F16 was expected"
    if count != zeros[0]:
        return wrong_shape("scales", (count, rows), (zeros[0], rows))
    if module.has("qzeros") and (module.stored("qzeros"), module.shape("qzeros")) != ("I32", zeros):
        return f"{wrong_shape('qzeros', module.shape('qzeros'), zeros)}, of I32"
    return None


GPTQ = Convention("GPTQ and AWQ", _recognise, companions=("qweight", "qzeros", "g_idx"))
