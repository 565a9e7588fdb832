"""Verifying: stored volumes read again through the readers and compared with their sources read again, bit by bit.

Each sample is read as its row of the catalogue has it, through its window of the volume. A NaN equals only the NaN of
the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import prod

import numpy as np

from voxload.convert.manifest import Member, Part, check_unchanged, read_manifest
from voxload.convert.plan.tiles import READ_AHEAD
from voxload.convert.plan.volumeplan import VolumePlan
from voxload.convert.sources.protocol import RawCube, volume_view
from voxload.convert.write.catalogue import volume_entries
from voxload.data.lists.samples import location_of
from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers import Handles, Location, Missing, Volume


def verify_volume(plan: VolumePlan, *, advance: Callable[[int], None]) -> int:
    """Compare a complete volume with its sources; return how many voxels were compared, those of all channels.

    Takes no more memory than its conversion: a tile of the source, and as much of what is stored.

    Parameters
    ----------
    plan
        The volume.
    advance
        Told how many bytes of voxels were compared, after every tile.

    Raises
    ------
    DataError
        At the first voxel that differs, with sample and place; when either side is damaged or missing, or a source
        changed since it was converted.
    StorageError
        When a storage refuses a read.
    """
    manifest = read_manifest(plan.final)
    if manifest is None:
        raise DataError(f"{plan.final}", found="no converted volume", expected="one", remedy="convert it again")
    folder = plan.final.parent
    locations = [location_of(entry, folder) for entry in volume_entries(plan.final, manifest, folder)]
    samples = [_Sample(member, location) for member, location in zip(manifest.members, locations, strict=True)]
    each = len(samples) // len(plan.sources)
    with closing(Handles(Missing.ERROR, capacity=1)) as handles:
        for number in range(len(plan.sources)):
            part = _PartCheck(plan, number, samples[number * each : (number + 1) * each], handles)
            for size in part.run():
                advance(size)
    return prod(manifest.shape)


@dataclass(frozen=True, slots=True)
class _Sample:
    """One sample of a volume."""

    member: Member
    """Its place in the volume."""
    location: Location
    """Where its readers find it."""


@dataclass(frozen=True, slots=True)
class _PartCheck:
    """The comparison of one raw cube."""

    plan: VolumePlan
    """The volume."""
    number: int
    """Number of the cube in it."""
    samples: Sequence[_Sample]
    """The samples that were made of the cube."""
    handles: Handles
    """Open readers."""

    @property
    def cube(self) -> RawCube:
        """What is known of the cube."""
        return self.plan.sources[self.number].describe()

    @property
    def part(self) -> Part:
        """Its place in the volume."""
        return self.plan.manifest.parts[self.number]

    def run(self) -> Iterator[int]:
        """Compare tile after tile, and yield how many bytes of voxels each has."""
        cube, tiling = self.cube, self.plan.tiling
        tiles = list(tiling.tiles())
        channels = cube.volume_shape[0]
        largest = max(tile.size for tile in tiles) * channels
        theirs = np.empty(largest, cube.dtype)
        ours = np.empty(min(largest, prod(self._widths()) * channels), cube.dtype)
        with self.plan.sources[self.number].open() as read_into:
            for tile in tiles:
                shape = cube.order.to_stored((channels, *tile.shape))
                block = volume_view(cube.order, theirs[: prod(shape)].reshape(shape))
                read_into(tile, block)
                self._compare(tile.shift((self.part.first, 0, 0)), block, ours)
                yield block.nbytes
        check_unchanged(self.part)

    def _widths(self) -> tuple[int, ...]:
        """Return the extents of what is read at once of the stored volume.

        Where there was memory for one tile only, that is what a chunk of one channel group holds.
        """
        tiling = self.plan.tiling
        if tiling.buffers >= READ_AHEAD:
            return tiling.tile
        return max(1, tiling.chunk[0] // self.plan.channel_groups), *tiling.chunk[1:]

    def _compare(self, tile: Box, block: Volume, scratch: Volume) -> None:
        """Compare a tile of the cube, a box of the volume, with what is stored of it."""
        for sample in self.samples:
            common = sample.member.box.intersect(tile)
            if common is None:
                continue
            with self.handles.lease(sample.location) as reader:
                for piece in _cut(common, self._widths()):
                    shape = (len(block), *piece.shape)
                    stored = scratch[: prod(shape)].reshape(shape)
                    inside = piece.relative_to(sample.member.start)
                    reader.read_into(inside, stored)
                    source = block[(slice(None), *piece.relative_to(tile.start).slices)]
                    place = first_difference(stored, source, axis=1 + self.plan.tiling.slowest_first[0])
                    if place is not None:
                        check_unchanged(self.part)
                        voxel = place[0], *(lo + index for lo, index in zip(inside.start, place[1:], strict=True))
                        raise self._difference(sample, voxel, stored[place], source[place])

    def _difference(
        self, sample: _Sample, voxel: tuple[int, ...], found: np.generic, expected: np.generic
    ) -> DataError:
        return DataError(
            f"sample {sample.member.sample!r} in {sample.location}, voxel (c, d, h, w) = {voxel}",
            found=_shown(found),
            expected=f"{_shown(expected)} as in {self.part.path_of(voxel[0])}",
            remedy=f"one of them changed since it was converted: remove {self.plan.final} to convert it again",
        )


def first_difference(left: Volume, right: Volume, *, axis: int) -> tuple[int, ...] | None:
    """Return the first place where two arrays of one shape and type differ in a bit, plane after plane of `axis`.

    Takes the memory of one plane of booleans.

    >>> first_difference(np.array([[1.0, np.nan, 2.0]]), np.array([[1.0, np.nan, 3.0]]), axis=1)
    (0, 2)
    """
    bits = np.dtype(f"u{left.itemsize}")
    left, right = left.view(bits), right.view(bits)
    planes = zip(np.moveaxis(left, axis, 0), np.moveaxis(right, axis, 0), strict=True)
    for index, (mine, other) in enumerate(planes):
        differ = mine != other
        if differ.any():
            place = [int(number) for number in np.unravel_index(int(differ.argmax()), differ.shape)]
            return (*place[:axis], index, *place[axis:])
    return None


def _cut(box: Box, widths: Sequence[int]) -> Iterator[Box]:
    """Cut a box into parts of at most these extents."""
    starts = [range(lo, hi, width) for lo, hi, width in zip(box.start, box.stop, widths, strict=True)]
    for start in itertools.product(*starts):
        yield Box(start, tuple(min(lo + width, hi) for lo, width, hi in zip(start, widths, box.stop, strict=True)))


def _shown(value: np.generic) -> str:
    """Return a voxel as text, with its bits: two NaNs look alike."""
    return f"{value} (bits {value.tobytes()[::-1].hex()})"
