"""MappedArray: an array of this process's memory, or of a file that is mapped into it, as a stored one."""

from __future__ import annotations

from dataclasses import dataclass

from voxload.benchmark.loaders.cut import Slices
from voxload.readers.protocol import Volume as Array


@dataclass(frozen=True, slots=True)
class MappedArray:
    """See Stored; reading is copying."""

    array: Array
    """The voxels, in the stored order of the axes."""

    def view(self, source: Slices) -> Array:
        """See Stored."""
        return self.array[source]

    def read(self, source: Slices, out: Array, target: Slices) -> None:
        """See Stored."""
        out[target] = self.array[source]

    def close(self) -> None:
        """See Stored; a map goes with the last view of it."""
