"""AxisOrder: how the axes of a stored array become (C, D, H, W)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES, Box
from voxload.readers.protocol import Volume

VOLUME_AXES = "C" + SPATIAL_AXES
"""Order of the axes of every volume once read."""

_KNOWN_AXES = (sorted(SPATIAL_AXES), sorted(VOLUME_AXES))
_AXES_RULE = "a permutation of 'DHW' or 'CDHW', slowest axis first"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AxisOrder:
    """The axes of a stored array, one letter each: a permutation of ``DHW`` or ``CDHW``.

    An array without a channel axis is read as one channel.
    """

    axes: str
    """The letters, slowest axis first."""

    def __post_init__(self) -> None:
        if sorted(self.axes) not in _KNOWN_AXES:
            raise UsageError("axes", found=repr(self.axes), expected=_AXES_RULE)

    @property
    def has_channels(self) -> bool:
        """Whether the stored array has a channel axis."""
        return "C" in self.axes

    def to_volume(self, stored: Sequence[T], single: T) -> tuple[T, T, T, T]:
        """Order one value per stored axis as (C, D, H, W); `single` stands for an absent channel axis."""
        by_axis = dict(zip(self.axes, stored, strict=True))
        return by_axis.get("C", single), by_axis["D"], by_axis["H"], by_axis["W"]

    def to_stored(self, volume: Sequence[T]) -> tuple[T, ...]:
        """Order one value per (C, D, H, W) as stored; an absent channel axis is left out."""
        by_axis = dict(zip(VOLUME_AXES, volume, strict=True))
        return tuple(by_axis[axis] for axis in self.axes)

    def box(self, box: Box, channels: int) -> Box:
        """Return the stored indices of a spatial `box` with all `channels`."""
        return Box(self.to_stored((0, *box.start)), self.to_stored((channels, *box.stop)))

    def view(self, volume: Volume) -> Volume:
        """Return a view of a (C, D, H, W) array with its axes in the stored order."""
        order = [VOLUME_AXES.index(axis) for axis in self.axes]
        return volume.transpose(order) if self.has_channels else volume[0].transpose([axis - 1 for axis in order])


def resolve_axes(subject: str, *, ndim: int, given: str | None, declared: str | None) -> AxisOrder:
    """Decide on the axis order: what the caller says, else what the file says, else the only choice.

    Parameters
    ----------
    subject
        What the error message is about.
    ndim
        Axes of the stored array.
    given, declared
        The caller's word and the file's own; either may be None.

    Raises
    ------
    UsageError
        When the array is no volume, the letters do not fit it, or four axes have no names: a guess would
        silently train on turned cubes.
    """
    axes = given or declared
    if axes is None and ndim == len(SPATIAL_AXES):
        axes = SPATIAL_AXES
    if axes is None and ndim == len(VOLUME_AXES):
        raise UsageError(
            subject,
            found="four axes without names",
            expected="to know which one holds the channels",
            remedy='say axes="CDHW" for channels first or axes="DHWC" for channels last',
        )
    if axes is None or len(axes) != ndim:
        found = f"{ndim} axes" + (f" for axes={axes!r}" if axes else "")
        raise UsageError(subject, found=found, expected="three (D, H, W), or four with channels")
    if sorted(axes.upper()) not in _KNOWN_AXES:
        raise UsageError(subject, found=f"axes {axes!r}", expected=_AXES_RULE)
    return AxisOrder(axes.upper())


def declared_axes(names: Sequence[str | None] | None) -> str | None:
    """Return axis letters from a file's dimension names, or None when they are not ours to understand."""
    letters = "".join(name or "?" for name in names).upper() if names else ""
    return letters if sorted(letters) in _KNOWN_AXES else None
