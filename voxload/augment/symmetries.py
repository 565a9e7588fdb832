"""Symmetries: sets of orientations from which one is drawn for each sample, all as likely."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from voxload.augment.orientation import Orientation
from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES, parse_axes

_SAME = (0, 1, 2)


@dataclass(frozen=True, slots=True)
class _Symmetries(ABC):
    """Orientations that change none but the named axes.

    A turned sample has the extents of the sample: axes are exchanged with axes of equal extent only, for else the
    blocks' shapes would change from epoch to epoch.
    """

    axes: str | None = None
    """Axes that may be changed, such as ``"HW"``: exchanged ones must have equal extents then. None takes all, and
    exchanges those of equal extent."""
    exchanges: ClassVar[bool] = True
    """Whether axes take each other's places."""

    def __post_init__(self) -> None:
        if self.axes is not None:
            parse_axes(type(self).__name__, self.axes, least=2 if self.exchanges else 1)

    def orientations(self, extents: Sequence[int]) -> tuple[Orientation, ...]:
        """Return what may be drawn for a sample of `extents`, the identity first; a group.

        Raises UsageError when named axes differ in extent, or nothing but the identity is left.
        """
        return _orientations(self, tuple(extents))

    def has(self, one: Orientation, named: Sequence[int]) -> bool:
        """Tell whether it leaves axes alone that are not named, and is of this kind."""
        rest = [axis for axis in _SAME if axis not in named]
        return all(one.axes[axis] == axis and not one.flips[axis] for axis in rest) and self.admits(one)

    @abstractmethod
    def admits(self, one: Orientation) -> bool:
        """Tell whether an orientation is of this kind."""


@lru_cache(maxsize=256)
def _orientations(symmetries: _Symmetries, extents: tuple[int, ...]) -> tuple[Orientation, ...]:
    """Find them once: a data set asks at every sample."""
    named = parse_axes(type(symmetries).__name__, symmetries.axes or SPATIAL_AXES)
    found = tuple(one for one in Orientation.all() if symmetries.has(one, named) and one.keeps(extents))
    must_be_equal = symmetries.exchanges and symmetries.axes is not None
    if len(found) == 1 or (must_be_equal and len({extents[axis] for axis in named}) > 1):
        raise UsageError(
            f"{symmetries}",
            found=f"extents {extents}",
            expected="axes of equal extent to exchange",
            remedy="name other axes, crop samples to a cube with RandomCrop, or use Flips",
        )
    return found


@dataclass(frozen=True, slots=True)
class Flips(_Symmetries):
    """Each axis runs backwards in half of the draws: 8 symmetries. Extents may differ."""

    exchanges: ClassVar[bool] = False

    def admits(self, one: Orientation) -> bool:
        """Tell whether an orientation is of this kind."""
        return one.axes == _SAME


@dataclass(frozen=True, slots=True)
class Permutations(_Symmetries):
    """Axes of equal extent are exchanged in any way: 6 symmetries of a cube."""

    def admits(self, one: Orientation) -> bool:
        """Tell whether an orientation is of this kind."""
        return not any(one.flips)


@dataclass(frozen=True, slots=True)
class Rotations(_Symmetries):
    """Quarter and half turns, which keep right hands right: 24 symmetries of a cube, 4 in a plane."""

    def admits(self, one: Orientation) -> bool:
        """Tell whether an orientation is of this kind."""
        return one.is_rotation


@dataclass(frozen=True, slots=True)
class CubeSymmetries(_Symmetries):
    """All turns and mirror images: 48 symmetries of a cube, 16 where two extents are equal, else 8."""

    def admits(self, one: Orientation) -> bool:  # noqa: ARG002 - every one is
        """Tell whether an orientation is of this kind."""
        return True
