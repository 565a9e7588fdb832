"""Cut: how one rank's block comes out of stored volumes; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from voxload.benchmark.loaders.parts import parts
from voxload.benchmark.loaders.protocol import Task, Volume
from voxload.geometry import Boundary, Box, Halo
from voxload.readers.axes import VOLUME_AXES, AxisOrder
from voxload.readers.protocol import Volume as Array

Slices = tuple[slice, ...]
"""A box as an index, in the stored order of the axes."""
Read = Callable[[Slices, Array, Slices], None]
"""Reads a box of a stored array into a part of another array: source, array, target."""


@dataclass(frozen=True, slots=True)
class StoredPart:
    """One read of the stored array, and where its voxels go in the block as stored; see `Part`."""

    source: Slices
    """What is read."""
    shape: tuple[int, ...]
    """Its extents."""
    pastes: tuple[tuple[Slices, Slices], ...]
    """What of it goes where."""
    is_direct: bool
    """Whether all of it goes to one place, as it is."""


@dataclass(frozen=True, slots=True)
class Cut:
    """This rank's block, halo included, with its axes as they are stored."""

    axes: str
    """The stored axes."""
    shape: tuple[int, ...]
    """Extents of the block, in that order."""
    dtype: np.dtype[Any]
    """Type of a voxel, in this machine's byte order."""
    parts: tuple[StoredPart, ...]
    """What is read for it."""

    @classmethod
    def of(cls, task: Task) -> Cut:
        """Return the cut of a task's volumes, which are of one shape, type and order of axes."""
        volume, share = task.volumes[0], task.workload.share
        order = AxisOrder(volume.axes)
        channels, *spatial = order.to_volume(volume.shape, 1)
        _, *chunks = order.to_volume(volume.chunks or (1,) * len(volume.shape), 1)
        box = task.grid.block(spatial).expand(Halo.parse(share.halo))
        found = parts(box, spatial, Boundary.parse(share.boundary), chunks=chunks)

        def stored(part: Box) -> Slices:
            return order.box(part, channels).slices

        return cls(
            axes=volume.axes,
            shape=order.box(Box.whole(box.shape), channels).shape,
            dtype=native(volume),
            parts=tuple(
                StoredPart(
                    stored(part.box),
                    order.box(part.box, channels).shape,
                    tuple((stored(paste.source), stored(paste.target)) for paste in part.pastes),
                    part.is_direct,
                )
                for part in found
            ),
        )

    @property
    def is_plain(self) -> bool:
        """Whether the block is one box of the stored array, and nothing else."""
        return len(self.parts) == 1 and self.parts[0].is_direct and self.parts[0].shape == self.shape

    @property
    def volume_shape(self) -> tuple[int, ...]:
        """Extents of the block, (C, d, h, w)."""
        return AxisOrder(self.axes).to_volume(self.shape, 1)

    @property
    def nbytes(self) -> int:
        """Bytes of the block."""
        return prod(self.shape) * self.dtype.itemsize

    def as_volume(self, stored: Array) -> Array:
        """Return a view (C, d, h, w) of a block with its axes as stored."""
        named, axes = (stored, self.axes) if "C" in self.axes else (stored[np.newaxis], "C" + self.axes)
        return named.transpose([axes.index(axis) for axis in VOLUME_AXES])

    def as_stored(self, volume: Array) -> Array:
        """Return a view, with its axes as stored, of a block (C, d, h, w)."""
        return AxisOrder(self.axes).view(volume)

    def fill(self, out: Array, read: Read, scratch: Sequence[Array | None]) -> None:
        """Fill `out`, a block with its axes as stored; voxels outside the sample are left as they are.

        `scratch` has an array for each part that is not direct.
        """
        for part, held in zip(self.parts, scratch, strict=True):
            if held is None:
                read(part.source, out, part.pastes[0][1])
                continue
            read(part.source, held, tuple(slice(0, extent) for extent in part.shape))
            for source, target in part.pastes:
                out[target] = held[source]

    def new_scratch(self) -> tuple[Array | None, ...]:
        """Return what `fill` wants beside the block: an array for each part that is not direct."""
        return tuple(None if part.is_direct else np.empty(part.shape, self.dtype) for part in self.parts)


def native(volume: Volume) -> np.dtype[Any]:
    """Return the type of a volume's voxels in this machine's byte order."""
    return np.dtype(volume.dtype).newbyteorder("=")


def chunk_bytes(volume: Volume) -> int:
    """Return the bytes of a decoded chunk; 0 where there are none."""
    return prod(volume.chunks) * np.dtype(volume.dtype).itemsize if volume.chunks else 0
