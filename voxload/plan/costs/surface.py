"""Surface: a value between points where it was measured, how far off that is, and where nothing was measured; pure.

Two parts: a sum of terms that the caller knows, such as operations and bytes, none of which can be negative; and what
is left over, in logarithms, by a Gaussian process with a Matern kernel (Rasmussen and Williams, Gaussian Processes for
Machine Learning, 2006, chapters 2 and 4). Its widths, one for each number, are those by which points are best told by
all others, in closed form (the same, section 5.4.2), and so is the error that is stated. Far from all points the terms
are what remains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from voxload.errors import UsageError

Floats = npt.NDArray[np.float64]
Terms = Callable[[Floats], Floats]
"""Returns the terms of points: (points, terms) for (points, numbers), none negative, the first one always positive."""

_WIDTHS, _NOISES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0), (0.03, 0.1, 0.2, 0.4)
"""Of the process, in standard deviations of the points; and of what was measured, in logarithms."""
_TURNS, _TRIED = 3, 250
"""At most, in each of which every width is tried; and on how many points."""
_FAR, _LEAST = 3.0, 1e-3
"""Largest error of a point that counts, in logarithms; and what a turn has to gain for another one."""
MARGIN = 0.7
"""How far outside of all points, in logarithms, a value still counts as measured: a factor of two."""


class Surface:
    """A function of positive numbers that was measured at some; immutable.

    Parameters
    ----------
    points
        Where, each with as many positive numbers.
    values
        What was measured there, positive.
    terms
        What it is made of.

    Raises
    ------
    UsageError
        Where there is nothing, or anything that is not positive.
    """

    def __init__(self, points: Sequence[Sequence[float]], values: Sequence[float], terms: Terms) -> None:
        at, y = np.asarray(points, np.float64), np.asarray(values, np.float64)
        if at.ndim != 2 or not len(at) or len(at) != len(y) or not (at > 0).all() or not (y > 0).all():
            raise UsageError("measured points", found=f"{len(y)} of shape {at.shape}", expected="positive numbers")
        x = np.log(at)
        self._terms = terms
        self._low, self._high = x.min(0), x.max(0)
        self._middle, self._scale = x.mean(0), np.where(x.std(0) > 1e-6, x.std(0), 1.0)
        self._x = (x - self._middle) / self._scale
        self._shares = not_negative(terms(at), y)
        rest = np.log(y) - np.log(terms(at) @ self._shares)
        self._widths, self._weights, self.error = _fitted(self._x, rest)
        """`error` is the mean of how far off a point is that all others tell, as a share of it."""

    def at(self, point: Sequence[float]) -> float:
        """Return the value at positive numbers."""
        numbers = np.asarray(point, np.float64)
        x = (np.log(numbers) - self._middle) / self._scale
        near = _matern((((self._x - x) / self._widths) ** 2).sum(1))
        return float(self._terms(numbers[None])[0] @ self._shares * np.exp(near @ self._weights))

    def is_measured(self, point: Sequence[float]) -> bool:
        """Tell whether a point lies within, or close to, what was measured."""
        x = np.log(np.asarray(point, np.float64))
        return bool((x >= self._low - MARGIN).all() and (x <= self._high + MARGIN).all())


def not_negative(rows: Floats, values: Floats, scale: Floats | None = None) -> Floats:
    """Return what each column counts for, none below 0, so that the relative errors of sums are least in squares.

    All choices of columns are tried: there are few. Errors are relative to `scale`, by default the values themselves.
    """
    scale = values if scale is None else scale
    scaled, wanted = rows / scale[:, None], values / scale
    count = rows.shape[1]
    best, least = np.zeros(count), np.inf
    for size in range(1, count + 1):
        for chosen in map(list, combinations(range(count), size)):
            answer = np.zeros(count)
            answer[chosen] = np.linalg.lstsq(scaled[:, chosen], wanted, rcond=None)[0]
            rest = float(((scaled @ answer - wanted) ** 2).sum())
            if (answer >= 0).all() and (rows @ answer > 0).all() and rest < least:
                best, least = answer, rest
    return best


def _fitted(x: Floats, rest: Floats) -> tuple[Floats, Floats, float]:
    """Return the widths, the weight of each point, and the mean error of points that others tell."""
    some = slice(None, None, -(-len(x) // _TRIED))  # to try widths on all points of many takes too long
    tried = _Process(x[some], rest[some])
    starts = [((width,) * x.shape[1], noise) for width in _WIDTHS[:4] for noise in _NOISES]
    widths, noise = min(starts, key=lambda each: tried.told(*each)[0])
    error, _ = tried.told(widths, noise)
    for _ in range(_TURNS if x.shape[1] > 1 else 0):
        before = error
        for place in range(x.shape[1]):
            for width in _WIDTHS:
                other = (*widths[:place], width, *widths[place + 1 :])
                found, _ = tried.told(other, noise)
                if found < error:
                    widths, error = other, found
        if before - error < _LEAST:
            break
    error, weights = _Process(x, rest).told(widths, noise)
    return np.array(widths), weights, error


class _Process:
    """A Gaussian process through points, for any widths."""

    def __init__(self, x: Floats, rest: Floats) -> None:
        self._rest = rest
        self._apart = [(column[:, None] - column[None]) ** 2 for column in x.T]
        self._height = max(float(rest.var()), 1e-4)

    def told(self, widths: Sequence[float], noise: float) -> tuple[float, Floats]:
        """Return how far off a point is that all others tell, in the mean, and the weight of each."""
        each = zip(self._apart, widths, strict=True)
        distances = sum((apart / width**2 for apart, width in each), np.zeros_like(self._apart[0]))
        kernel = _matern(distances) + noise**2 / self._height * np.eye(len(distances))
        inverse = np.linalg.inv(kernel)
        weights = inverse @ self._rest
        # A point that lies apart from all others is told by terms alone, at whatever error.
        errors = np.clip(weights / np.diagonal(inverse), -_FAR, _FAR)
        return float(np.mean(np.abs(np.expm1(errors)))), weights


def _matern(distances: Floats) -> Floats:
    """Return how much points have to do with each other at squared distances: Matern's function for 5/2."""
    root = np.sqrt(5.0 * distances)
    found: Floats = (1.0 + root + 5.0 / 3.0 * distances) * np.exp(-root)
    return found
