"""Coordinates: the numbers that a file has along an axis, one a voxel, such as latitudes, in the catalogue's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np

from voxload.errors import NotFoundError, UsageError
from voxload.readers.axes import AxisOrder
from voxload.readers.protocol import Vector

Coordinates = Mapping[str, tuple[float, ...]]
"""By the letter of an axis, D, H or W, a number for each voxel along it; without axes that have none."""


def coordinates_of(
    order: AxisOrder, shape: Sequence[int], names: Sequence[str | None], read: Callable[[str], Vector]
) -> Coordinates:
    """Return what a file has along the spatial axes of an array.

    What is there is left out where it is not one finite number for each voxel: bounds, texts, packed numbers.

    Parameters
    ----------
    order, shape
        Axes of the array, and their extents.
    names
        Name of the dataset that has the numbers, for each axis; None or empty without one.
    read
        Reads one of them.

    Raises
    ------
    DataError
        When one of them is damaged.
    """
    found = {}
    for axis, extent, name in zip(order.axes, shape, names, strict=False):
        if axis not in "DHW" or not name:
            continue
        with suppress(NotFoundError, UsageError):
            values = read(name)
            if values.shape == (extent,) and np.isfinite(values).all():
                found[axis] = tuple(values.tolist())
    return found
