"""Pipeline: one volume read, encoded and stored, tile by tile.

While threads encode the chunks of one tile, the next is read, and the one before is flushed. Chunks are stored in one
fixed order, whichever thread is done first, so that equal sources give equal files.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import prod

import numpy as np

from voxload.convert.counting import count_voxels
from voxload.convert.manifest import Manifest, check_unchanged
from voxload.convert.members import Members
from voxload.convert.packing import pack
from voxload.convert.sources.protocol import RawCube, ReadInto, volume_view
from voxload.convert.storage import Place
from voxload.convert.store import STORAGES, VolumePlan
from voxload.convert.writer import VolumeWriter
from voxload.errors import DataError
from voxload.geometry import Box
from voxload.readers.protocol import Volume
from voxload.statistics import Statistics

CHECKPOINT_BYTES = 2**26
"""Voxels between two records of what is stored, at most: each waits for the device, and is what a kill costs."""
_STEPS = 8
"""Records of a small volume, at least."""


@dataclass(slots=True)
class Tally:
    """What was done with one volume."""

    read: int = 0
    """Bytes of voxels read from the sources."""
    resumed: int = 0
    """Bytes of voxels that an earlier run converted."""
    chunks: int = 0
    """Chunks encoded."""
    written: int = 0
    """Bytes stored."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """What is left to do of a tile."""

    tile: Box
    """Its voxels in the raw cube."""
    start: tuple[int, ...]
    """Where it begins in the volume."""
    chunks: list[tuple[Box, Place]]
    """Chunks that are not stored: their voxels in the volume, and their place."""
    nbytes: int
    """Bytes of their voxels."""


@dataclass(frozen=True, slots=True)
class _Encoded:
    """What became of one chunk of voxels of a tile."""

    place: Place
    """Its place in the grid of chunks."""
    data: bytes
    """As it is stored."""
    channels: list[Statistics]
    """Figures of its voxels, channel by channel."""


def convert_volume(plan: VolumePlan, workers: Executor, *, threads: int, advance: Callable[[int], None]) -> Tally:
    """Convert one volume; what an interrupted run stored of it is not done again.

    Parameters
    ----------
    plan
        The volume.
    workers
        Threads that encode.
    threads
        How many they are.
    advance
        Told how many bytes of voxels were converted, by this run or an earlier one, after every tile.

    Raises
    ------
    DataError
        When a source is damaged or changes while it is read; nothing of the volume is kept.
    StorageError
        When the destination refuses; what was stored is kept for the next run.
    """
    storage = STORAGES[plan.manifest.format](plan.manifest)
    tally = Tally()
    with VolumeWriter.open(plan.final, plan.manifest, storage=storage) as writer:
        job = _Job(plan, writer, workers, 2 * threads, tally, advance)
        try:
            for number in range(len(plan.sources)):
                job.run(number)
        except DataError:
            writer.discard()
            raise
        tally.written = writer.commit().stored_bytes
    return tally


@dataclass(frozen=True, slots=True)
class _Job:
    """One volume's conversion."""

    plan: VolumePlan
    """The volume."""
    writer: VolumeWriter
    """Where chunks go."""
    workers: Executor
    """Threads that encode."""
    ahead: int
    """Chunks that are encoded, or wait to be stored, at once."""
    tally: Tally
    """What was done."""
    advance: Callable[[int], None]
    """Whom to tell."""

    def run(self, number: int) -> None:
        """Convert one raw cube."""
        source, part = self.plan.sources[number], self.plan.manifest.parts[number]
        cube = source.describe()
        shift = (part.first, 0, 0)
        voxel = cube.volume_shape[0] * cube.dtype.itemsize
        pending: list[_Pending] = []
        done = 0
        for tile in self.plan.tiling.tiles():
            missing = [one for one in self._chunks(tile, shift) if not self.writer.has(one[1])]
            # Channels may have chunks of their own: what is left is counted by chunks, not by voxels.
            left = sum(box.size for box, _ in missing) * voxel // self.plan.channel_groups
            done += tile.size * voxel - left
            if missing:
                pending.append(_Pending(tile, tile.shift(shift).start, missing, left))
        self.tally.resumed += done
        if done:
            self.advance(done)
        if pending:
            with source.open() as read_into:
                self._convert(cube, read_into, pending)
        check_unchanged(part)

    def _convert(self, cube: RawCube, read_into: ReadInto, pending: list[_Pending]) -> None:
        """Convert what is left of tiles, and record it every so many bytes."""
        step = min(CHECKPOINT_BYTES, self.plan.decoded_bytes // _STEPS)
        figures, since = _Figures(self.plan.manifest), 0
        blocks = self._read(cube, read_into, [one.tile for one in pending])
        for one, block in zip(pending, blocks, strict=True):
            self._store(block, one, figures)
            since += one.nbytes
            if since >= step:
                self.writer.checkpoint(figures.ordered())
                figures, since = _Figures(self.plan.manifest), 0
            self.advance(one.nbytes)
        if since:
            self.writer.checkpoint(figures.ordered())

    def _chunks(self, tile: Box, shift: tuple[int, int, int]) -> Iterator[tuple[Box, Place]]:
        """Yield the chunks of a tile in the order in which they are stored: their voxels in the volume, their place."""
        widths = self.plan.manifest.chunks[1:]
        for box in self.plan.tiling.chunks(tile):
            there = box.shift(shift)
            d, h, w = (lo // width for lo, width in zip(there.start, widths, strict=True))
            for group in range(self.plan.channel_groups):
                yield there, (group, d, h, w)

    def _read(self, cube: RawCube, read_into: ReadInto, tiles: list[Box]) -> Iterator[Volume]:
        """Yield the voxels of tile after tile, reading the next one meanwhile where there is memory for two."""
        tiling = self.plan.tiling
        largest = max(tile.size for tile in tiles) * cube.volume_shape[0]
        buffers = [np.empty(largest, cube.dtype) for _ in range(min(tiling.buffers, len(tiles)))]
        turn = itertools.cycle(buffers)

        def read(tile: Box) -> Volume:
            block = _block(next(turn), cube, tile)
            read_into(tile, block)
            return block

        if len(buffers) < len(tiles) and len(buffers) == 1:
            for tile in tiles:
                yield self._count(read(tile))
            return
        with ThreadPoolExecutor(1, thread_name_prefix="voxload-read") as reader:
            coming: deque[Future[Volume]] = deque([reader.submit(read, tiles[0])])
            for following in (*tiles[1:], None):
                block = coming.popleft().result()
                if following is not None:
                    coming.append(reader.submit(read, following))
                yield self._count(block)

    def _count(self, block: Volume) -> Volume:
        self.tally.read += block.nbytes
        return block

    def _store(self, block: Volume, pending: _Pending, figures: _Figures) -> None:
        """Encode what is left of a tile and store it in order."""
        encode = _Encode(self.plan.manifest)
        waiting: deque[Future[_Encoded]] = deque()

        def store() -> None:
            found = waiting.popleft().result()
            self.writer.append(found.place, found.data)
            self.tally.chunks += 1
            figures.add(found)

        try:
            for box, place in pending.chunks:
                voxels = block[(slice(None), *box.relative_to(pending.start).slices)]
                waiting.append(self.workers.submit(encode, voxels, box, place))
                if len(waiting) > self.ahead:
                    store()
            while waiting:
                store()
        finally:
            # Nobody may still look into the block when it is read into again.
            for future in waiting:
                if not future.cancel():
                    future.exception()


def _block(buffer: Volume, cube: RawCube, tile: Box) -> Volume:
    """Return a (C, D, H, W) view of the buffer's first bytes, laid out in memory as the source is on disk."""
    shape = cube.order.to_stored((cube.volume_shape[0], *tile.shape))
    return volume_view(cube.order, buffer[: prod(shape)].reshape(shape))


class _Figures:
    """Figures of a tile's voxels, by sample and channel; chunks must come in one order, for sums depend on it."""

    def __init__(self, manifest: Manifest) -> None:
        self._members = Members(manifest.members)
        self._chunks = manifest.chunks
        self._found: defaultdict[int, dict[int, Statistics]] = defaultdict(dict)

    def add(self, encoded: _Encoded) -> None:
        """Add those of a chunk."""
        group, *place = encoded.place
        start = tuple(index * width for index, width in zip(place, self._chunks[1:], strict=True))
        channels = self._found[self._members.at(start)]
        for channel, more in enumerate(encoded.channels, group * self._chunks[0]):
            channels[channel] = channels.get(channel, Statistics()) + more

    def ordered(self) -> dict[int, dict[int, Statistics]]:
        """Return them by number of the sample and of the channel."""
        return {number: dict(sorted(channels.items())) for number, channels in sorted(self._found.items())}


class _Encode:
    """Makes a chunk of a tile's voxels; called by many threads at once, each with a buffer of its own."""

    def __init__(self, manifest: Manifest) -> None:
        self._chunks = manifest.chunks
        self._dtype = np.dtype(manifest.dtype)
        self._encoder = STORAGES[manifest.format](manifest).encoder

    def __call__(self, voxels: Volume, box: Box, place: Place) -> _Encoded:
        """Encode the chunk at `place`, whose channels in `box` are among `voxels`."""
        width = self._chunks[0]
        wanted = voxels[place[0] * width : (place[0] + 1) * width]
        chunk = _buffer(self._chunks, self._dtype)
        inside = chunk[(slice(None), *(slice(extent) for extent in box.shape))]
        if inside.shape != chunk.shape:
            chunk[:] = 0  # beyond the volume's border
        pack(inside, wanted)
        channels = [count_voxels(np.ascontiguousarray(channel)) for channel in inside]
        return _Encoded(place, self._encoder(chunk), channels)


_LOCAL = threading.local()


def _buffer(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Volume:
    """Return this thread's chunk, whose voxels are those of the chunk before."""
    found: Mapping[str, Volume] = _LOCAL.__dict__
    chunk = found.get("chunk")
    if chunk is None or chunk.shape != shape or chunk.dtype != dtype:
        chunk = np.empty(shape, dtype)
        _LOCAL.chunk = chunk
    return chunk
