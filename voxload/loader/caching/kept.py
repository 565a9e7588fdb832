"""Kept: what a cache keeps of a data set, chosen by what its items are."""

from __future__ import annotations

from dataclasses import dataclass

from voxload.data.dataset import VolumeDataset
from voxload.data.known_samples import reads_as
from voxload.errors import UsageError
from voxload.loader.caching.items import Items, SampleItems
from voxload.loader.caching.piece_items import PieceItems
from voxload.loader.caching.piece_units import PieceUnits
from voxload.loader.caching.units import SampleUnits, Units
from voxload.loader.reading.staging import BatchLayout

_PROBES = 8
"""Samples of unknown shape that are looked at to tell whether all are of one: to open each takes long where there are
many, and one that differs is refused when it is read."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a data set, and how its items are made of that."""

    units: Units
    items: Items
    layout: BatchLayout
    """Of a staging slot."""


def kept_of(data: VolumeDataset, batch_size: int) -> Kept:
    """Return what is kept of a data set: blocks of samples where these are equal and stay what they are, else pieces.

    Opens a few files. Raises what opening them raises, and UsageError for a class that reads in a way of its own.
    """
    if data.augment is None and not _overlaps(data) and _are_equal(data):
        layout = data.layout(0)
        return Kept(SampleUnits(data, layout), SampleItems(data), BatchLayout(batch_size, layout))
    if data.coarse:
        raise UsageError(
            "cache of fields on coarser grids",
            found="samples that are unequal or overlap, of which pieces are kept",
            expected="samples of one shape that have no voxel in common",
            remedy="leave out cache, or make windows that do not overlap",
        )
    if not reads_as(type(data), VolumeDataset):
        raise UsageError(
            f"cache of a {type(data).__name__}",
            found="a read_into, layout or read_targets of its own, and samples that are augmented, unequal or overlap",
            expected="VolumeDataset's own, for such samples are made of pieces that are read past it",
            remedy="leave out cache, or the methods",
        )
    units = PieceUnits(data)
    items = PieceItems(units)
    return Kept(units, items, items.layout(batch_size))


def _overlaps(data: VolumeDataset) -> bool:
    """Tell whether windows in time have steps in common, or patches voxels."""
    window, patches = data.parts.window, data.parts.patches
    if patches is not None and patches.overlaps:
        return True
    if window is None:
        return False
    first = set(window.steps(0))
    return any(not first.isdisjoint(window.steps(number)) for number in range(1, window.span // window.stride + 1))


def _are_equal(data: VolumeDataset) -> bool:
    """Tell whether samples are of one shape, as far as that is known, or a few of them show."""
    locations = [data.locations(number) for number in range(len(data))]
    shapes = {tuple((one.shape, one.window and one.window.shape) for one in each) for each in locations}
    if len(shapes) > 1 or all(shape is not None for shape, _ in next(iter(shapes), ())):
        return len(shapes) <= 1
    probes = {place * (len(data) - 1) // (_PROBES - 1) for place in range(_PROBES)}
    return len({data.volumes.extents(locations[number][0]) for number in sorted(probes)}) == 1
