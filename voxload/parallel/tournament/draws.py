"""Draws: who meets whom in a round, who is replaced by whom, and how step sizes change; pure, the same everywhere."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

FACTORS = (0.8, 1.25)
"""By which a step size that is mutated changes (Jaderberg et al., arXiv 1711.09846, section 4.1.1: 0.8 and 1.2)."""


def partners(trainers: int, number: int, *, seed: int) -> tuple[int, ...]:
    """Return whom each trainer meets in a round: drawn anew in each, one that is left over itself.

    >>> partners(4, 1, seed=0)
    (3, 2, 1, 0)
    >>> partners(3, 1, seed=0)
    (2, 1, 0)
    """
    order = list(range(trainers))
    _drawn(seed, number, "pairs").shuffle(order)
    found = list(range(trainers))
    for first, second in zip(order[::2], order[1::2], strict=False):
        found[first], found[second] = second, first
    return tuple(found)


def rate_factor(trainer: int, number: int, *, seed: int) -> float:
    """Return by what the step size of a trainer changes that goes on with another's model."""
    return _drawn(seed, number, f"rate of {trainer}").choice(FACTORS)


def successors(scores: Mapping[int, float], *, share: float) -> dict[int, int]:
    """Return whose model each trainer goes on with: the worst ones each that of one of the best, others their own.

    Parameters
    ----------
    scores
        Losses by trainer; what is no number is worse than any.
    share
        Of them that are replaced, at most a half.

    Examples
    --------
    >>> successors({0: 3.0, 1: 1.0, 2: 2.0, 3: float("nan")}, share=0.5)
    {0: 2, 1: 1, 2: 2, 3: 1}
    """
    order = sorted(scores, key=lambda trainer: (math.isnan(scores[trainer]), scores[trainer], trainer))
    count = min(int(len(order) * share), len(order) // 2)
    found = {trainer: trainer for trainer in sorted(scores)}
    for place in range(count):
        found[order[-1 - place]] = order[place]
    return found


def is_better(other: float, own: float) -> bool:
    """Tell whether a loss is less than one's own; equal ones change nothing, and what is no number never wins."""
    return other < own or (math.isnan(own) and not math.isnan(other))


def _drawn(seed: int, number: int, what: str) -> random.Random:
    return random.Random(f"{seed} {number} {what}")  # noqa: S311 - a draw needs no secrecy
