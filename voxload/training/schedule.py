"""The step size over a run: up, then down; pure."""

from __future__ import annotations

WARM_UP_STEPS = 64
"""Steps until the full rate. CosmoFlow ends in tanh: full steps from the start drive it flat for good."""
_LAST = 0.02
"""Share of the full rate that is left at the end."""


def rate_factor(step: int, steps: int) -> float:
    """Return the share of the learning rate at `step` of `steps`: linear up, and linear down over the whole run.

    >>> [round(rate_factor(step, 1000), 3) for step in (0, 63, 500, 999)]
    [0.016, 0.937, 0.5, 0.02]
    """
    return min((step + 1) / WARM_UP_STEPS, 1.0) * max(1 - step / steps, _LAST)
