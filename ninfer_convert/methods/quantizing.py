"""What the methods that round values to codes share: what they refuse, and how they say so (methods.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ninfer_convert.formats import FORMATS, GroupedFormat
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.methods import failures

if TYPE_CHECKING:
    from ninfer_convert.errors import Problem
    from ninfer_convert.formats import Format
    from ninfer_convert.methods.base import Job, Method
    from ninfer_convert.values import Source

GROUPED = ("q4_g64_fp16", "q5_g64_fp16", "q6_g64_fp16", "q8_g32_fp16")
"""The grouped formats that are made from values."""

DIRECT = "mend the checkpoint, or keep the tensor in fp32 or bf16, which store them as they are"


def refusal(method: Method, source: Source, format: Format) -> str | None:
    """Why a quantizing method cannot convert this source into this format; None if it can."""
    if format.name not in method.formats:
        imported = format.category == "grouped" and format.name not in GROUPED
        why = ", which is imported from codes, never made from values" if imported else ""
        return f"{method.name} makes {', '.join(method.formats)}, not {format.name}{why}"
    stored = stored_type(source.stored)
    if not stored.floating:
        return f"{method.name} quantizes floating values, and {stored.name} is {stored.kind}"
    return None


def grouped_problems(job: Job, format: GroupedFormat) -> Iterable[Problem]:
    """Everything that keeps a source out of a grouped format whose scales come from the largest magnitudes."""
    from ninfer_convert.kernels.cast import floats_to_f32

    others = [other for other in map(FORMATS.get, GROUPED) if isinstance(other, GroupedFormat)]
    return (
        *failures.non_finite(job, f"{format.name} cannot hold them: {DIRECT}"),
        *failures.made_infinite(job, floats_to_f32, "uint32", "binary32", "no format holds values so large"),
        *failures.scale_overflow(job, format, others),
    )
