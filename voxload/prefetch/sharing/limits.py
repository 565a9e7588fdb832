"""SharingLimits: how much a planner for several jobs has under way at once."""

from __future__ import annotations

from dataclasses import dataclass

from voxload.errors import UsageError

_PART = 8
"""What all jobs together have read ahead takes no more than this part of the room."""


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

    def allows(self, uses: int, size: int, *, room: int, jobs: int) -> bool:
        """Tell whether a unit of so many bytes is read that a job uses so many uses later, where one has to go for it.

        `room` and `jobs` are those of all; a room of few units would be full of what is used once, and not soon.
        """
        return uses < self.ahead and uses * size * jobs * _PART <= room
