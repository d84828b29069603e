"""GPTQ and AWQ: I32 `qweight`, transposed, with `scales` and zero points for each group (encoded-sources.md 8.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ninfer_convert.sources.encoded.base import Convention, EncodedModule, Module, encoded

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
        encoding, shape = "GPTQ", (qweight[1], qweight[0] * 32 // bits)
        order = ", act-order" if declared.act_order else ""
        details, fault = f"{bits} bits, group {_group(shape[1], scales[0])}{order}", None
    elif matrix and qweight[1] * 32 == scales[1] * bits:
        encoding, shape = "AWQ", (scales[1], qweight[0])
        details, fault = f"{bits} bits, group {_group(shape[1], scales[0])}", None
    else:
        encoding, shape = ("AWQ" if declared.method == "awq" else "GPTQ"), None
        details = ""
        fault = f"qweight {list(qweight)} and scales {list(scales)} fit neither GPTQ nor AWQ (GEMM)"
    yield encoded(module, _MEMBERS, encoding, shape, declared, details, fault)


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


def _group(columns: int, count: int) -> int:
    return columns // count if count else 0


GPTQ = Convention("GPTQ and AWQ", _recognise, companions=("qweight", "qzeros", "g_idx"))
