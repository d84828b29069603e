"""fp8_row_maxabs: E4M3FN codes, each row's scale from its largest magnitude (methods.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import NumericError
from ninfer_convert.formats import RowScaledFormat
from ninfer_convert.formats.row_scaled import ROW_SCALED_FORMATS
from ninfer_convert.methods import failures
from ninfer_convert.methods.quantizing import DIRECT, refusal
from ninfer_convert.methods.reading import float_words
from ninfer_convert.values import Words

if TYPE_CHECKING:
    from ninfer_convert.errors import Problem
    from ninfer_convert.formats import Format
    from ninfer_convert.methods.base import Encode, Job
    from ninfer_convert.values import Source


@dataclass(frozen=True)
class Fp8RowMaxabs:
    """Values are rounded to bfloat16 first; rows are independent of each other."""

    name: str = "fp8_row_maxabs"
    formats: tuple[str, ...] = tuple(format.name for format in ROW_SCALED_FORMATS)
    parameters: Mapping[str, type] = field(default_factory=dict)
    quantizes: bool = True

    def refusal(self, source: Source, format: Format, parameters: Mapping[str, Any]) -> str | None:
        return refusal(self, source, format)

    def encoder(self, job: Job) -> Encode:
        import numpy as np

        from ninfer_convert.kernels.fp8 import encode_fp8

        format = job.format
        assert isinstance(format, RowScaledFormat)

        def encode(begin: int, end: int) -> Words:
            words, half = float_words(job.source.values(begin * job.columns, end * job.columns))
            codes = np.empty((end - begin, job.columns), np.uint8)
            scales = np.empty(end - begin, np.uint16)
            if encode_fp8(words.reshape(codes.shape), half, format.scale == "bf16", codes, scales) >= 0:
                raise NumericError(_problems(job, format))
            return Words(codes, scales)

        return encode


FP8_ROW_MAXABS = Fp8RowMaxabs()


def _problems(job: Job, format: RowScaledFormat) -> Iterable[Problem]:
    from ninfer_convert.kernels.cast import floats_to_bf16

    rounded = "keep the tensor in fp32"
    return (
        *failures.non_finite(job, f"{format.name} cannot hold them: {DIRECT}"),
        *failures.made_infinite(job, floats_to_bf16, "uint16", "bfloat16, to which this method rounds first", rounded),
        *failures.row_without_scale(job, format),
    )
