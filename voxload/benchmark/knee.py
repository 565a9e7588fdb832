"""Knee: which value of a factor to use, and why; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from voxload.benchmark.intervals import ratio_interval
from voxload.benchmark.sweep import Setting

ENOUGH = 0.95
"""Share of the best throughput beyond which more is not worth its cost."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What one factor should be, the others being as in the best point."""

    factor: str
    setting: Setting
    """The point that has it."""
    rate: float
    """Its throughput, the median."""
    best: float
    """The largest throughput of this factor's values."""
    why: str
    """The reason, a sentence."""


@dataclass(frozen=True, slots=True)
class Point:
    """A setting and what was measured of it."""

    setting: Setting
    rates: tuple[float, ...]
    """Throughput of each repetition, in samples per second."""

    @property
    def rate(self) -> float:
        """The median."""
        return float(np.median(self.rates))


def choices(points: Sequence[Point], varied: Sequence[str]) -> tuple[Choice, ...]:
    """Return, for each factor, the cheapest value that is as good as the best one, with the others at their best.

    Cheapest is the first in the order in which values were named: fewest threads, say. A value is as good when it gives
    `ENOUGH` of the largest throughput, or when repetitions cannot tell it from the best.
    """
    top = max(points, key=lambda point: point.rate)
    found = []
    for factor in varied:
        others = [name for name in Setting.__dataclass_fields__ if name != factor]
        line = [point for point in points if all(point.setting.value(o) == top.setting.value(o) for o in others)]
        best = max(line, key=lambda point: point.rate)
        first = next(point for point in line if point.rate >= ENOUGH * best.rate or _is_noise(point, best))
        found.append(Choice(factor, first.setting, first.rate, best.rate, _why(factor, first, best, line)))
    return tuple(found)


def best_setting(points: Sequence[Point], found: Sequence[Choice]) -> Setting:
    """Return the point that has every factor's choice; all points of a sweep are there."""
    wanted: Mapping[str, object] = {choice.factor: choice.setting.value(choice.factor) for choice in found}
    return next(
        point.setting
        for point in points
        if all(point.setting.value(factor) == value for factor, value in wanted.items())
    )


def _is_noise(point: Point, best: Point) -> bool:
    """Tell whether repetitions cannot tell two points apart."""
    interval = ratio_interval(point.rates, best.rates)
    return interval is not None and interval.is_sure and interval.low <= 1


def _why(factor: str, chosen: Point, best: Point, line: Sequence[Point]) -> str:
    """Return what the chosen value gives beside its neighbours."""
    place = line.index(chosen)
    value = _said(chosen, factor)
    parts = [f"{value} gives {chosen.rate:.4g} samples/s"]
    if place:
        parts.append(f"{chosen.rate / line[place - 1].rate:.2f} times {_said(line[place - 1], factor)}")
    if chosen is best:
        later = line[place + 1 :]
        parts.append("more is slower" if later and factor == "threads" else "the most of all")
    else:
        parts.append(f"{_said(best, factor)} gives {best.rate / chosen.rate - 1:+.1%}, within noise or not worth it")
    return "; ".join(parts) + "."


def _said(point: Point, factor: str) -> str:
    return str(Setting(**{factor: point.setting.value(factor)}))  # type: ignore[arg-type] # a value of that factor
