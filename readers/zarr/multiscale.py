"""Multiscale: an OME-Zarr image, one volume at several resolutions, and the names of its axes.

What a group says of itself is a claim: names that lead elsewhere, and levels that are no arrays, are refused.

Source: Next-generation file formats (OME-NGFF) 0.4 and 0.5, "multiscales"; 0.1 to 0.3 for axes that have no types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import zarr

from voxload.errors import DataError, UsageError
from voxload.readers.protocol import Location
from voxload.readers.zarr.hierarchy import member

_FIRST_AXES = ("t", "c", "z", "y", "x")
"""Of images before version 0.3, which do not name them."""
_MOST = 64
"""Levels, or axes, that are looked at: each level halves the one before."""


@dataclass(frozen=True, slots=True)
class Multiscale:
    """What a group says of its image."""

    axes: tuple[str, ...]
    """Names of the axes, slowest first."""
    levels: tuple[str, ...]
    """Names of the arrays in the group, the finest first."""


def multiscale_of(group: zarr.Group, location: Location) -> Multiscale | None:
    """Return the image of a group, or None where it is none; raises DataError where what it says is no image's."""
    attributes = group.metadata.attributes
    ome = attributes.get("ome")
    found = (ome if isinstance(ome, Mapping) else attributes).get("multiscales")
    if found is None:
        return None
    images = _list(found)
    if not images or len(images) > 1 or not isinstance(images[0], Mapping):
        raise _damaged(location, f"{len(images or ())} images in one group", "one, with datasets and axes")
    image = images[0]
    parts = [part.get("path") if isinstance(part, Mapping) else None for part in _list(image.get("datasets"))]
    levels = [part for part in parts if isinstance(part, str) and _is_below(part)]
    if not levels or len(levels) < len(parts):
        raise _damaged(location, f"datasets {parts!r:.200}", "names of arrays in the group")
    named = _list(image.get("axes")) or _FIRST_AXES
    axes = [axis.get("name") if isinstance(axis, Mapping) else axis for axis in named]
    if not all(isinstance(axis, str) for axis in axes):
        raise _damaged(location, f"axes {axes!r:.200}", "names")
    return Multiscale(tuple(map(str, axes)), tuple(levels))


def level_of(group: zarr.Group, image: Multiscale, location: Location) -> zarr.Array[Any]:
    """Return the array of the level that a location names, the finest where it names none.

    Raises UsageError when there is no such level, DataError when it is no array.
    """
    level = location.level or 0
    if not 0 <= level < len(image.levels):
        raise UsageError(
            f"{location}", found=f"level {level}", expected=f"0 to {len(image.levels) - 1}, the coarsest last"
        )
    found = member(group, image.levels[level])
    if not isinstance(found, zarr.Array):
        raise _damaged(location, f"no array {image.levels[level]!r}", "each level that is named")
    return found


def _list(given: Any) -> Sequence[Any]:
    """Return a short list, or an empty one in place of anything else."""
    return given[:_MOST] if isinstance(given, list | tuple) else ()


def _is_below(name: str) -> bool:
    """Tell whether a name stays in its group."""
    return bool(name) and all(part.strip(".") for part in name.split("/"))


def _damaged(location: Location, found: str, expected: str) -> DataError:
    return DataError(f"{location}, multiscales", found=found, expected=expected, remedy="copy or write the image again")
