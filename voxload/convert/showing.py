"""Showing: how far a conversion is, counted in bytes of voxels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from voxload.convert.options import Progress

OnProgress = Callable[[Progress], None]
"""Told how far a conversion is, in the calling thread."""


@dataclass(slots=True)
class Show:
    """Counts bytes of voxels as converted, and tells."""

    total: int
    """Bytes of voxels to convert."""
    progress: OnProgress | None
    """Whom to tell."""
    done: int = 0
    """Bytes of voxels converted, by this run or an earlier one."""

    def advance(self, name: str, size: int) -> None:
        """Count what was done of the volume of this name, and tell."""
        self.done += size
        if self.progress is not None:
            self.progress(Progress(name, self.done, self.total))
