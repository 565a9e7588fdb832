"""SampleReader: blocks of augmented samples, read from the stored ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from voxload.augment import Augment, Placement
from voxload.augment.orientation import Orientation, check_vector, turn_vector
from voxload.data.labels import LabelSearch
from voxload.data.lists.samples import Sample
from voxload.data.transpose import copy_turned
from voxload.errors import UsageError, VoxloadError
from voxload.geometry import Boundary, Box, slabs
from voxload.readers.handles import Handles
from voxload.readers.maderead import MadeRead, is_repeatable, made_read
from voxload.readers.protocol import NOTHING, Location, ReadCost, Reader, Volume
from voxload.readers.requests import block_cost, block_requests, is_padded, read_block
from voxload.readers.scratch import address

_SCRATCH_BYTES = 2**24
"""Voxels that are read before they are turned, per reading thread; one layer of chunks at least."""
_LAST = 2
_UPRIGHT = Orientation()
_whole = lru_cache(maxsize=1024)(Placement.whole)
"""The same of all samples of one shape."""


class SampleReader:
    """Reads boxes of samples as an augmentation places them; safe to use from many threads at once.

    Parameters
    ----------
    augment
        What is done to samples; None leaves them as they are.
    boundary
        What lies outside a sample.
    fields
        Names of a sample's volumes, in order.
    handles
        Open readers.

    Raises
    ------
    UsageError
        When samples of this boundary and these fields cannot be augmented so.
    """

    def __init__(self, augment: Augment | None, boundary: Boundary, fields: Sequence[str], *, handles: Handles) -> None:
        if augment is not None:
            _check_augment(augment)
            augment.check(boundary, fields)
        self._augment, self._boundary, self._fields, self._handles = augment, boundary, tuple(fields), handles
        centres = augment.centres if augment is not None else None
        self._labels = LabelSearch(centres, handles) if centres is not None else None

    @property
    def repeats(self) -> bool:
        """Whether samples are read as they are stored, or cut out of those, and so may be read again as they were."""
        return self._augment is None or self.cuts

    @property
    def cuts(self) -> bool:
        """Whether samples are cut out of the stored ones, and nothing else is done to them."""
        return self._augment is not None and self._augment.only_crops

    def extents(self, spatial: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the extents of an augmented sample from those of the stored one."""
        return spatial if self._augment is None else self._augment.extents(spatial)

    def place(
        self, sample: Sample, index: int, *, epoch: int, repeat: int, spatial: tuple[int, int, int]
    ) -> tuple[Placement, ReadCost]:
        """Return where an augmented sample lies in the stored one, and what it took to find out.

        `repeat` is how often the sample was drawn before in the epoch.

        Raises UsageError when the sample cannot be augmented so, and what reading its labels raises.
        """
        if self._augment is None:
            return _whole(spatial), NOTHING
        try:
            found, cost = None, ReadCost()
            if self._labels is not None:
                location = sample.locations[self._fields.index(self._labels.centres.field)]
                whole = index if sample.whole is None else sample.whole  # all patches of a sample share its labels
                found, cost = self._labels.search(location, key=self._augment.key(whole))
            return self._augment.place(spatial, epoch=epoch, index=index, repeat=repeat, found=found), cost
        except VoxloadError as error:
            raise error.within(f"sample {sample.id!r}", remedy="leave the sample out") from error

    def read(
        self,
        sample: Sample,
        placement: Placement,
        boxes: Sequence[Box],
        volumes: Sequence[Volume],
        *,
        readers: Sequence[Reader],
    ) -> ReadCost:
        """Fill an array for each field with its box, in indices of the augmented sample; return what it cost."""
        total = NOTHING
        is_in_place = not any(placement.window.start) and placement.orientation == _UPRIGHT
        fields = zip(sample.locations, readers, boxes, volumes, strict=True)
        for number, (location, reader, box, volume) in enumerate(fields):
            if is_in_place:
                read_block(reader, box, volume, boundary=self._boundary)
                total += block_cost(reader, box, boundary=self._boundary)
            else:
                total += read_placed(reader, box, volume, placement=placement, boundary=self._boundary)
            if self._augment is not None and self._augment.vectors:
                self.turn_vectors(number, volume, placement, location=location, count=reader.describe().lead[2])
        return total

    def turn_vectors(
        self, number: int, volume: Volume, placement: Placement, *, location: Location, count: int
    ) -> None:
        """Turn, in place, the vectors of a field of an augmented sample, of which it has `count` channels a time step.

        Raises UsageError or DataError where they have no opposite.
        """
        channels = self._augment.vectors.get(self._fields[number]) if self._augment is not None else None
        if channels is None:
            return
        try:
            check_vector(self._fields[number], channels, count=count, dtype=volume.dtype)
            for first in range(0, len(volume), count):
                turn_vector(volume[first : first + count], channels, placement.orientation)
        except VoxloadError as error:
            raise error.within(f"{location}", remedy="leave the field's vectors out") from error

    def made(
        self, placement: Placement, boxes: Sequence[Box], volumes: Sequence[Volume], *, readers: Sequence[Reader]
    ) -> tuple[list[MadeRead], bool] | None:
        """Return how each field's block, just read, is read again, and whether a part of it is not read but zero.

        None where it is augmented otherwise than by cutting, or cannot be read so.
        """
        if not self.repeats or placement.orientation != _UPRIGHT or not all(map(is_repeatable, readers)):
            return None
        found, has_zeros = list[MadeRead](), False
        for reader, box, volume in zip(readers, boxes, volumes, strict=True):
            source = placement.source(box)
            requests = block_requests(reader.describe(), source, volume, boundary=self._boundary)
            made = made_read(reader, requests, address(volume)) if requests else None
            if made is None:
                return None
            found.append(made)
            has_zeros = has_zeros or is_padded(requests, source)
        return found, has_zeros


def _check_augment(augment: Any) -> None:
    """Refuse a part where the whole is expected: only the whole has a seed."""
    if not isinstance(augment, Augment):
        raise UsageError(
            "augment", found=repr(augment), expected="an Augment", remedy=f"say Augment({augment!r}, seed=0)"
        )


def read_placed(reader: Reader, box: Box, out: Volume, *, placement: Placement, boundary: str | Boundary) -> ReadCost:
    """Fill `out`, ``(C, *box.shape)``, with a box of an augmented sample; return what it cost.

    Where rows stay rows, voxels are read straight into `out`. Else they are read as they are stored, slab by slab, and
    turned in a pass of their own: readers are made for rows, and slow where voxels of a row go far apart.
    """
    source, orientation = placement.source(box), placement.orientation
    stored = orientation.inverse().view(out)
    if orientation.axes[_LAST] == _LAST and not any(orientation.flips):
        read_block(reader, source, stored, boundary=boundary)
        return block_cost(reader, source, boundary=boundary)
    info, channels = reader.describe(), len(out)
    chunk = info.chunks[1:] if info.chunks is not None else (1, 1, 1)
    most = max(_SCRATCH_BYTES // max(channels * out.itemsize, 1), 1)
    parts = list(slabs(source, chunk, most=most))
    scratch = np.empty(max(part.size for part in parts) * channels, out.dtype)
    total = ReadCost()
    for part in parts:
        voxels = scratch[: channels * part.size].reshape(channels, *part.shape)
        read_block(reader, part, voxels, boundary=boundary)
        copy_turned(stored[(slice(None), *part.relative_to(source.start).slices)], voxels)
        total += block_cost(reader, part, boundary=boundary)
    return total
