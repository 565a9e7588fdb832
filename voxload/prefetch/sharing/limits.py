"""SharingLimits: how much a planner for several jobs has under way at once."""

from __future__ import annotations

from dataclasses import dataclass

from voxload.errors import UsageError


@dataclass(frozen=True, slots=True)
class SharingLimits:
    """How much is under way at once."""

    reads: int = 4
    """Units that are being read from the storage; as many more from disk."""
    ahead: int = 16
    """Uses of a job that are read ahead where something has to go for them."""
    writes: int = 2
    """Units that are being stored on disk."""
    header: int = 0
    """Bytes that a unit takes on disk beyond its size."""

    def __post_init__(self) -> None:
        if min(self.reads, self.writes, self.ahead) < 1:
            found = f"{self.reads} reads, {self.writes} writes, {self.ahead} uses ahead"
            raise UsageError("sharing limits", found=found, expected="1 or more of each")
