"""Chain: voxel-wise steps one after the other, as plain torch operations.

This is what a chain means. Whatever runs faster gives the same to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Protocol

import torch

from voxload.errors import UsageError

Transform = Callable[[torch.Tensor], torch.Tensor]
"""What a loader applies to the volumes of a batch."""
Columns = tuple[torch.Tensor, ...]
"""Numbers of a step that differ between channels, to be broadcast against the volumes."""


class Step(Hashable, Protocol):
    """What is done to every voxel, knowing its channel at most; equal ones do the same. Never changes."""

    @property
    def columns(self) -> tuple[tuple[float, ...], ...]:
        """Numbers by channel, each of as many channels; empty where all channels are treated alike."""
        ...

    def apply(self, values: torch.Tensor, columns: Columns) -> torch.Tensor:
        """Return a new tensor of float32, or of a type that is cast to."""
        ...


def run(volumes: torch.Tensor, steps: Sequence[Step], columns: Sequence[Columns]) -> torch.Tensor:
    """Return what the steps make of volumes, given their columns."""
    for step, own in zip(steps, columns, strict=True):
        volumes = step.apply(volumes, own)
    return volumes


def fresh_columns(steps: tuple[Step, ...], device: torch.device, trailing: int) -> tuple[Columns, ...]:
    """Return each step's columns on a device, shaped for this many axes behind the channels'."""
    return tuple(
        tuple(
            torch.tensor(column, dtype=torch.float32, device=device).reshape(-1, *(1,) * trailing)
            for column in one.columns
        )
        for one in steps
    )


columns_of = lru_cache(maxsize=256)(fresh_columns)
"""The same, kept: a device does not wait for them at every batch."""


def check_channels(volumes: torch.Tensor, steps: Sequence[Step]) -> None:
    """Refuse volumes of another number of channels than a step has numbers for."""
    for step in steps:
        for column in step.columns:
            found = volumes.shape[1] if volumes.ndim > 1 else 0
            if found != len(column):
                raise UsageError(type(step).__name__, found=f"{found} channels", expected=f"{len(column)}")


@lru_cache(maxsize=256)
def result_dtype(steps: tuple[Step, ...], dtype: torch.dtype) -> torch.dtype:
    """Return the type that a chain gives for volumes of one type."""
    nothing = torch.empty((0, 1), dtype=dtype)
    return run(nothing, steps, [tuple(torch.ones(1) for _ in step.columns) for step in steps]).dtype
