"""Link: when bytes that share a limited bandwidth have passed; pure."""

from __future__ import annotations

BURST = 0.05
"""Seconds of bandwidth that an idle link saves up: without any, every late wake-up would be lost for good."""


class Link:
    """A bandwidth that all takers share, first come first served (a token bucket).

    In any span of t seconds at most ``rate * (t + BURST)`` bytes pass.

    Parameters
    ----------
    rate
        Bytes per second.

    Examples
    --------
    >>> link = Link(100.0)
    >>> link.take(10, now=1.0), link.take(10, now=1.0), link.take(10, now=9.0)
    (1.05, 1.15, 9.05)
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free = 0.0

    def take(self, nbytes: int, *, now: float) -> float:
        """Return the time at which `nbytes` more have passed."""
        self._free = max(self._free, now - BURST) + nbytes / self._rate
        return self._free
