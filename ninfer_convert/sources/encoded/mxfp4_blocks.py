"""gpt-oss' MXFP4: `<proj>_blocks` and `<proj>_scales` of a bank of experts (encoded-sources.md 8.3)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ninfer_convert.sources.encoded.base import Convention, EncodedModule, Module, encoded, wrong_shape
from ninfer_convert.sources.encoded.mxfp4_weight import Mxfp4Weight

if TYPE_CHECKING:
    from ninfer_convert.sources.encoded.declared import Declaration

_BLOCKS = "_blocks"


def _recognise(module: Module, declared: Declaration) -> Iterator[EncodedModule]:
    for blocks in module.tensors:
        proj = blocks.removesuffix(_BLOCKS)
        scales = f"{proj}_scales"
        if proj == blocks or not proj or module.stored(blocks) != "U8" or module.stored(scales) != "U8":
            continue
        groups, size = module.rows(blocks)
        fault = None
        if size != 16 or not groups:
            fault = f"{blocks} is {list(module.shape(blocks))}, where 16 bytes on the last axis were expected"
        elif module.shape(scales) != groups:
            fault = wrong_shape(scales, module.shape(scales), groups)
        shape = (*groups[:-1], groups[-1] * 32) if groups else None
        read = partial(Mxfp4Weight, codes=blocks, scale=scales)
        yield encoded(module, (blocks, scales), "MXFP4", shape, declared, "blocks of 32", fault, proj, read)


MXFP4_BLOCKS = Convention("MXFP4 blocks and scales", _recognise)
