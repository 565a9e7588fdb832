"""Reading: how a stored volume is read, and which samples an array with axes N or T holds.

What a data set makes of a file, and what ``voxload info`` says of it, is decided here. It opens nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from voxload.errors import UsageError
from voxload.readers.cfpacking import Packed
from voxload.readers.protocol import Lead, Location, VolumeInfo

SERIES_AXES = "NT"
"""Axes along which an array holds many samples, or many time steps."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How volumes are read."""

    packed: Packed = Packed.KNOWN
    """What is done about numbers that stand for others."""
    level: int | None = None
    """Resolution of multiscale images."""

    @classmethod
    def parse(cls, decode: str | None, level: int | None) -> Self:
        """Return what a data set's words mean; raises UsageError on an unknown `decode`."""
        return cls(Packed.parse(decode), level)

    def location(self, path: str, dataset: str, *, axes: str | None, within: str | None) -> Location:
        """Return the place of a volume that the caller named; see `Location`."""
        return Location(path, dataset, axes=axes, within=within, level=self.level, packed=self.packed)


USUAL = Reading()
"""How a data set reads volumes of which nothing is said."""
PLAIN = Reading(Packed.REFUSED)
"""How volumes are read whose numbers have to be the stored ones."""


def series_axes(location: Location) -> str:
    """Return which of N and T an array has, as far as the caller or a catalogue says it."""
    return _series(location.axes or "")


def untold_axes(info: VolumeInfo, location: Location) -> str:
    """Return the axes that the caller has to name, which the file alone does; empty where nothing has to be said.

    An array with many samples or time steps is one of these: without the word what an item is would be a guess.
    """
    is_told = location.lead is not None or series_axes(location)
    return "" if is_told or info.samples * info.steps == 1 else info.axes


def check_told(info: VolumeInfo, location: Location) -> None:
    """Raise UsageError where axes have to be named; see `untold_axes`."""
    axes = untold_axes(info, location)
    if axes:
        raise UsageError(
            f"{location}",
            found=f"axes {axes} by the names of its dimensions",
            expected="to be told that there are samples or time steps in it",
            remedy=f'say axes="{axes}", and window=Window(...) for more than one step in an item',
        )


def lead_at(axes: str, sample: int, steps: Sequence[int] | None) -> Lead | None:
    """Return the part of an array that is one sample; None of an array without N and T."""
    own = _series(axes)
    return Lead(sample if "N" in own else None, tuple(steps or (0,)) if "T" in own else None) if own else None


def _series(axes: str) -> str:
    return "".join(axis for axis in SERIES_AXES if axis in axes.upper())
