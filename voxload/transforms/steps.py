"""Steps: what can be done to every voxel of a batch.

Each is a callable ``Tensor (B, C, d, h, w) -> Tensor``, immutable and safe to share. Numbers are computed in float32,
whatever is stored, and the result is float32 unless it is cast.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

import torch

from voxload.errors import UsageError
from voxload.transforms.chain import Columns
from voxload.transforms.fused import transform

_RESULTS = (torch.float32, torch.float16, torch.bfloat16)
"""Types that networks compute in."""


class VoxelWise(ABC):
    """A step that can be called by itself."""

    @property
    def columns(self) -> tuple[tuple[float, ...], ...]:
        """See Step."""
        return ()

    @abstractmethod
    def apply(self, values: torch.Tensor, columns: Columns) -> torch.Tensor:
        """See Step."""

    def __call__(self, volumes: torch.Tensor) -> torch.Tensor:
        """Return a new tensor; raises UsageError when the channels are not those that there are numbers for."""
        return transform(volumes, (self,), channels_last=False, is_compiled=True)


@dataclass(frozen=True)
class Cast(VoxelWise):
    """Turn voxels into another type: float32, float16 or bfloat16, rounded to the nearest.

    It belongs at the end of a chain: what follows computes in float32 again, and a device need not round in between.
    """

    dtype: torch.dtype

    def __post_init__(self) -> None:
        if self.dtype not in _RESULTS:
            raise UsageError("Cast", found=str(self.dtype), expected=" or ".join(map(str, _RESULTS)))

    def apply(self, values: torch.Tensor, columns: Columns) -> torch.Tensor:  # noqa: ARG002 - it has none
        """See Step."""
        return values.to(torch.float32).to(self.dtype)


@dataclass(frozen=True)
class Log1p(VoxelWise):
    """Natural logarithm of one plus the value, for counts that span decades.

    A value of -1 or less is an error (DataError). On a device, which a look would keep waiting, the first batch of each
    shape is looked at.
    """

    least: ClassVar[float] = -1.0
    """What it takes only more than."""

    def apply(self, values: torch.Tensor, columns: Columns) -> torch.Tensor:  # noqa: ARG002 - it has none
        """See Step."""
        return values.to(torch.float32).log1p()


@dataclass(frozen=True)
class Scale(VoxelWise):
    """Multiply by a number and add another: ``value * scale + offset``. Raises UsageError unless both are finite."""

    scale: float
    offset: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.scale) and isfinite(self.offset)):
            raise UsageError("Scale", found=f"scale {self.scale}, offset {self.offset}", expected="finite numbers")

    def apply(self, values: torch.Tensor, columns: Columns) -> torch.Tensor:  # noqa: ARG002 - it has none
        """See Step."""
        return values.to(torch.float32) * self.scale + self.offset


@dataclass(frozen=True)
class Clip(VoxelWise):
    """Raise what is below `low` to it, and lower what is above `high`; None leaves that side open.

    Raises UsageError when both are None, or `low` is above `high`.
    """

    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        ends = [end for end in (self.low, self.high) if end is not None]
        if not ends or ends != sorted(ends) or any(end != end for end in ends):  # noqa: PLR0124 - is it a number?
            raise UsageError("Clip", found=f"low {self.low}, high {self.high}", expected="one of them, or low <= high")

    def apply(self, values: torch.Tensor, columns: Columns) -> torch.Tensor:  # noqa: ARG002 - it has none
        """See Step."""
        return values.to(torch.float32).clamp(self.low, self.high)


@dataclass(frozen=True, repr=False, init=False)
class Standardize(VoxelWise):
    """Subtract a mean and divide by a standard deviation, one pair per channel.

    Raises UsageError when the lengths differ or a deviation is not positive.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        if len(mean) != len(std) or not len(mean) or not all(value > 0 for value in std):
            raise UsageError(
                "Standardize", found=f"mean {list(mean)}, std {list(std)}", expected="one positive std per mean"
            )
        object.__setattr__(self, "mean", tuple(float(value) for value in mean))
        object.__setattr__(self, "std", tuple(float(value) for value in std))

    @property
    def columns(self) -> tuple[tuple[float, ...], ...]:
        """See Step."""
        return self.mean, self.std

    def apply(self, values: torch.Tensor, columns: Columns) -> torch.Tensor:
        """See Step."""
        mean, std = columns
        return (values.to(torch.float32) - mean) / std

    def __repr__(self) -> str:
        return f"Standardize(mean={list(self.mean)}, std={list(self.std)})"
