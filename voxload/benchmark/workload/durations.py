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
from dataclasses import dataclass, field

import numpy as np

from voxload.errors import UsageError


@dataclass(frozen=True, slots=True)
class Law:
    """A distribution of seconds, none below zero; immutable, safe to share between threads."""

    asked: float
    """The mean that the parameters name."""
    mean: float
    """The mean of what is drawn."""
    sample: Callable[[np.random.Generator], float]
    """Draws seconds, 0 or more."""


def _constant(seconds: float) -> Law:
    return Law(seconds, seconds, lambda _: seconds)


def _normal(asked: float, deviation: float) -> Law:
    """Return a normal distribution without its part below zero; `asked` and `deviation` are those of the whole one."""

    def sample(source: np.random.Generator) -> float:
        while (found := source.normal(asked, deviation)) < 0:
            pass  # the mean is 0 or more: at least every second draw is kept
        return float(found)

    if not deviation:
        return Law(asked, asked, sample)
    # The mean of what is left: mean plus deviation times the hazard at zero.
    start = -asked / deviation
    density = math.exp(-start * start / 2) / math.sqrt(2 * math.pi)
    return Law(asked, asked + deviation * density / (math.erfc(start / math.sqrt(2)) / 2), sample)


def _uniform(low: float, high: float) -> Law:
    if high < low:
        raise UsageError("uniform distribution", found=f"{low:g} s to {high:g} s", expected="LOW,HIGH")
    mean = (low + high) / 2
    return Law(mean, mean, lambda source: float(source.uniform(low, high)))


def _gamma(shape: float, scale: float) -> Law:
    return Law(shape * scale, shape * scale, lambda source: float(source.gamma(shape, scale)))


def _exponential(mean: float) -> Law:
    return Law(mean, mean, lambda source: float(source.exponential(mean)))


def _poisson(mean: float, unit: float = 1.0) -> Law:
    """Return a law of multiples of `unit`, in seconds."""
    if not unit:
        raise UsageError("poisson distribution", found="a unit of 0 s", expected="more, such as 10ms")
    return Law(mean, mean, lambda source: float(source.poisson(mean / unit)) * unit)


_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(us|ms|s|)\s*")
"""A number without a sign, and its unit."""
_MOVED = 1e-4
"""Share of the mean that may go unsaid."""


@dataclass(frozen=True, slots=True)
class Durations:
    """A way of drawing the seconds of a step; immutable, safe to share between threads."""

    text: str
    """As it was written."""
    law: Law = field(compare=False, repr=False)

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
        return Durations(text, _constant(_time(text, text)))
    name, _, rest = text.partition(":")
    words = rest.split(",")
    known = _LAWS.get(name.strip())
    if known is None:
        raise _refused(text, f"a distribution {name!r}")
    make, fewest, kinds = known
    if not fewest <= len(words) <= len(kinds):
        raise _refused(text, f"{len(words)} parameters")
    return Durations(text, make(*(parse(text, word) for parse, word in zip(kinds, words, strict=False))))


def _time(text: str, word: str) -> float:
    """Return seconds."""
    number, unit = _number(text, word)
    return number * _UNITS[unit]


def _shape(text: str, word: str) -> float:
    """Return a plain number."""
    number, unit = _number(text, word)
    if unit:
        raise _refused(text, f"a shape in {unit}")
    return number


_LAWS: dict[str, tuple[Callable[..., Law], int, tuple[Callable[[str, str], float], ...]]] = {
    "normal": (_normal, 2, (_time, _time)),
    "uniform": (_uniform, 2, (_time, _time)),
    "gamma": (_gamma, 2, (_shape, _time)),
    "exponential": (_exponential, 1, (_time,)),
    "poisson": (_poisson, 1, (_time, _time)),
}
"""By name: what makes the law, its fewest parameters, and what reads each of them."""


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
