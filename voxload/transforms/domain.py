"""Domain: numbers that a step has no result for are an error, not NaN that a network is trained on.

Who makes a result adds it up, which takes hardly anything while it is in a core's cache: only a sum that is not finite
is looked into.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from voxload.errors import DataError
from voxload.transforms.chain import Step, columns_of, run

_REMEMBERED = 256
"""Chains and shapes that are known to have been looked at."""


@lru_cache(maxsize=_REMEMBERED)
def is_bounded(steps: tuple[Step, ...]) -> bool:
    """Tell whether a step of a chain takes not every number."""
    return any(_least(step) is not None for step in steps)


def check_result(volumes: torch.Tensor, steps: tuple[Step, ...], result: torch.Tensor) -> None:
    """Compare what a bounded chain made of volumes ``(C, ...)`` or ``(B, C, ...)`` with what it may be; by one thread.

    Numbers that are NaN before are NaN behind it, and no error.

    Raises DataError where a step was given a number that it has no result for.
    """
    if bool(torch.isfinite(result.sum(dtype=torch.float32))):
        return
    for place, step in enumerate(steps):
        least = _least(step)
        if least is None:
            continue
        before = steps[:place]
        values = run(volumes, before, columns_of(before, volumes.device, max(0, volumes.ndim - 2)))
        if bool((values <= least).any()):
            found = float(values[values == values].min())  # noqa: PLR0124 - NaN is no number
            raise DataError(
                type(step).__name__,
                found=f"values down to {found:g}",
                expected=f"more than {least:g}: there is no logarithm of what is below",
                remedy="leave it out, say Clip(low=0) before it, or leave out the samples",
            )


class FirstLook:
    """Whether a chain's result on a device was looked at; a look waits for the device, so the first one is enough."""

    def __init__(self) -> None:
        self.is_due = True


@lru_cache(maxsize=_REMEMBERED)
def first_look(steps: tuple[Step, ...], device: torch.device, dtype: torch.dtype, shape: torch.Size) -> FirstLook:
    """Return that of a chain and of volumes like these."""
    _ = steps, device, dtype, shape
    return FirstLook()


def _least(step: Step) -> float | None:
    """Return what a step takes only more than; None where it takes all."""
    return getattr(step, "least", None)
