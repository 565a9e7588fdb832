"""Network: one network of a library, small enough to be compared in float64, and the volumes that it takes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

LARGE = (128, 128, 128)
"""Extents of the volume for which is told what is made whole of it."""


def nothing(shape: tuple[int, ...]) -> tuple[Any, ...]:  # noqa: ARG001 - what others need
    """Return what a network takes that takes a volume alone."""
    return ()


@dataclass(frozen=True, slots=True)
class Network:
    """One network."""

    library: str
    """Module that must be importable."""
    name: str
    """Its name there, and what is particular about it."""
    build: Callable[[tuple[int, ...]], nn.Module]
    """Makes it for volumes of these extents."""
    shape: tuple[int, ...]
    """Extents of the volume that it is compared on: no two are equal where it lets them be."""
    channels: int = 1
    """Channels of the volume."""
    args: Callable[[tuple[int, ...]], tuple[Any, ...]] = nothing
    """Makes what it takes beside a batch of two volumes of these extents."""
    large: tuple[int, ...] = LARGE
    """Extents of a volume of about 128^3 voxels that it takes."""

    @property
    def title(self) -> str:
        """Library and name."""
        return f"{self.library} {self.name}"

    @property
    def is_there(self) -> bool:
        """Whether its library is installed."""
        return importlib.util.find_spec(self.library) is not None


def uneven(step: int, least: int = 2) -> tuple[int, int, int]:
    """Return extents that are multiples of `step`, of which no two are equal, the smallest of `least` steps."""
    return step * (least + 1), step * least, step * (least + 2)
