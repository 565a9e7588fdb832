"""Outside: what a layer sees beyond the border of the volume."""

from __future__ import annotations

import enum


class Outside(enum.Enum):
    """The padding modes of torch, one axis at a time; the names are torch's own."""

    CONSTANT = "zeros"
    """A fixed value."""
    CIRCULAR = "circular"
    """The volume again, from its other side."""
    REFLECT = "reflect"
    """The volume mirrored at its outermost voxel, which is not repeated."""
    REPLICATE = "replicate"
    """The outermost voxel, over and over."""

    def reach(self, extent: int) -> int | None:
        """Return how many positions beyond an axis of `extent` voxels torch can fill; None for any number."""
        if self is Outside.CIRCULAR:
            return extent
        return extent - 1 if self is Outside.REFLECT else None

    def source(self, position: int, extent: int) -> int | None:
        """Return the voxel that stands at `position`, which may lie outside; None where there is none.

        >>> [Outside.REFLECT.source(position, 4) for position in (-2, -1, 0, 3, 4, 5)]
        [2, 1, 0, 3, 2, 1]
        """
        if 0 <= position < extent:
            return position
        if self is Outside.CONSTANT:
            return None
        if self is Outside.CIRCULAR:
            return position % extent
        if self is Outside.REPLICATE:
            return 0 if position < 0 else extent - 1
        period = max(2 * (extent - 1), 1)
        folded = position % period
        return min(folded, period - folded)
