"""Durations: what texts mean, and that draws follow the law and only depend on seed, epoch and step."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from voxload.benchmark.workload.durations import parse_durations
from voxload.errors import UsageError

DRAWS = 3000
LAWS: dict[str, tuple[str, tuple[float, ...]]] = {
    "normal:0.32,0.02": ("norm", (0.32, 0.02)),
    "normal:10ms,10ms": ("truncnorm", (-1, math.inf, 0.01, 0.01)),
    "normal:0,1": ("halfnorm", ()),
    "uniform:100ms,0.3": ("uniform", (0.1, 0.2)),
    "gamma:2,50ms": ("gamma", (2, 0, 0.05)),
    "exponential:0.1": ("expon", (0, 0.1)),
    "poisson:3": ("poisson", (3,)),
}
"""Names and parameters of scipy.stats, by our texts."""


def draws(text: str, seed: int = 1) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return many draws, over several epochs."""
    durations = parse_durations(text)
    return np.array([durations.draw(seed, number // 500, number % 500) for number in range(DRAWS)])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0.32", 0.32),
        ("320ms", 0.32),
        (" 1.5 ms ", 0.0015),
        ("250us", 0.00025),
        ("2s", 2.0),
        (".5", 0.5),
        ("1e-3", 1e-3),
    ],
)
def test_a_number_is_the_same_in_every_step(text: str, seconds: float) -> None:
    """Units are understood; the mean is the time."""
    durations = parse_durations(text)
    assert durations.mean == pytest.approx(seconds, rel=1e-12)
    assert {durations.draw(0, epoch, step) for epoch in range(3) for step in range(3)} == {durations.mean}
    assert durations.note == ""


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("text", LAWS)
def test_draws_follow_the_law(text: str) -> None:
    """Mean and variance are within five standard errors; what has a density passes Kolmogorov's and Smirnov's test."""
    stats: Any = import_module("scipy.stats")  # seconds, and in each process that collects tests
    name, parameters = LAWS[text]
    law, found = getattr(stats, name)(*parameters), draws(text)
    mean, variance, _, kurtosis = (float(value) for value in law.stats(moments="mvsk"))
    assert parse_durations(text).mean == pytest.approx(mean, rel=1e-9)
    assert abs(found.mean() - mean) < 5 * math.sqrt(variance / DRAWS)
    assert abs(found.var() - variance) < 5 * variance * math.sqrt((kurtosis + 2) / DRAWS)
    assert (found >= 0).all()
    if not text.startswith("poisson"):
        assert stats.kstest(found, law.cdf).pvalue > 1e-4
    else:
        counts = np.array([np.count_nonzero(found == number) for number in range(7)])
        chances = law.pmf(np.arange(7))
        rest = stats.chisquare([*counts, DRAWS - counts.sum()], DRAWS * np.array([*chances, 1 - chances.sum()]))
        assert rest.pvalue > 1e-4


def test_poisson_numbers_have_a_unit() -> None:
    """The mean is a time; draws are multiples of the unit."""
    durations = parse_durations("poisson:0.32,10ms")
    assert durations.mean == 0.32
    found = draws("poisson:0.32,10ms") / 0.01
    assert np.allclose(found, np.round(found), atol=1e-9)
    assert abs(found.mean() - 32) < 5 * math.sqrt(32 / DRAWS)


def test_draws_depend_on_seed_epoch_and_step_alone() -> None:
    """Ranks draw alike; another seed, epoch or step gives another time."""
    one, same = parse_durations("normal:1,0.1"), parse_durations("normal:1,0.1")
    places = [(seed, epoch, step) for seed in range(3) for epoch in range(3) for step in range(3)]
    assert [one.draw(*place) for place in places] == [same.draw(*place) for place in reversed(places)][::-1]
    assert len({one.draw(*place) for place in places}) == len(places)
    assert abs(float(np.corrcoef(draws("normal:1,0.1", 1), draws("normal:1,0.1", 2))[0, 1])) < 5 / math.sqrt(DRAWS)


def test_a_mean_that_moved_is_said() -> None:
    """A normal distribution that is cut off at zero has a note with the mean that was meant and the one it has."""
    assert parse_durations("normal:0.32,0.02").note == ""
    note = parse_durations("normal:10ms,10ms").note
    assert "normal:10ms,10ms" in note
    assert "0.01288 s and not 0.01 s" in note


@pytest.mark.parametrize(
    "text",
    [
        *("", "-1", "nan", "inf", "1e999", "3 h", "1,2", ":5", "cauchy:1"),
        *("normal:1", "normal:1,2,3", "normal:-1,1", "normal:1:2", "gamma:2ms,1", "gamma:1", "uniform:2,1"),
        *("exponential:", "exponential:1,2", "poisson:1,0", "poisson:1,2,3"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """With what was found."""
    with pytest.raises(UsageError, match="found"):
        parse_durations(text)
