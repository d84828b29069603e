"""import_encoded: codes and scales that are in the checkpoint already, copied and never decoded (methods.md).

Scales are rounded where the recipe says `round_scales`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ninfer_convert.formats.gguf import GGUF_FORMATS
from ninfer_convert.formats.stored import stored_type

if TYPE_CHECKING:
    from ninfer_convert.formats import Format
    from ninfer_convert.methods.base import Encode, Job
    from ninfer_convert.values import Source, Words


@dataclass(frozen=True)
class ImportEncoded:
    """The source hands out the format's words itself, and refuses those that the format cannot hold."""

    name: str = "import_encoded"
    formats: tuple[str, ...] = (
        "nvfp4",
        "fp8_e4m3fn_row_bf16",
        "fp8_e4m3fn_row_fp16",
        "t2_g128_fp16",
        "q2_g64_fp16",
        "q8_g32_fp16",
        *(format.name for format in GGUF_FORMATS),
    )
    parameters: Mapping[str, type] = field(default_factory=lambda: {"round_scales": bool})
    quantizes: bool = False

    def refusal(self, source: Source, format: Format, parameters: Mapping[str, Any]) -> str | None:
        if format.name in source.exact:
            return None
        encoding = source.encoding
        if encoding is not None and format.name in encoding.rounded:
            return None if parameters.get("round_scales") else encoding.unfit
        if encoding is not None and encoding.unfit and not source.exact:
            return encoding.unfit
        stored = stored_type(source.stored).name
        if not source.exact:
            return f"stored as {stored}, it holds words of no format that could be imported"
        return f"stored as {stored}, it can be imported as {' or '.join(source.exact)}, not as {format.name}"

    def encoder(self, job: Job) -> Encode:
        def encode(begin: int, end: int) -> Words:
            return job.source.words(job.format.name, begin, end)

        return encode


IMPORT_ENCODED = ImportEncoded()
