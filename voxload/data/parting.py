"""Parting: volumes whose channels are those of several time steps, as inputs and targets with an axis for time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from voxload.data.lists.samples import Samples
from voxload.data.lists.window import Window

_VOLUME_AXES = 4


@dataclass(frozen=True, slots=True)
class Parting:
    """Parts the volumes of an item, or of a batch of them, as a window says; nothing is copied.

    Axes in front of ``(T C, d, h, w)`` stay where they are.
    """

    window: Window
    """Which steps are the input and which the target."""
    are_series: tuple[bool, ...]
    """Of each field, whether it has steps; one without is handed on as it is, and is never a target."""
    horizon: int
    """Steps of the target that are handed out, the first ones of those that are read."""

    def at(self, epoch: int) -> Parting:
        """Return what parts volumes in an epoch."""
        return self if not self.window.first_horizons else replace(self, horizon=self.window.horizon_of(epoch))

    def item(self, volumes: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the inputs of all fields, and then, where there is a horizon, the targets of those with steps."""
        found = [
            self._parted(volume) if is_series else (volume,)
            for volume, is_series in zip(volumes, self.are_series, strict=True)
        ]
        return (*(parts[0] for parts in found), *(parts[1] for parts in found if len(parts) > 1))

    def fields(self) -> tuple[int, ...]:
        """Return the number of the field that each part of an item is of."""
        numbers = range(len(self.are_series))
        return (*numbers, *(number for number in numbers if self.window.horizon and self.are_series[number]))

    def changed(self, number: int, volume: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        """Return a field's batch ``(B, T C, d, h, w)`` as a transform of ``(B, C, d, h, w)`` makes each step of it."""
        if not self.are_series[number]:
            return change(volume)
        steps = self.window.length + self.window.horizon
        apart = change(volume.reshape(volume.shape[0] * steps, volume.shape[1] // steps, *volume.shape[2:]))
        return apart.reshape(volume.shape[0], steps * apart.shape[1], *apart.shape[2:])

    def _parted(self, volume: torch.Tensor) -> tuple[torch.Tensor, ...]:
        window, axis = self.window, volume.ndim - _VOLUME_AXES
        channels = volume.shape[axis] // (window.length + window.horizon)
        found = []
        for first, count in ((0, window.length), (window.length, self.horizon)):
            if count:
                part = volume.narrow(axis, first * channels, count * channels)
                shape = (*part.shape[:axis], count, channels, *part.shape[axis + 1 :])
                found.append(part if window.stack else part.view(shape))  # an axis that is parted is never copied
        return tuple(found)


def parting_of(window: Window | None, samples: Samples) -> Parting | None:
    """Return how items are parted; None where they are handed on as they are read."""
    if window is None or (window.stack and not window.horizon):
        return None
    are_series = tuple(bool(one.lead and one.lead.steps) for one in samples.sample(0).locations)
    return Parting(window, are_series, window.horizon)
