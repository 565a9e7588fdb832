"""Durations: how long each step computes, as users write it and as it is drawn; pure.

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

import numpy as np

from voxload.benchmark.laws import Constant, Exponential, Gamma, Law, Normal, Poisson, Uniform
from voxload.errors import UsageError

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
