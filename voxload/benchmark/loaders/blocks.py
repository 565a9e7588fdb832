"""Blocks: what one rank reads of stored volumes, through any library, with what is kept open and used again.

Parts: what has to be read of a stored volume for a box that may leave it, and where it goes; pure. Every chunk is
needed by one part at most, so that no library decodes it twice: stretches of an axis that share a chunk are read as
one. With periodic samples a block and its halo often do.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from voxload.benchmark.loaders.protocol import Task, Volume
from voxload.geometry import Boundary, Box, Halo, Piece, pieces
from voxload.readers.axes import VOLUME_AXES, AxisOrder
from voxload.readers.protocol import Volume as Array


@dataclass(frozen=True, slots=True)
class Part:
    """One read, and where its voxels go."""

    box: Box
    """What is read, inside the volume."""
    pastes: tuple[Piece, ...]
    """What goes where: sources count from the part's own start, targets from that of the box that is wanted."""

    @property
    def is_direct(self) -> bool:
        """Whether all of it goes to one place, as it is."""
        return len(self.pastes) == 1 and self.pastes[0].source.shape == self.box.shape


def parts(box: Box, shape: Sequence[int], boundary: Boundary, *, chunks: Sequence[int]) -> tuple[Part, ...]:
    """Cut `box`, which may leave a volume of `shape`, into parts that share no chunk.

    Parameters
    ----------
    box
        What is wanted.
    shape
        Extents of the volume.
    boundary
        What lies outside; voxels of a zero boundary are in no part.
    chunks
        Extents of a chunk; ones where there are none.

    >>> [str(part.box) for part in parts(Box((-1,), (2,)), (4,), Boundary.PERIODIC, chunks=(2,))]
    ['[0:2]', '[3:4]']
    >>> [str(part.box) for part in parts(Box((-1,), (2,)), (4,), Boundary.PERIODIC, chunks=(4,))]
    ['[0:4]']
    """
    axes = [
        _stretches(Box((lo,), (hi,)), extent, boundary, chunk=chunk)
        for lo, hi, extent, chunk in zip(box.start, box.stop, shape, chunks, strict=True)
    ]
    return tuple(_product(stretches) for stretches in itertools.product(*axes))


def _stretches(wanted: Box, extent: int, boundary: Boundary, *, chunk: int) -> list[Part]:
    """Return the parts of one axis."""
    found: list[tuple[Box, list[Piece]]] = []
    for run in sorted(pieces(wanted, (extent,), boundary), key=lambda piece: piece.source.start):
        (start,), (stop,) = run.source.start, run.source.stop
        if found and start // chunk <= (found[-1][0].stop[0] - 1) // chunk:
            before, runs = found[-1]
            found[-1] = (Box(before.start, (max(before.stop[0], stop),)), [*runs, run])
        else:
            found.append((run.source, [run]))
    return [
        Part(box, tuple(Piece(run.source.relative_to(box.start), run.target) for run in runs)) for box, runs in found
    ]


def _product(stretches: Sequence[Part]) -> Part:
    """Return the part that has one stretch along each axis."""
    pastes = itertools.product(*(stretch.pastes for stretch in stretches))
    return Part(
        _joined([stretch.box for stretch in stretches]),
        tuple(Piece(_joined([one.source for one in each]), _joined([one.target for one in each])) for each in pastes),
    )


def _joined(boxes: Sequence[Box]) -> Box:
    """Return the box whose axes are those of boxes of one axis."""
    return Box(tuple(box.start[0] for box in boxes), tuple(box.stop[0] for box in boxes))


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


MOST_OPEN = 128
"""Volumes that a process keeps open: far fewer than the descriptors that systems allow by default."""


class Stored(Protocol):
    """One open stored array; used by one thread."""

    def view(self, source: Slices) -> Array | None:
        """Return a box as a view where the library has one; None where it must be read."""
        ...

    def read(self, source: Slices, out: Array, target: Slices) -> None:
        """Read a box into a part of an array."""
        ...

    def close(self) -> None:
        """Close its files."""
        ...


Opener = Callable[[Volume], Stored]
"""Opens a volume; picklable, for worker processes."""


class BlockReader:
    """Reads this rank's blocks; used by one thread, in the process that reads first.

    Parameters
    ----------
    task
        What is read.
    opener
        The library.
    most_open
        Volumes that are kept open; with 0 each is opened for one block.
    """

    def __init__(self, task: Task, opener: Opener, *, most_open: int = MOST_OPEN) -> None:
        self.cut = Cut.of(task)
        self._volumes, self._opener, self._most_open = task.volumes, opener, most_open
        self._ring_size = task.workload.share.batch_size
        self._open: OrderedDict[int, Stored] = OrderedDict()
        self._ring: list[Array] = []
        self._scratch: tuple[Array | None, ...] | None = None
        self._turn = 0

    def __len__(self) -> int:
        return len(self._volumes)

    def block(self, index: int) -> Array:
        """Return a sample's block (C, d, h, w): a view that is good until as many as a batch has were asked for."""
        stored = self._stored(index)
        if self.cut.is_plain:
            view = stored.view(self.cut.parts[0].source)
            if view is not None:
                return self.cut.as_volume(view.astype(self.cut.dtype, copy=False))
        return self.cut.as_volume(self._filled(stored))

    def read_into(self, index: int, out: Array) -> None:
        """Read a sample's block into `out`, (C, d, h, w), which holds zeros wherever the sample does not reach."""
        target, stored = self.cut.as_stored(out), self._stored(index)
        if target.flags.c_contiguous:
            self._fill(target, stored)
        else:
            np.copyto(target, self._filled(stored))

    def close(self) -> None:
        """Close all that is open."""
        while self._open:
            self._open.popitem()[1].close()

    def _filled(self, stored: Stored) -> Array:
        """Return the next buffer, filled; nobody writes where a block leaves the sample, so zeros stay there."""
        if not self._ring:
            self._ring = [np.zeros(self.cut.shape, self.cut.dtype) for _ in range(self._ring_size)]
        self._turn = (self._turn + 1) % self._ring_size
        self._fill(self._ring[self._turn], stored)
        return self._ring[self._turn]

    def _fill(self, out: Array, stored: Stored) -> None:
        if self._scratch is None:
            self._scratch = self.cut.new_scratch()
        self.cut.fill(out, stored.read, self._scratch)

    def _stored(self, index: int) -> Stored:
        """Return a volume that is open, and close those that were not used for longest."""
        found = self._open.pop(index, None)
        while found is None and self._open and len(self._open) >= self._most_open:
            self._open.popitem(last=False)[1].close()
        found = self._opener(self._volumes[index]) if found is None else found
        if self._most_open:
            self._open[index] = found
        return found
