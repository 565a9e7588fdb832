"""Laws: distributions of how long a step computes, with the mean of what they really give; pure.

No law gives a negative time. Of a normal distribution what falls below zero is drawn again, which moves the mean:
`mean` is that of what is drawn and `asked` the one that was named.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from voxload.errors import UsageError


class Law(Protocol):
    """A distribution of seconds; immutable, safe to share between threads."""

    @property
    def asked(self) -> float:
        """The mean that the parameters name, in seconds."""
        ...

    @property
    def mean(self) -> float:
        """The mean of what is drawn, in seconds."""
        ...

    def sample(self, source: np.random.Generator) -> float:
        """Return seconds, 0 or more."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same."""

    mean: float

    @property
    def asked(self) -> float:
        """The same as `mean`."""
        return self.mean

    def sample(self, source: np.random.Generator) -> float:
        """Return the mean."""
        del source
        return self.mean


@dataclass(frozen=True, slots=True)
class Normal:
    """A normal distribution without its part below zero."""

    asked: float
    """Mean of the whole distribution."""
    deviation: float
    """Standard deviation of the whole distribution."""

    def __post_init__(self) -> None:
        if self.asked < 0:
            raise UsageError("normal distribution", found=f"mean {self.asked:g} s", expected="0 or more")

    @property
    def mean(self) -> float:
        """That of the part from zero on (mean plus deviation times the hazard at zero)."""
        if not self.deviation:
            return self.asked
        start = -self.asked / self.deviation
        density = math.exp(-start * start / 2) / math.sqrt(2 * math.pi)
        return self.asked + self.deviation * density / (math.erfc(start / math.sqrt(2)) / 2)

    def sample(self, source: np.random.Generator) -> float:
        """Return seconds; with a mean of 0 or more, at least every second draw is kept."""
        while (found := source.normal(self.asked, self.deviation)) < 0:
            pass
        return float(found)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every time between two is as likely."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if self.high < self.low:
            raise UsageError("uniform distribution", found=f"{self.low:g} s to {self.high:g} s", expected="LOW,HIGH")

    @property
    def asked(self) -> float:
        """The same as `mean`."""
        return self.mean

    @property
    def mean(self) -> float:
        """The middle."""
        return (self.low + self.high) / 2

    def sample(self, source: np.random.Generator) -> float:
        """Return seconds."""
        return float(source.uniform(self.low, self.high))


@dataclass(frozen=True, slots=True)
class Gamma:
    """A gamma distribution."""

    shape: float
    """A plain number."""
    scale: float
    """Seconds."""

    @property
    def asked(self) -> float:
        """The same as `mean`."""
        return self.mean

    @property
    def mean(self) -> float:
        """Shape times scale."""
        return self.shape * self.scale

    def sample(self, source: np.random.Generator) -> float:
        """Return seconds."""
        return float(source.gamma(self.shape, self.scale))


@dataclass(frozen=True, slots=True)
class Exponential:
    """An exponential distribution."""

    mean: float

    @property
    def asked(self) -> float:
        """The same as `mean`."""
        return self.mean

    def sample(self, source: np.random.Generator) -> float:
        """Return seconds."""
        return float(source.exponential(self.mean))


@dataclass(frozen=True, slots=True)
class Poisson:
    """A whole number of units, Poisson distributed."""

    mean: float
    unit: float
    """Seconds of one."""

    def __post_init__(self) -> None:
        if not self.unit:
            raise UsageError("poisson distribution", found="a unit of 0 s", expected="more, such as 10ms")

    @property
    def asked(self) -> float:
        """The same as `mean`."""
        return self.mean

    def sample(self, source: np.random.Generator) -> float:
        """Return seconds: a multiple of the unit."""
        return float(source.poisson(self.mean / self.unit)) * self.unit
