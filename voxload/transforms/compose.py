"""Compose: transforms one after the other, the voxel-wise ones of a row in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from voxload.transforms.chain import Transform
from voxload.transforms.fused import transform
from voxload.transforms.steps import VoxelWise


@dataclass(frozen=True)
class ChannelsLast:
    """Lay a batch ``(B, C, d, h, w)`` out with the channels of a voxel side by side: ``torch.channels_last_3d``.

    Shape and values stay. In a chain it costs no pass of its own, wherever it stands. Raises UsageError for other axes.
    """

    def __call__(self, volumes: torch.Tensor) -> torch.Tensor:
        """Return the same values in that order in memory."""
        return transform(volumes, (), channels_last=True, is_compiled=False)


class Compose:
    """One transform after the other: ``Compose(f, g)(x)`` is ``g(f(x))``.

    Steps of this package that follow each other are done in one pass over the volumes. Any other callable between them
    sees what those before it made. Immutable; safe to share.

    Parameters
    ----------
    transforms
        The first one acts first.
    compiled
        Whether a device runs steps that follow each other as one kernel, made by torch.compile; False runs them one by
        one there. It makes no difference on the CPU.
    """

    def __init__(self, *transforms: Transform, compiled: bool = True) -> None:
        self.transforms = transforms
        self.compiled = compiled
        self._parts = [list(part) for _, part in groupby(_flat(transforms), key=_is_fusible)]

    def __call__(self, volumes: torch.Tensor) -> torch.Tensor:
        """Return what the last transform gives."""
        for part in self._parts:
            volumes = self._fused(part, volumes) if _is_fusible(part[0]) else _one_by_one(part, volumes)
        return volumes

    def _fused(self, part: Sequence[Transform], volumes: torch.Tensor) -> torch.Tensor:
        steps = tuple(one for one in part if isinstance(one, VoxelWise))
        return transform(volumes, steps, channels_last=len(steps) < len(part), is_compiled=self.compiled)

    def __repr__(self) -> str:
        switches = [] if self.compiled else ["compiled=False"]
        return f"Compose({', '.join([*map(repr, self.transforms), *switches])})"


def _is_fusible(transform: Transform) -> bool:
    return isinstance(transform, VoxelWise | ChannelsLast)


def _one_by_one(part: Sequence[Transform], volumes: torch.Tensor) -> torch.Tensor:
    for one in part:
        volumes = one(volumes)
    return volumes


def _flat(transforms: Sequence[Transform]) -> Iterator[Transform]:
    """Yield transforms, those of a Compose that fuses as one by one."""
    for one in transforms:
        if isinstance(one, Compose) and one.compiled:
            yield from _flat(one.transforms)
        else:
            yield one
