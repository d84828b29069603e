"""Binary scalar formats on exact fractions: what a word means, and which word is nearest to a number."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Binary:
    """Sign, `exponent` bits, `fraction` bits. Words from `largest` + 1 on are not finite magnitudes."""

    exponent: int
    fraction: int
    largest: int
    saturates: bool = False
    """Whether numbers beyond the largest become the largest; else they become infinity."""

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.fraction)

    @property
    def infinity(self) -> int:
        return self.largest + 1

    def magnitude(self, word: int) -> Fraction:
        """The number that a word without its sign means; for infinity's the power of two that would come next."""
        exponent, fraction = divmod(word % self.sign, 1 << self.fraction)
        if exponent == 0:
            return Fraction(fraction) * Fraction(2) ** (1 - self.bias - self.fraction)
        return Fraction((1 << self.fraction) + fraction) * Fraction(2) ** (exponent - self.bias - self.fraction)

    def value(self, word: int) -> Fraction:
        assert word % self.sign <= self.largest
        return -self.magnitude(word) if word & self.sign else self.magnitude(word)

    def nearest(self, number: Fraction) -> int:
        """The magnitude word nearest to `number` >= 0, of two equally near the even one."""
        low, high = 0, self.largest
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.magnitude(middle) <= number else (low, middle - 1)
        if low == self.largest and self.saturates:
            return low
        down, up = number - self.magnitude(low), self.magnitude(low + 1) - number
        return low + (up < down or (up == down and low % 2 == 1))


BF16 = Binary(8, 7, 0x7F7F)
F16 = Binary(5, 10, 0x7BFF)
F32 = Binary(8, 23, 0x7F7FFFFF)
F64 = Binary(11, 52, 0x7FEFFFFFFFFFFFFF)
E4M3 = Binary(4, 3, 0x7E, saturates=True)
E2M1 = Binary(2, 1, 0x7, saturates=True)


def convert(word: int, source: Binary, target: Binary) -> int:
    """`word` rounded once to `target`; a NaN keeps its sign and leading fraction bits and gets its quiet bit."""
    sign = target.sign if word & source.sign else 0
    magnitude = word % source.sign
    if magnitude <= source.largest:
        return sign | target.nearest(source.magnitude(magnitude))
    payload = magnitude - source.infinity
    if target is E4M3:
        return sign | (0x7F if payload else target.largest)
    if source is E4M3:
        return sign | target.infinity | 1 << (target.fraction - 1)
    if payload == 0:
        return sign | target.infinity
    shift = source.fraction - target.fraction
    leading = payload >> shift if shift >= 0 else payload << -shift
    return sign | target.infinity | 1 << (target.fraction - 1) | leading
