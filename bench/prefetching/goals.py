"""Goals: what was asked for, beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.prefetching.results import Result, Run

BEST = "clairvoyant"


@dataclass(frozen=True, slots=True)
class Finding:
    """One goal and its figures, one for each round."""

    name: str
    wanted: str
    """As text."""
    figures: tuple[float, ...]
    is_met: bool
    """Whether the median meets it, or all rounds do where the name says always."""
    as_text: Callable[[float], str]

    @property
    def median(self) -> float:
        """The middle figure."""
        return float(np.median(self.figures))

    @property
    def text(self) -> str:
        """Median and range."""
        shown = [self.as_text(figure) for figure in (self.median, min(self.figures), max(self.figures))]
        return shown[0] if len(self.figures) == 1 else f"{shown[0]} ({shown[1]} to {shown[2]})"


def findings(results: Mapping[str, Result]) -> list[Finding]:
    """Return all goals whose contenders took part."""
    found = [*_speed(results), *_bytes(results), *_stall(results)]
    streams = {run.stream for result in results.values() for run in result.runs}
    return [*found, Finding("different sample streams, always", "1", (len(streams),), len(streams) == 1, _count)]


def _speed(results: Mapping[str, Result]) -> list[Finding]:
    found = []
    best = results.get(BEST)
    if best is None:
        return []
    for name, wanted in (("torch", 2.1), ("lru", 1.3)):
        if name in results:
            found.append(
                _least(f"times faster than {name}", wanted, _pairs(results[name], best, lambda run: run.seconds))
            )
    if "plain" in results:
        first = _pairs(results["plain"], best, lambda run: run.epochs[0])
        found.append(_least("epoch 1: speed to plain reads", 0.98, first))
    to_bound = [run.seconds / best.forecast.bound for run in best.runs]
    found.append(_most("time to the lower bound", 1.1, to_bound, _ratio))
    off = [abs(best.forecast.seconds / run.seconds - 1) for run in best.runs]
    return [*found, _most("simulated time off by", 0.15, off, _percent)]


def _bytes(results: Mapping[str, Result]) -> list[Finding]:
    found = []
    if BEST in results:
        runs = results[BEST].runs
        times = tuple(float(end) for run in runs for end in (run.tally.least, run.tally.most))
        is_met = set(times) == {1.0}
        found.append(Finding("times that each byte was read, always", "1", times, is_met, _count))
    half = results.get(f"{BEST}/half")
    if half is not None:
        to_optimum = [run.tally.data_bytes / half.forecast.optimum_bytes for run in half.runs]
        found.append(_most("half tiers: bytes to the optimum", 1.05, to_optimum, _ratio))
    return found


def _stall(results: Mapping[str, Result]) -> list[Finding]:
    train = results.get(f"{BEST}/train")
    if train is None:
        return []
    return [_most("stall from epoch 2 on", 0.01, [run.stall for run in train.runs], _percent)]


def _pairs(slow: Result, fast: Result, seconds: Callable[[Run], float]) -> list[float]:
    """Return the ratio of each round: what else the machine did in it slowed both."""
    return [seconds(one) / seconds(other) for one, other in zip(slow.runs, fast.runs, strict=True)]


def _least(name: str, wanted: float, figures: Sequence[float]) -> Finding:
    return Finding(name, f">= {_ratio(wanted)}", tuple(figures), float(np.median(figures)) >= wanted, _ratio)


def _most(name: str, wanted: float, figures: Sequence[float], as_text: Callable[[float], str]) -> Finding:
    return Finding(name, f"<= {as_text(wanted)}", tuple(figures), float(np.median(figures)) <= wanted, as_text)


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _percent(value: float) -> str:
    return f"{value:.2%}"


def _count(value: float) -> str:
    return f"{value:.0f}"
