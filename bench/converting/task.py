"""Task: what a run is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """Choices that all measurements share."""

    extent: int
    """Voxels along each axis of a universe."""
    rounds: int
    """Turns of each contender."""
    is_cold: bool
    """Whether the page cache forgets the sources before each turn."""
    compression: str
    """Codec of Zarr chunks."""
    rechunker: str = ""
    """A Python that has rechunker; empty for none."""
