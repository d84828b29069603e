"""cast_direct: every numeric stored type to bf16, fp32 or int32, each value rounded at most once (methods.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ninfer_convert.errors import NumericError
from ninfer_convert.formats.stored import stored_type
from ninfer_convert.methods import failures
from ninfer_convert.methods.reading import float_words, integers
from ninfer_convert.values import Words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ninfer_convert.formats import Format
    from ninfer_convert.methods.base import Encode, Job
    from ninfer_convert.values import Source, Values


@dataclass(frozen=True)
class CastDirect:
    """The same word type in and out is a bit copy; NaN and infinity are counted, kept or refused as the job says."""

    name: str = "cast_direct"
    formats: tuple[str, ...] = ("bf16", "fp32", "int32")
    parameters: Mapping[str, type] = field(default_factory=dict)
    quantizes: bool = False

    def refusal(self, source: Source, format: Format, parameters: Mapping[str, Any]) -> str | None:
        if format.name not in self.formats:
            return f"{self.name} makes {', '.join(self.formats)}, not {format.name}"
        stored = stored_type(source.stored)
        if stored.kind == "opaque":
            return f"{stored.name} words have no values that could be cast"
        return None

    def encoder(self, job: Job) -> Encode:
        target = job.format.name

        def encode(begin: int, end: int) -> Words:
            values = job.source.values(begin * job.columns, end * job.columns)
            stored = stored_type(values.stored)
            if stored.kind == "float":
                return Words(_to_int32(job, values)) if target == "int32" else _to_float(job, values)
            if stored.identical == target:
                return Words(values.array)
            return Words(_integers_to_int32(job, values) if target == "int32" else _integers_to_float(target, values))

        return encode


CAST_DIRECT = CastDirect()


def _to_float(job: Job, values: Values) -> Words:
    from ninfer_convert.kernels.words import count_non_finite

    target = job.format.name
    words, half = float_words(values)
    if stored_type(values.stored).identical == target:
        stored = kept = count_non_finite(words, half)
        codes = words
    else:
        # Not for bit copies, which so need no Numba.
        import numpy as np

        from ninfer_convert.kernels.cast import floats_to_bf16, floats_to_f32

        convert = floats_to_bf16 if target == "bf16" else floats_to_f32
        codes = np.empty(words.shape, "uint16" if target == "bf16" else "uint32")
        kept = convert(words, half, codes)
        stored = count_non_finite(words, half) if kept else 0
        if kept > stored and job.non_finite != "keep":
            raise NumericError(
                failures.made_infinite(job, convert, codes.dtype.name, target, 'allow it with non_finite = "keep"')
            )
    if stored and job.non_finite == "refuse":
        raise NumericError(failures.non_finite(job, f'non_finite = "refuse" keeps them out of {target}'))
    return Words(codes, non_finite=kept)


def _to_int32(job: Job, values: Values) -> NDArray[Any]:
    import numpy as np

    from ninfer_convert.kernels.cast import floats_to_int32

    def convert(values: Values) -> tuple[NDArray[Any], int, int]:
        words, half = float_words(values)
        codes = np.empty(words.shape, np.int32)
        return codes, *floats_to_int32(words, half, codes)

    codes, unfit, _ = convert(values)
    if unfit:
        raise NumericError(failures.no_int32(job, lambda values: convert(values)[1:]))
    return codes


def _integers_to_int32(job: Job, values: Values) -> NDArray[Any]:
    import numpy as np

    def find(values: Values) -> tuple[int, int]:
        array = integers(values)
        unfit = np.flatnonzero((array < -(2**31)) | (array >= 2**31))
        return len(unfit), int(unfit[0]) if len(unfit) else -1

    if find(values)[0]:
        raise NumericError(failures.no_int32(job, find))
    return integers(values).astype(np.int32)


def _integers_to_float(target: str, values: Values) -> NDArray[Any]:
    import numpy as np

    from ninfer_convert.kernels.cast import integers_to_bf16, integers_to_f32

    array = integers(values)
    codes = np.empty(array.shape, "uint16" if target == "bf16" else "uint32")
    (integers_to_bf16 if target == "bf16" else integers_to_f32)(array, codes)
    return codes
