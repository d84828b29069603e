"""grouped_absmax: each group's scale from its largest magnitude (formats 7.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ninfer_convert.errors import NumericError, Problem
from ninfer_convert.formats import FORMATS, GroupedFormat
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.methods import failures
from ninfer_convert.methods.reading import float_words
from ninfer_convert.values import Words

if TYPE_CHECKING:
    from ninfer_convert.formats import Format
    from ninfer_convert.methods.base import Encode, Job
    from ninfer_convert.values import Source


@dataclass(frozen=True)
class GroupedAbsmax:
    """From stored words to codes and scales without a float copy of the tensor; any row at any time."""

    name: str = "grouped_absmax"
    formats: tuple[str, ...] = ("q4_g64_fp16", "q5_g64_fp16", "q6_g64_fp16", "q8_g32_fp16")
    parameters: Mapping[str, type] = field(default_factory=dict)
    quantizes: bool = True

    def refusal(self, source: Source, format: Format) -> str | None:
        if format.name not in self.formats:
            why = ", which is imported from codes, never made from values" if format.category == "grouped" else ""
            return f"{self.name} makes {', '.join(self.formats)}, not {format.name}{why}"
        stored = stored_type(source.stored)
        if not stored.floating:
            return f"{self.name} quantizes floating values, and {stored.name} is {stored.kind}"
        return None

    def encoder(self, job: Job) -> Encode:
        import numpy as np

        from ninfer_convert.kernels.grouped import encode_absmax

        format = job.format
        assert isinstance(format, GroupedFormat)
        groups = -(-job.columns // format.group)

        def encode(begin: int, end: int) -> Words:
            words, half = float_words(job.source.values(begin * job.columns, end * job.columns))
            codes = np.empty((end - begin, job.columns), np.int8)
            scales = np.empty((end - begin, groups), np.uint16)
            matrix = words.reshape(codes.shape)
            if encode_absmax(matrix, half, format.group, format.qmin, format.qmax, codes, scales) >= 0:
                raise NumericError(self._problems(job, format))
            return Words(codes, scales)

        return encode

    def _problems(self, job: Job, format: GroupedFormat) -> tuple[Problem, ...]:
        from ninfer_convert.kernels.cast import floats_to_f32

        direct = "mend the checkpoint, or keep the tensor in fp32 or bf16, which store them as they are"
        grouped = [other for other in map(FORMATS.get, self.formats) if isinstance(other, GroupedFormat)]
        return (
            *failures.non_finite(job, f"{format.name} cannot hold them: {direct}"),
            *failures.made_infinite(job, floats_to_f32, "uint32", "binary32", "no format holds values so large"),
            *failures.scale_overflow(job, format, grouped),
        )


GROUPED_ABSMAX = GroupedAbsmax()
