"""grouped_search: each group's scale by trying some sixty, weighted by importance where there is any (methods.md)."""

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
class GroupedSearch:
    """Never worse than grouped_absmax in any group, weighed by the job's importance."""

    name: str = "grouped_search"
    formats: tuple[str, ...] = GROUPED
    parameters: Mapping[str, type] = field(default_factory=lambda: {"imatrix": str, "negative_scales": bool})
    quantizes: bool = True

    def refusal(self, source: Source, format: Format, parameters: Mapping[str, Any]) -> str | None:
        return refusal(self, source, format)

    def encoder(self, job: Job) -> Encode:
        import numpy as np

        from ninfer_convert.kernels.search import encode_search

        format = job.format
        assert isinstance(format, GroupedFormat)
        groups = -(-job.columns // format.group)
        negative = bool(job.parameters.get("negative_scales", False))
        banks = [None] if job.importance is None else list(job.importance.reshape(-1, job.columns))
        rows_of_bank = job.rows // len(banks)

        def encode(begin: int, end: int) -> Words:
            words, half = float_words(job.source.values(begin * job.columns, end * job.columns))
            codes = np.empty((end - begin, job.columns), np.int8)
            scales = np.empty((end - begin, groups), np.uint16)
            matrix = words.reshape(codes.shape)
            interval = format.group, format.qmin, format.qmax, negative
            for bank in range(begin // rows_of_bank, -(-end // rows_of_bank)):
                part = slice(max(bank * rows_of_bank - begin, 0), (bank + 1) * rows_of_bank - begin)
                if encode_search(matrix[part], half, banks[bank], *interval, codes[part], scales[part]) >= 0:
                    raise NumericError(grouped_problems(job, format))
            return Words(codes, scales)

        return encode


GROUPED_SEARCH = GroupedSearch()
