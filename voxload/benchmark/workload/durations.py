"""Durations: how long each step computes, as users write it and as it is drawn; pure.

Laws: distributions of how long a step computes, with the mean of what they really give; pure. No law gives a negative
time. Of a normal distribution what falls below zero is drawn again, which moves the mean: `mean` is that of what is
drawn and `asked` the one that was named.

================================  ==================================================================
written                           meaning
================================  ==================================================================
``0.32``, ``320ms``               always as long; units are ``us``, ``ms`` and ``s``, seconds without
``normal:MEAN,STD``               normal; what would be negative is drawn again, see `Durations.note`
``uniform:LOW,HIGH``              as likely anywhere between the two
``gamma:SHAPE,SCALE``             gamma; the shape is a plain number
``exponential:MEAN``              exponential
``poisson:MEAN[,UNIT]``           a Poisson number of units, one second each where none is named
================================  ==================================================================

The distributions and the order of their parameters are DLIO's; DLIO's Poisson numbers are whole seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
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


_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(us|ms|s|)\s*")
_MOVED = 1e-4
"""Share of the mean that may go unsaid."""


@dataclass(frozen=True, slots=True)
class Durations:
    """A way of drawing the seconds of a step; immutable, safe to share between threads."""

    text: str
    """As it was written."""
    law: Law

    @property
    def mean(self) -> float:
        """Mean of what is drawn, in seconds: where draws are cut off at zero, that of what is left."""
        return self.law.mean

    @property
    def note(self) -> str:
        """What a reader must know: that cutting off at zero moved the mean; empty where it did not."""
        if self.mean <= self.law.asked * (1 + _MOVED):
            return ""
        return (
            f"compute time {self.text}: times below 0 are drawn again, "
            f"so that the mean is {self.mean:.4g} s and not {self.law.asked:.4g} s"
        )

    def draw(self, seed: int, epoch: int, step: int) -> float:
        """Return the seconds of one step, 0 or more: the same for the same three numbers, each 0 or more.

        Drawn by numpy, whose streams may change with its version.
        """
        return self.law.sample(np.random.default_rng((seed, epoch, step)))


def parse_durations(text: str) -> Durations:
    """Return the durations that a text names; see the table above.

    Raises UsageError for anything else, and for parameters that no such distribution has.
    """
    if ":" not in text:
        return Durations(text, Constant(_time(text, text)))
    name, _, rest = text.partition(":")
    words = rest.split(",")
    known = _LAWS.get(name.strip())
    if known is None:
        raise _refused(text, f"a distribution {name!r}")
    fewest, most, make = known
    if not fewest <= len(words) <= most:
        raise _refused(text, f"{len(words)} parameters")
    return Durations(text, make(text, words))


def _normal(text: str, words: list[str]) -> Law:
    return Normal(*(_time(text, word) for word in words))


def _uniform(text: str, words: list[str]) -> Law:
    return Uniform(*(_time(text, word) for word in words))


def _gamma(text: str, words: list[str]) -> Law:
    shape, unit = _number(text, words[0])
    if unit:
        raise _refused(text, f"a shape in {unit}")
    return Gamma(shape, _time(text, words[1]))


def _exponential(text: str, words: list[str]) -> Law:
    return Exponential(_time(text, words[0]))


def _poisson(text: str, words: list[str]) -> Law:
    return Poisson(_time(text, words[0]), _time(text, words[1]) if len(words) > 1 else 1.0)


_LAWS: dict[str, tuple[int, int, Callable[[str, list[str]], Law]]] = {
    "normal": (2, 2, _normal),
    "uniform": (2, 2, _uniform),
    "gamma": (2, 2, _gamma),
    "exponential": (1, 1, _exponential),
    "poisson": (1, 2, _poisson),
}
"""By name: fewest and most parameters, and what makes the law of them."""


def _time(text: str, word: str) -> float:
    """Return seconds."""
    number, unit = _number(text, word)
    return number * _UNITS[unit]


def _number(text: str, word: str) -> tuple[float, str]:
    """Return a number and its unit."""
    match = _NUMBER.fullmatch(word)
    if match is None or not math.isfinite(float(match[1])):
        raise _refused(text, repr(word))
    return float(match[1]), match[2]


def _refused(text: str, found: str) -> UsageError:
    return UsageError(
        f"compute time {text!r}",
        found=found,
        expected="a time such as 0.32 or 320ms, or normal:MEAN,STD, uniform:LOW,HIGH, gamma:SHAPE,SCALE, "
        "exponential:MEAN, poisson:MEAN[,UNIT]",
    )
