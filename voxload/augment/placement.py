"""Placement: where an augmented sample lies in the stored one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from voxload.augment.orientation import Orientation
from voxload.geometry import Box


@dataclass(frozen=True, slots=True)
class Placement:
    """A window of the stored sample, turned.

    The augmented sample ``A`` has at each voxel ``x`` what the stored one ``V`` has at ``T(x)``; ``T`` undoes the turn
    and adds the window's start. It holds outside the window too: there ``A`` goes on as ``V`` does, and as the
    boundary says where ``V`` ends.
    """

    window: Box
    """In stored indices; it may reach outside the sample."""
    orientation: Orientation = field(default_factory=Orientation)
    """How it is turned."""

    @classmethod
    def whole(cls, extents: Sequence[int]) -> Placement:
        """Return the sample as it is stored."""
        return cls(Box.whole(extents))

    @property
    def extents(self) -> tuple[int, int, int]:
        """Extents (D, H, W) of the augmented sample."""
        return self.orientation.shape(self.window.shape)

    def source(self, box: Box) -> Box:
        """Return the stored indices of a box given in those of the augmented sample; both may reach outside."""
        return self.orientation.stored_box(box, self.window.shape).shift(self.window.start)
