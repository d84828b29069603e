"""grouped_absmax: each group's scale from its largest magnitude (formats 7.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import NumericError
from ninfer_convert.formats import GroupedFormat
from ninfer_convert.methods.quantizing import GROUPED, grouped_problems, refusal
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
    formats: tuple[str, ...] = GROUPED
    parameters: Mapping[str, type] = field(default_factory=dict)
    quantizes: bool = True

    def refusal(self, source: Source, format: Format, parameters: Mapping[str, Any]) -> str | None:
        return refusal(self, source, format)

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
                raise NumericError(grouped_problems(job, format))
            return Words(codes, scales)

        return encode


GROUPED_ABSMAX = GroupedAbsmax()
