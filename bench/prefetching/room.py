"""Room: the size of a memory tier in which a given number of blocks fits, and not one more."""

from __future__ import annotations

from dataclasses import dataclass

from voxload.cache.disk.tier import DiskTier
from voxload.cache.memory.layout import Layout
from voxload.cache.memory.tier import MemoryTier

_STEP = 1 << 12
"""Bytes by which a file grows while it is too small for its table: one page."""


@dataclass(frozen=True, slots=True)
class TierRoom:
    """One rank's memory tier."""

    blocks: int
    block_bytes: int

    @property
    def footprint(self) -> int:
        """Bytes that plans count for a block, in whatever tier."""
        return max(MemoryTier.footprint(self.block_bytes), DiskTier.footprint(self.block_bytes))

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks, as plans count them."""
        return self.blocks * self.footprint

    @property
    def file_bytes(self) -> int:
        """Bytes of the file that holds them and their table; 0 where there are none."""
        size = self.nbytes and self.nbytes + _STEP
        while size and size - Layout.within(size, None).data_at < self.nbytes:
            size += _STEP
        return size
