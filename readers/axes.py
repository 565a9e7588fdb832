"""AxisOrder: how the axes of a stored array become (C, D, H, W)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import prod
from typing import TypeVar

from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES, Box
from voxload.readers.protocol import Volume

LEAD_AXES = "NTC"
"""Axes that together are the channels of a volume as read: sample, time step, channel."""
VOLUME_AXES = "C" + SPATIAL_AXES
"""Order of the axes of every volume once read."""

_ALL_AXES = LEAD_AXES + SPATIAL_AXES
_PLANE = set("HW")
_PLAIN_AXES = (sorted(SPATIAL_AXES), sorted(VOLUME_AXES))
_PLAIN_ORDERS = frozenset("".join(order) for letters in _PLAIN_AXES for order in permutations(letters))
_PLAIN_RULE = "a permutation of 'DHW' or 'CDHW', slowest axis first"
OTHER_AXES = 'or say the axes of arrays that have others, such as axes="TCDHW" (--axes TCDHW)'
"""What to do where no array of three or four axes is found."""
_SERIES_REMEDY = "a VolumeDataset reads samples (N), steps (T) and planes of npy, HDF5 and Zarr files as they are"
_AXES_RULE = "letters of 'NTCDHW', each once and H and W among them, slowest axis first; z, y, x are D, H, W"

T = TypeVar("T")


def are_axes(letters: str) -> bool:
    """Tell whether letters name the axes of an array of volumes or planes.

    >>> are_axes("TCDHW"), are_axes("HW"), are_axes("DH")
    (True, True, False)
    """
    return len(set(letters)) == len(letters) and _PLANE <= set(letters) <= set(_ALL_AXES)


@dataclass(frozen=True, slots=True)
class AxisOrder:
    """The axes of a stored array, one letter each: N (sample), T (time step), C (channel), D, H, W.

    Of an array without D each plane is a volume one voxel deep. The channels of a volume as read are all of (N, T, C),
    the last of which runs fastest; an absent one counts 1.
    """

    axes: str
    """The letters, slowest axis first; H and W are among them."""

    def __post_init__(self) -> None:
        if not are_axes(self.axes):
            raise UsageError("axes", found=repr(self.axes), expected=_AXES_RULE)

    @property
    def has_channels(self) -> bool:
        """Whether the stored array has a channel axis."""
        return "C" in self.axes

    def lead(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """Return the extents (N, T, C) of a stored array; of an absent axis 1."""
        by_axis = dict(zip(self.axes, shape, strict=True))
        return by_axis.get("N", 1), by_axis.get("T", 1), by_axis.get("C", 1)

    def to_volume(self, stored: Sequence[int], single: int) -> tuple[int, int, int, int]:
        """Order one extent per stored axis as (C, D, H, W), C being all of (N, T, C), or `single` without any."""
        by_axis = dict(zip(self.axes, stored, strict=True))
        channels = [by_axis[axis] for axis in LEAD_AXES if axis in by_axis]
        return prod(channels) if channels else single, by_axis.get("D", 1), by_axis["H"], by_axis["W"]

    def to_stored(self, volume: Sequence[T]) -> tuple[T, ...]:
        """Order one value per (C, D, H, W), or per (N, T, C, D, H, W), as stored; those of absent axes are left out."""
        by_axis = dict(zip(VOLUME_AXES if len(volume) == len(VOLUME_AXES) else _ALL_AXES, volume, strict=True))
        return tuple(by_axis[axis] for axis in self.axes)

    def box(self, box: Box, channels: int) -> Box:
        """Return the stored indices of a spatial `box` with all `channels`, of an array without N and T."""
        return Box(self.to_stored((0, *box.start)), self.to_stored((channels, *box.stop)))

    def view(self, volume: Volume) -> Volume:
        """Return a view of a (C, D, H, W) array with its axes in the order of an array without N and T."""
        order = [VOLUME_AXES.index(axis) for axis in self.axes]
        return volume.transpose(order) if self.has_channels else volume[0].transpose([axis - 1 for axis in order])

    def _is_nothing(self, box: Box) -> bool:
        """Tell whether a box may be empty along an axis that is not stored, and so has to be along all that are."""
        return ("D" not in self.axes or len(box.start) > len(SPATIAL_AXES)) and not box.size

    def stored_box(self, box: Box, lead: tuple[int, int, int]) -> Box:
        """Return the stored indices of a box of the volume as read.

        Parameters
        ----------
        box
            Spatial, and then of all channels, or with a range of channels in front.
        lead
            Extents (N, T, C) of the array.

        Raises
        ------
        UsageError
            When the range of channels is no box in (N, T, C): one that begins or ends within a time step and holds
            channels of more than one.
        """
        if self.axes in _PLAIN_ORDERS and len(box.start) == len(SPATIAL_AXES):  # nearly always
            return self.box(box, lead[2])
        if self._is_nothing(box):
            return Box((0,) * len(self.axes), (0,) * len(self.axes))
        if len(box.start) == len(SPATIAL_AXES):
            return Box(self.to_stored((0, 0, 0, *box.start)), self.to_stored((*lead, *box.stop)))
        first, last = lead_box(box.start[0], box.stop[0], lead)
        return Box(self.to_stored((*first, *box.start[1:])), self.to_stored((*last, *box.stop[1:])))

    def stored_view(self, volume: Volume, box: Box, lead: tuple[int, int, int]) -> Volume:
        """Return a view with its axes in stored order of the (C, d, h, w) array that takes a box; see `stored_box`."""
        if self.axes in _PLAIN_ORDERS and len(box.start) == len(SPATIAL_AXES):  # nearly always
            return self.view(volume)
        if self._is_nothing(box):
            return volume.reshape((0,) * len(self.axes))
        if self.axes in _PLAIN_ORDERS:
            return self.view(volume)
        counts = lead
        if len(box.start) > len(SPATIAL_AXES):
            first, last = lead_box(box.start[0], box.stop[0], lead)
            counts = last[0] - first[0], last[1] - first[1], last[2] - first[2]
        parted = volume.view()
        parted.shape = (*counts, *volume.shape[1:])  # which raises where it would have to copy: an axis parted never is
        kept = [axis for axis in _ALL_AXES if axis in self.axes]
        absent = tuple(place for place, axis in enumerate(_ALL_AXES) if axis not in self.axes)
        return parted.squeeze(absent).transpose([kept.index(axis) for axis in self.axes])


def lead_box(first: int, last: int, lead: tuple[int, int, int]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return the first indices (N, T, C) of a range of channels, and those one past its last ones; pure.

    Raises UsageError when it is no box in (N, T, C).

    >>> lead_box(12, 24, (2, 4, 3))
    ((1, 0, 0), (2, 4, 3))
    >>> lead_box(15, 21, (2, 4, 3))
    ((1, 1, 0), (2, 3, 3))
    """
    _, steps, channels = lead
    if first >= last:
        return (0, 0, 0), (0, 0, 0)
    begin = first // channels // steps, first // channels % steps, first % channels
    end = (last - 1) // channels // steps, (last - 1) // channels % steps, (last - 1) % channels
    are_whole = [low == 0 and high == extent - 1 for low, high, extent in zip(begin, end, lead, strict=True)]
    is_box = (begin[0] == end[0] or (are_whole[1] and are_whole[2])) and (begin[:2] == end[:2] or are_whole[2])
    if not is_box:
        raise UsageError(
            "channels of a read",
            found=f"{first} to {last} of {steps} time steps of {channels}",
            expected="all channels of a range of time steps, or a range of those of one",
        )
    return begin, (end[0] + 1, end[1] + 1, end[2] + 1)


def resolve_axes(
    subject: str, *, ndim: int, given: str | None, declared: str | None, has_lead: bool = False
) -> AxisOrder:
    """Decide on the axis order: what the caller says, else what the file says, else the only choice there is.

    Parameters
    ----------
    subject
        What the error message is about.
    ndim
        Axes of the stored array.
    given, declared
        The caller's word and the file's own; either may be None.
    has_lead
        Whether axes N and T, and none of D, are understood where they are named.

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
            remedy='say axes="CDHW" (--axes CDHW) for channels first or axes="DHWC" (--axes DHWC) for channels last',
        )
    if axes is None or len(axes) != ndim:
        found = f"{ndim} axes" + (f" for axes={axes!r}" if axes else "")
        remedy = 'name others, such as axes="TCDHW" for time steps and axes="NDHW" for samples of one array'
        expected = "three (D, H, W), or four with channels"
        raise UsageError(subject, found=found, expected=expected, remedy=remedy if has_lead else "")
    is_known, is_plain = are_axes(axes.upper()), sorted(axes.upper()) in _PLAIN_AXES
    if not (is_known if has_lead else is_plain):
        rule, remedy = (_AXES_RULE, "") if has_lead else (_PLAIN_RULE, _SERIES_REMEDY if is_known else "")
        raise UsageError(subject, found=f"axes {axes!r}", expected=rule, remedy=remedy)
    return AxisOrder(axes.upper())


_BY_NAME = {
    "N": ("n", "number", "sample", "samples", "member", "realization", "ensemble"),
    "T": ("t", "time", "times", "valid_time"),
    "C": ("c", "channel", "channels", "band", "component", "variable", "feature"),
    "D": ("d", "z", "depth", "level", "lev", "plev", "height", "altitude", "pressure_level", "isobaricInhPa"),
    "H": ("h", "y", "lat", "latitude", "rlat", "south_north", "yc"),
    "W": ("w", "x", "lon", "longitude", "rlon", "west_east", "xc"),
}
"""What files call their axes; sources: CF conventions 1.11, section 4; OME-NGFF 0.5; the readers of ERA5 and WRF."""
_LETTERS = {name.lower(): letter for letter, names in _BY_NAME.items() for name in names}


Names = Sequence[str | None] | None
"""Names of an array's dimensions, slowest first, as far as they have any."""


def known_axes(names: Names) -> list[str | None]:
    """Return the letter of each axis as CF, xarray and OME call it; None of any other name.

    >>> known_axes(("Latitude", "dim_0", None))
    ['H', None, None]
    """
    return [_LETTERS.get((name or "").lower()) for name in names or ()]


def deny(known: Sequence[str | None], letters: str) -> bool:
    """Tell whether an axis is known to be another one than `letters` have at its place.

    >>> deny(["T", None, None], "DHW"), deny([None, "H", None], "DHW")
    (True, False)
    """
    return any(mine and mine != letter for mine, letter in zip(known, letters, strict=False))


def shown_names(names: Names) -> str:
    """Return the names of dimensions for a message."""
    return f"({', '.join(name or '?' for name in names or ())})"


def axes_of_names(*namings: Names) -> str | None:
    """Return axis letters from the first of a file's ways to name dimensions that names all; None where none does."""
    return next((found for names in namings if (found := declared_axes(names) or axes_by_name(names))), None)


def declared_or_usual(subject: str, *namings: Names) -> str | None:
    """Return axis letters as `axes_of_names` does; refuse three axes of which a name denies that they are (D, H, W).

    Three axes without names are (D, H, W). Those with some names that are known are too, unless one of these is that
    of another axis: it would be a turned volume, or time for depth.

    Raises
    ------
    UsageError
        Where a known name stands at another axis's place and other names are not known.
    """
    found = axes_of_names(*namings)
    if found is None:
        for names in namings:
            if len(names or ()) == len(SPATIAL_AXES) and deny(known_axes(names), SPATIAL_AXES):
                raise UsageError(
                    subject,
                    found=f"dimensions {shown_names(names)}, of which not all are known",
                    expected="names that say which axis is which, or none",
                    remedy='say what they are, such as axes="DHW" (--axes DHW)',
                )
    return found


def axes_by_name(names: Names) -> str | None:
    """Return axis letters from the names that CF, xarray and OME have for dimensions; None where one is no such name.

    >>> axes_by_name(("time", "level", "latitude", "longitude")), axes_by_name(("z", "y", None))
    ('TDHW', None)
    """
    letters = known_axes(names)
    found = "".join(letter for letter in letters if letter)
    return found if letters and len(found) == len(letters) and are_axes(found) else None


def declared_axes(names: Names) -> str | None:
    """Return axis letters from a file's dimension names, or None when they are not ours to understand."""
    letters = "".join(name or "?" for name in names).upper() if names else ""
    return letters if sorted(letters) in _PLAIN_AXES else None
