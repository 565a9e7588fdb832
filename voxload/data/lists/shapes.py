"""Shapes: what arrays hold, learnt from a catalogue or, where none describes them, by opening each file once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from voxload.data.lists.samples import Sample, Samples
from voxload.readers.axes import AxisOrder
from voxload.readers.handles import Handles
from voxload.readers.protocol import Location

T = TypeVar("T")
_OPENERS = 8
"""Files that are opened at once: each takes a round trip to a metadata server."""


def of_each(samples: Samples, look: Callable[[Sample], T]) -> list[T]:
    """Return what is found of each sample, in order; raises what looking at the first that fails raises."""
    count = len(samples.ids)
    if not count:
        return []
    if count == 1 or all(one.shape is not None for one in samples.sample(0).locations):
        return [look(samples.sample(number)) for number in range(count)]
    with ThreadPoolExecutor(_OPENERS, "voxload-listing") as pool:
        return list(pool.map(lambda number: look(samples.sample(number)), range(count)))


def lead_of(location: Location, handles: Handles) -> tuple[int, int, int]:
    """Return the extents (N, T, C) of an array; opens it where they are not known."""
    if location.shape is not None and location.axes:
        return AxisOrder(location.axes.upper()).lead(location.shape)
    with handles.lease(location) as reader:
        return reader.describe().lead


def spatial_of(location: Location, handles: Handles) -> tuple[int, int, int]:
    """Return the extents (D, H, W) of a volume; opens it where they are not known."""
    if location.window is not None:
        return location.window.shape
    if location.shape is not None and location.axes:
        _, d, h, w = AxisOrder(location.axes.upper()).to_volume(location.shape, 1)
        return d, h, w
    with handles.lease(location) as reader:
        return reader.describe().spatial
