"""Translations: a periodic sample begins anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from voxload.augment.axes import parse_axes
from voxload.augment.draws import Draws
from voxload.geometry import SPATIAL_AXES


@dataclass(frozen=True, slots=True)
class Translations:
    """Moves a sample over its periodic boundary by any number of voxels, each as likely; ``numpy.roll``."""

    axes: str = SPATIAL_AXES
    """Axes along which it is moved, such as ``"HW"``."""

    def __post_init__(self) -> None:
        parse_axes("Translations", self.axes)

    def origin(self, extents: Sequence[int], draws: Draws) -> tuple[int, ...]:
        """Return the stored voxel that becomes the first one."""
        moved = parse_axes("Translations", self.axes)
        return tuple(draws.below(extent) if axis in moved else 0 for axis, extent in enumerate(extents))
