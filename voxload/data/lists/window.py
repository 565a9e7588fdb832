"""Window: a stretch of a time axis as a sample, inputs and the steps after them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from voxload.errors import UsageError


@dataclass(frozen=True, slots=True)
class Window:
    """What of a series of time steps makes a sample.

    A series of n steps has ``(n - span) // stride + 1`` windows, where ``span = (length + horizon - 1) * step + 1`` is
    the number of steps from a window's first one to its last; none where it is shorter.

    Raises UsageError where a number is too small.

    Examples
    --------
    >>> window = Window(2, step=3, horizon=1)
    >>> window.count(9), window.steps(2)
    (3, (2, 5, 8))
    >>> growing = Window(2, horizon=4, first_horizons=(1, 2))
    >>> [growing.horizon_of(epoch) for epoch in range(4)]
    [1, 2, 4, 4]
    """

    length: int
    """Steps of the input."""
    stride: int = 1
    """Steps from the begin of a window to that of the next."""
    step: int = 1
    """Steps from one step of a window to the next."""
    horizon: int = 0
    """Steps behind the input that are the target, in the same rhythm; 0 for none."""
    stack: bool = False
    """Whether steps are channels, ``(T C, D, H, W)``, in place of an axis of their own, ``(T, C, D, H, W)``."""
    first_horizons: Sequence[int] = ()
    """Steps of the target in the first epochs, a number each; `horizon` in all others. Windows stay where they are, and
    all steps are read from the start."""

    def __post_init__(self) -> None:
        for name, least in (("length", 1), ("stride", 1), ("step", 1), ("horizon", 0)):
            given: Any = getattr(self, name)
            value = _whole(given)
            if value < least:
                raise UsageError(f"{name} of Window", found=repr(given), expected=f"a whole number of {least} or more")
            object.__setattr__(self, name, value)
        given = self.first_horizons
        first = tuple(map(_whole, given)) if isinstance(given, Iterable) and not isinstance(given, str) else (-1,)
        if any(not 1 <= one <= self.horizon for one in first):
            raise UsageError(
                "first_horizons of Window",
                found=repr(given),
                expected=f"whole numbers of 1 to {self.horizon}, the horizon",
            )
        object.__setattr__(self, "first_horizons", first)

    def horizon_of(self, epoch: int) -> int:
        """Return the steps of the target in an epoch, which counts from 0."""
        return self.first_horizons[epoch] if epoch < len(self.first_horizons) else self.horizon

    @property
    def span(self) -> int:
        """Steps from a window's first one to its last, both counted."""
        return (self.length + self.horizon - 1) * self.step + 1

    def count(self, steps: int) -> int:
        """Return how many windows a series of so many steps has."""
        return max(0, (steps - self.span) // self.stride + 1)

    def steps(self, number: int) -> tuple[int, ...]:
        """Return the steps of a window, by its number: those of the input, then those of the target."""
        first = number * self.stride
        return tuple(range(first, first + self.span, self.step))


def _whole(given: Any) -> int:
    """Return a whole number, numpy's too, and -1 for what is none, such as 1.0 or a truth."""
    try:
        return -1 if isinstance(given, bool) else operator.index(given)
    except TypeError:
        return -1
