"""Network: one network of a library, small enough to be compared in float64, and the volumes that it takes."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True, slots=True)
class Network:
    """One network."""

    library: str
    """Module that must be importable."""
    name: str
    """Its name there, and what is particular about it."""
    build: Callable[[], nn.Module]
    """Makes it."""
    step: int = 8
    """Extents that it takes are multiples of this."""
    least: int = 2
    """Smallest extent, in steps."""
    channels: int = 1
    """Channels of the volume."""

    @property
    def is_there(self) -> bool:
        """Whether its library is installed."""
        return importlib.util.find_spec(self.library) is not None

    @property
    def uneven(self) -> tuple[int, int, int]:
        """Extents of which no two are equal, as near to the smallest as it takes."""
        return self.step * (self.least + 1), self.step * self.least, self.step * (self.least + 2)
