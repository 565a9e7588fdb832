"""Window: a stretch of a time axis as a sample, inputs and the steps after them."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from voxload.errors import UsageError


@dataclass(frozen=True, slots=True)
class Window:
    """What of a series of time steps makes a sample.

    A series of n steps has ``(n - span) // stride + 1`` windows, where ``span = (length + horizon - 1) * step + 1`` is
    the number of steps from a window's first one to its last; none where it is shorter.

    Raises UsageError where a number is too small.

    >>> window = Window(2, step=3, horizon=1)
    >>> window.count(9), window.steps(2)
    (3, (2, 5, 8))
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

    def __post_init__(self) -> None:
        for name, least in (("length", 1), ("stride", 1), ("step", 1), ("horizon", 0)):
            given: Any = getattr(self, name)
            try:
                value = -1 if isinstance(given, bool) else operator.index(given)  # numpy's integers too, and not 1.0
            except TypeError:
                value = -1
            if value < least:
                raise UsageError(f"{name} of Window", found=repr(given), expected=f"a whole number of {least} or more")
            object.__setattr__(self, name, value)

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
