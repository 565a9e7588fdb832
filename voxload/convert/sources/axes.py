"""Axes of a raw cube: what the caller says, what the file says, and what the extents of a known layout give away."""

from __future__ import annotations

from collections.abc import Sequence

from voxload.errors import UsageError
from voxload.geometry import SPATIAL_AXES
from voxload.readers.axes import (
    VOLUME_AXES,
    AxisOrder,
    Names,
    are_axes,
    axes_of_names,
    deny,
    known_axes,
    resolve_axes,
    shown_names,
)

_COUNTS = (len(SPATIAL_AXES), len(VOLUME_AXES))
_MOST_CHANNELS = 4
"""Channels of the layouts whose axes are told by their extents: the redshifts of a CosmoFlow universe."""


def cube_axes(subject: str, shape: tuple[int, ...], *, given: str | None, declared: str | None = None) -> AxisOrder:
    """Return the axes of a cube of three or four axes; the caller's word counts more than the file's.

    Raises
    ------
    UsageError
        When four axes have no names, or the letters do not fit the cube.
    """
    if len(shape) == 4 and given is None and declared is None:
        raise UsageError(
            subject,
            found=f"four axes without names, shape {shape}",
            expected="to know which one holds the channels",
            remedy="add --axes CDHW for channels first or --axes DHWC for channels last",
        )
    return resolve_axes(subject, ndim=len(shape), given=given, declared=declared)


def array_axes(subject: str, shape: tuple[int, ...], *, given: str | None, namings: Sequence[Names] = ()) -> AxisOrder:
    """Return the axes of an array, samples (N) and time steps (T) among them, by the names of its dimensions.

    These are the rules of a data set; of four axes, too, names of which only some are known are an error.

    Parameters
    ----------
    subject
        What error messages are about.
    shape
        Extents as stored.
    given
        The caller's word, which counts more than the file's.
    namings
        The file's ways to name dimensions; the first that names all of them counts.

    Raises
    ------
    UsageError
        When the array is no volume, four axes have no names, or names contradict what they would be taken for.
    """
    if given is not None:
        has_depth = are_axes(given.upper()) and "D" in given.upper()
        return resolve_axes(subject, ndim=len(shape), given=given, declared=None, has_lead=has_depth)
    declared = axes_of_names(*namings)
    if declared is None:
        usual = SPATIAL_AXES if len(shape) == len(SPATIAL_AXES) else None
        for names in namings:
            _check_names(subject, shape, names, usual)
        return cube_axes(subject, shape, given=None)
    if "D" not in declared:
        names = next(names for names in namings if axes_of_names(names))
        raise UsageError(
            subject,
            found=f"dimensions {shown_names(names)}, which are axes {declared}, shape {shape}",
            expected="depth, height and width (D, H, W) among them",
            remedy=f'read it in place by VolumeDataset(..., axes="{declared}"), name other volumes with --dataset, '
            f"or say what the axes are, {_example(shape)}",
        )
    return resolve_axes(subject, ndim=len(shape), given=None, declared=declared, has_lead=True)


def check_layout_names(
    subject: str, shape: tuple[int, ...], layout: str, *, namings: Sequence[Names] = (), is_xyz: bool = False
) -> None:
    """Refuse names of dimensions that contradict the layout of a known format.

    Parameters
    ----------
    subject, shape
        What error messages are about, and its extents.
    layout
        The letters of its axes, slowest first; axes beyond them may have any name.
    namings
        The file's ways to name dimensions.
    is_xyz
        Whether the format calls D, H and W x, y and z.
    """
    for names in namings:
        _check_names(subject, shape, names, layout, is_xyz=is_xyz)


_XYZ = {"x": "D", "y": "H", "z": "W"}


def _check_names(
    subject: str, shape: tuple[int, ...], names: Names, letters: str | None, *, is_xyz: bool = False
) -> None:
    """Refuse names of which one is that of another axis than `letters` have there, or of any where there are none."""
    known = known_axes(names)
    if is_xyz and set(_XYZ) <= {(name or "").lower() for name in names or ()}:
        known = [_XYZ.get((name or "").lower(), letter) for name, letter in zip(names or (), known, strict=True)]
    if any(known) if letters is None else deny(known, letters):
        raise UsageError(
            subject,
            found=f"dimensions {shown_names(names)}, shape {shape}",
            expected=f"the axes {letters}, or names that say nothing"
            if letters
            else "names that say which axis is which",
            remedy=f"say what the axes are, {_example(shape)}, or name other volumes with --dataset",
        )


def _example(shape: tuple[int, ...]) -> str:
    axes = {3: "DHW", 4: "CDHW"}.get(len(shape), "TCDHW")
    return f"such as --axes {axes} to convert it as that"


def axes_counts(given: str | None) -> tuple[int, ...]:
    """Return how many axes an array has that may be a volume: three or four, or more where the caller names more."""
    return (len(given),) if given is not None and len(given) > len(VOLUME_AXES) else _COUNTS


def axes_by_count(given: str | None, counts: Sequence[int]) -> dict[int, str | None]:
    """Return the caller's axes for those volumes of a file that have as many, by their number.

    A mask of three axes may lie beside a field of four. Axes that fit no volume go to all, which refuse them.

    >>> axes_by_count("CDHW", [3, 4]), axes_by_count("WHD", [4])
    ({4: 'CDHW'}, {4: 'WHD'})
    """
    fitting = [count for count in counts if given is not None and len(given) == count]
    return dict.fromkeys(fitting or counts, given)


def has_channels_first(shape: tuple[int, ...]) -> bool:
    """Tell whether extents are (C, N, N, N) of a few channels, and nothing else.

    >>> has_channels_first((4, 128, 128, 128)), has_channels_first((4, 4, 4, 4))
    (True, False)
    """
    return len(shape) == 4 and shape[0] <= _MOST_CHANNELS and len(set(shape[1:])) == 1 and shape[0] != shape[1]


def has_channels_last(shape: tuple[int, ...]) -> bool:
    """Tell whether extents are (N, N, N, C), and nothing else.

    >>> has_channels_last((512, 512, 512, 4)), has_channels_last((4, 4, 4, 4))
    (True, False)
    """
    return len(shape) == 4 and len(set(shape[:3])) == 1 and shape[3] != shape[0]
