"""Finding: what was asked for, beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Finding:
    """One goal and its figures, one for each round."""

    name: str
    wanted: float
    is_least: bool
    """Whether more is better."""
    figures: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle figure."""
        return float(np.median(self.figures))

    @property
    def is_met(self) -> bool:
        """Whether the median meets it."""
        return self.median >= self.wanted if self.is_least else self.median <= self.wanted


def at_most(name: str, wanted: float, figures: tuple[float, ...]) -> Finding:
    """Return a goal of which less is better."""
    return Finding(name, wanted, is_least=False, figures=figures)


def at_least(name: str, wanted: float, figures: tuple[float, ...]) -> Finding:
    """Return a goal of which more is better."""
    return Finding(name, wanted, is_least=True, figures=figures)
