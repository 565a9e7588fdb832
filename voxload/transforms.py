"""Transforms of a batch's volumes: casts and normalisations that run where the batch is.

Each is a callable ``Tensor (B, C, d, h, w) -> Tensor`` of float32, without state, safe to share. They act
voxel by voxel, so a block is transformed as the whole would be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from voxload.errors import UsageError

Transform = Callable[[torch.Tensor], torch.Tensor]
"""What a loader applies to the volumes of a batch."""


class Log1p:
    """Natural logarithm of one plus the value, for counts that span decades."""

    def __call__(self, volumes: torch.Tensor) -> torch.Tensor:
        """Return a new float32 tensor."""
        return volumes.to(torch.float32, copy=True).log1p_()

    def __repr__(self) -> str:
        return "Log1p()"


class Standardize:
    """Subtract a mean and divide by a standard deviation, one pair per channel.

    Raises UsageError when the lengths differ or a deviation is not positive.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        if len(mean) != len(std) or not mean or not all(value > 0 for value in std):
            raise UsageError(
                "Standardize", found=f"mean {list(mean)}, std {list(std)}", expected="one positive std per mean"
            )
        self.mean = tuple(float(value) for value in mean)
        self.std = tuple(float(value) for value in std)

    def __call__(self, volumes: torch.Tensor) -> torch.Tensor:
        """Return a new float32 tensor; raises UsageError when the channels are not as many as the means."""
        if volumes.shape[1] != len(self.mean):
            raise UsageError("Standardize", found=f"{volumes.shape[1]} channels", expected=f"{len(self.mean)}")
        shape = (1, -1, *(1,) * (volumes.ndim - 2))
        mean = torch.tensor(self.mean, device=volumes.device).reshape(shape)
        std = torch.tensor(self.std, device=volumes.device).reshape(shape)
        return volumes.to(torch.float32).sub(mean).div_(std)

    def __repr__(self) -> str:
        return f"Standardize(mean={list(self.mean)}, std={list(self.std)})"


class Compose:
    """One transform after the other."""

    def __init__(self, *transforms: Transform) -> None:
        self.transforms = transforms

    def __call__(self, volumes: torch.Tensor) -> torch.Tensor:
        """Return what the last transform gives."""
        for transform in self.transforms:
            volumes = transform(volumes)
        return volumes

    def __repr__(self) -> str:
        return f"Compose({', '.join(map(repr, self.transforms))})"
