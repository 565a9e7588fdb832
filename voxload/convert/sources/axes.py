"""Axes of a raw cube: what the caller says, what the file says, and what the extents of a known layout give away."""

from __future__ import annotations

from collections.abc import Sequence

from voxload.errors import UsageError
from voxload.readers.axes import AxisOrder, resolve_axes

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
