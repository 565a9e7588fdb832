"""Shelf: the blocks that one simulated rank keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

from voxload.prefetch.line import DISK, MEMORY, Room
from voxload.prefetch.simulation.clock import Action


@dataclass(frozen=True, slots=True)
class _Kept:
    tier: int
    nbytes: int


@dataclass(slots=True)
class Shelf:
    """Tiers with hard capacities; what is being written has its room already."""

    room: Room
    _used: dict[int, int] = field(default_factory=lambda: {MEMORY: 0, DISK: 0})
    _kept: dict[int, _Kept] = field(default_factory=dict)
    _waiting: dict[int, list[Action]] = field(default_factory=dict)

    def tier_of(self, sample: int) -> int | None:
        """Return the tier that has a block, or None."""
        kept = self._kept.get(sample)
        return None if kept is None else kept.tier

    def reserve(self, tier: int, nbytes: int) -> bool:
        """Take room for a block, if there is any."""
        if self._used[tier] + nbytes > (self.room.memory if tier == MEMORY else self.room.disk):
            return False
        self._used[tier] += nbytes
        return True

    def put(self, sample: int, tier: int, nbytes: int) -> None:
        """Have a block in the room that was reserved for it, and tell who waits for it."""
        self._kept[sample] = _Kept(tier, nbytes)
        for told in self._waiting.pop(sample, []):
            told()

    def drop(self, sample: int) -> None:
        """Forget a block; nothing happens where it is not there."""
        kept = self._kept.pop(sample, None)
        if kept is not None:
            self._used[kept.tier] -= kept.nbytes

    def tell(self, sample: int, told: Action) -> None:
        """Call back when a block comes."""
        self._waiting.setdefault(sample, []).append(told)
