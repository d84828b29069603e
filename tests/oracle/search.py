"""grouped_search as methods.md words it: one group at a time, plain Python floats (binary64), every candidate tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.oracle.grouped import FORMATS, f16_value, f16_word, f32

RATIOS = [float(f"{hundredths / 100:.2f}") for hundredths in range(70, 119, 2)]
INFINITE = 0x7C00

Best = tuple[float, int, list[int]]
"""Error, scale word and codes of the best candidate so far."""


def to_word(value: float) -> int:
    """A computed scale's word: through binary32 to binary16, a non-zero underflow to +-2^-24."""
    magnitude = f16_word(abs(f32(value)))
    if magnitude == 0 and value != 0.0:
        magnitude = 1
    return magnitude | (0x8000 if value < 0.0 else 0)


def neighbours(word: int, steps: Sequence[int]) -> Iterator[int]:
    """The words `steps` away in magnitude, same sign, that are finite and not zero."""
    for step in steps:
        magnitude = (word & 0x7FFF) + step
        if 0 < magnitude < INFINITE:
            yield word & 0x8000 | magnitude


@dataclass
class GroupSearch:
    """One group: finite binary32 `values`, their `weights`, and the format's code interval."""

    values: Sequence[float]
    weights: Sequence[float]
    qmin: int
    qmax: int
    negative_scales: bool

    def codes(self, word: int) -> list[int]:
        """Codes under a scale word, by the reciprocal multiply of formats 7.2."""
        inverse = f32(1.0 / f16_value(word))
        return [max(self.qmin, min(self.qmax, round(f32(x * inverse)))) for x in self.values]

    def error(self, word: int, codes: Sequence[int]) -> float:
        """The weighted squared error, summed in ascending k."""
        scale, total = f16_value(word), 0.0
        for w, weight, q in zip(self.values, self.weights, codes, strict=True):
            r = w - scale * q
            total += weight * (r * r)
        return total

    def fit(self, codes: Sequence[int]) -> float | None:
        """The least-squares scale of `codes`; None where the denominator is zero."""
        over, under = 0.0, 0.0
        for w, weight, q in zip(self.values, self.weights, codes, strict=True):
            over += weight * w * q
            under += weight * q * q
        return None if under == 0.0 else over / under

    def amax(self) -> float:
        return max(abs(x) for x in self.values)

    def maxabs_word(self) -> int:
        """The scale of grouped_absmax; raises OverflowError where it is infinite."""
        word = to_word(f32(self.amax() / self.qmax))
        word = word or 1
        if word == INFINITE:
            raise OverflowError("the scale overflows binary16")
        return word

    def first_candidates(self, start: int, start_codes: Sequence[int]) -> Iterator[int]:
        """Families 1 to 5, in order."""
        amax = self.amax()
        extreme = next(x for x in self.values if abs(x) == amax)
        for ratio in RATIOS:
            yield to_word(ratio * amax / self.qmax)
        for ratio in RATIOS:
            yield to_word(ratio * extreme / self.qmin)
        for factor in (0.25, 0.5, 2.0, 4.0):
            yield to_word(f16_value(start) * factor)
        yield from neighbours(start, (-2, -1, 1, 2))
        fitted = self.fit(start_codes)
        if fitted is not None:
            yield to_word(fitted)
            yield to_word(fitted * 0.5)
            yield to_word(fitted * 2.0)
            yield from neighbours(to_word(fitted), (-2, -1, 1, 2))

    def last_candidates(self, best_codes: Sequence[int]) -> Iterator[int]:
        """Family 6."""
        fitted = self.fit(best_codes)
        if fitted is not None:
            yield to_word(fitted)
            yield from neighbours(to_word(fitted), (-1, 1))

    def run(self) -> tuple[int, list[int]]:
        """The best scale word and its codes."""
        if self.amax() == 0.0:
            return 0, [0] * len(self.values)
        start = self.maxabs_word()
        start_codes = self.codes(start)
        best = (self.error(start, start_codes), start, start_codes)
        best = self.improve(best, self.first_candidates(start, start_codes))
        best = self.improve(best, self.last_candidates(best[2]))
        return best[1], best[2]

    def improve(self, best: Best, words: Iterator[int]) -> Best:
        for word in words:
            magnitude = word & 0x7FFF
            if magnitude == 0 or magnitude >= INFINITE or (word & 0x8000 and not self.negative_scales):
                continue
            codes = self.codes(word)
            error = self.error(word, codes)
            if error < best[0]:
                best = (error, word, codes)
        return best


def search_rows(
    format: str,
    rows: Sequence[Sequence[float]],
    importance: Sequence[float] | None,
    negative_scales: bool,
    search: type[GroupSearch] = GroupSearch,
) -> tuple[list[list[int]], list[list[int]]]:
    """Codes and scale words of every row; the last group of a row is as short as it comes."""
    group, qmin, qmax = FORMATS[format]
    all_codes: list[list[int]] = []
    all_words: list[list[int]] = []
    for row in rows:
        weights = [1.0] * len(row) if importance is None else importance
        all_codes.append([])
        all_words.append([])
        for begin in range(0, len(row), group):
            part = slice(begin, begin + group)
            word, codes = search(row[part], weights[part], qmin, qmax, negative_scales).run()
            all_codes[-1] += codes
            all_words[-1].append(word)
    return all_codes, all_words
