"""Staging: tiles of a raw cube in memory, read ahead and held until their chunks are encoded.

A tile is read whole where the source has chunks of its own or can only be read in order, and its chunks are gathered
when they are encoded. Where it can be read piece by piece, each piece stays in a processor's cache until its voxels are
in their chunks: the tile passes through memory once less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from voxload.convert.encode.bands import BandReader, can_read_bands
from voxload.convert.encode.deinterleave import MOST_CHANNELS, deinterleave_into_chunks
from voxload.convert.plan.tiles import Cut, Tiling, parts_of
from voxload.convert.sources.binary.flat import FlatReading
from voxload.convert.sources.protocol import RawCube, ReadInto, volume_view
from voxload.geometry import Box
from voxload.readers.pasting.kernels import LINE
from voxload.readers.protocol import Volume
from voxload.readers.scratch import address

BAND_BYTES = 2**21
"""Voxels read at once of a tile that is read piece by piece: with half of it, the calls take a tenth longer, and with
more it no longer stays in a cache."""
STREAMED_BYTES = 2**18
"""The same where there are no calls between: planes of 64 rows of 512 voxels of 8 bytes."""
_ALONG_W = 2


@dataclass(frozen=True, slots=True)
class _Band:
    """A piece of a tile that is read at once."""

    box: Box
    """Its voxels, in indices that count from the tile's first one."""
    start: tuple[int, int, int]
    """The first of them."""
    block: Volume
    """What they are read into."""


class HeldTile(Protocol):
    """A tile in memory."""

    @property
    def nbytes(self) -> int:
        """Bytes of its voxels."""
        ...

    def voxels(self, cut: Cut, group: int) -> Volume:
        """Return a view of a chunk's voxels, of one group of channels."""
        ...


class Staging(Protocol):
    """Reads tiles into buffers; one thread at a time."""

    def buffer(self) -> Volume:
        """Return a buffer that any tile can be read into."""
        ...

    def read(self, tile: Box, buffer: Volume) -> HeldTile:
        """Read a tile."""
        ...


def stage(cube: RawCube, tiling: Tiling, width: int, *, read_into: ReadInto) -> Staging:
    """Return how tiles are best held.

    Parameters
    ----------
    cube
        What is read.
    tiling
        Its tiles.
    width
        Channels of a chunk.
    read_into
        What reads it.
    """
    if not _can_band(cube, tiling):
        return _Whole(cube, tiling, width, read_into)
    if isinstance(read_into, FlatReading) and can_read_bands(cube, read_into):
        return _Streamed(cube, tiling, width, read_into)
    return _Banded(cube, tiling, width, read_into)


def _can_band(cube: RawCube, tiling: Tiling) -> bool:
    """Tell whether any box of the cube can be read, rows of voxels are along w, and all chunks are whole."""
    return (
        not cube.scratch_bytes
        and not cube.is_sequential
        and cube.spatial_order[-1] == _ALONG_W
        and cube.order.axes[-1] in "WC"
        and cube.volume_shape[0] <= MOST_CHANNELS
        and not any(extent % width for extent, width in zip(tiling.spatial, tiling.chunk, strict=True))
    )


class _Held:
    """What both ways have in common."""

    def __init__(self, cube: RawCube, tiling: Tiling, width: int, read_into: ReadInto) -> None:
        self._cube, self._tiling, self._width, self._read_into = cube, tiling, width, read_into
        self._channels = cube.volume_shape[0]

    def buffer(self) -> Volume:
        """Return a buffer that any tile can be read into."""
        return self._room(self._tiling.largest_tile)

    def _room(self, voxels: int) -> Volume:
        """Return room for so many voxels of each channel, from a cache line's begin on.

        Anywhere else every line that is written would touch two, and parting takes half as long again.
        """
        size = voxels * self._channels * self._cube.dtype.itemsize
        room = np.empty(size + LINE, np.uint8)
        first = -address(room) % LINE
        return room[first : first + size].view(self._cube.dtype)

    def _view(self, box: Box, buffer: Volume) -> Volume:
        """Return a view of a buffer for the voxels of a box, laid out as the source is on disk."""
        shape = self._cube.order.to_stored((self._channels, *box.shape))
        return volume_view(self._cube.order, buffer[: prod(shape)].reshape(shape))


class _Whole(_Held):
    """Tiles as the source stores them."""

    def read(self, tile: Box, buffer: Volume) -> HeldTile:
        """Read a tile."""
        block = self._view(tile, buffer)
        self._read_into(tile, block)
        return _Block(block, self._width)


class _Banded(_Held):
    """Tiles whose voxels are parted into chunks as soon as they are read, a few planes or rows at a time."""

    def __init__(self, cube: RawCube, tiling: Tiling, width: int, read_into: ReadInto) -> None:
        super().__init__(cube, tiling, width, read_into)
        self._extents = self._band()
        held = [min(of_band, of_tile) for of_band, of_tile in zip(self._extents, tiling.tile, strict=True)]
        self._piece = self._room(prod(held))
        self._known: dict[tuple[int, ...], list[_Band]] = {}

    @property
    def _band_bytes(self) -> int:
        """What is read at once."""
        return BAND_BYTES

    def _band(self) -> tuple[int, int, int]:
        """Return the extents of a band: as many whole rows, then planes, as it may have bytes."""
        first, second, _ = self._tiling.slowest_first
        tile = self._tiling.tile
        extents = [1, 1, tile[2]]
        room = self._band_bytes // (self._channels * self._cube.dtype.itemsize)
        for axis in (second, first):
            extents[axis] = max(1, min(tile[axis], room // prod(extents)))
            if extents[axis] < tile[axis]:
                break
        return extents[0], extents[1], extents[2]

    def read(self, tile: Box, buffer: Volume) -> HeldTile:
        """Read a tile."""
        chunk = self._tiling.chunk
        grid = [extent // width for extent, width in zip(tile.shape, chunk, strict=True)]
        shape = (self._channels // self._width, *grid, self._width, *chunk)
        chunks = buffer[: prod(shape)].reshape(shape)
        self._fill(tile, chunks)
        return _Chunks(chunks)

    def _fill(self, tile: Box, chunks: Volume) -> None:
        """Read all bands of a tile into its chunks."""
        for band in self._bands(tile.shape):
            self._read_band(tile, chunks, band)

    def _read_band(self, tile: Box, chunks: Volume, band: _Band) -> None:
        """Read one band of a tile into its chunks."""
        self._read_into(band.box.shift(tile.start), band.block)
        deinterleave_into_chunks(chunks, band.block, band.start)

    def _bands(self, shape: tuple[int, ...]) -> list[_Band]:
        """Return the bands of a tile; most tiles are of one shape."""
        if shape not in self._known:
            found = []
            for box in parts_of(Box.whole(shape), self._extents, self._tiling.slowest_first):
                d, h, w = box.start
                found.append(_Band(box, (d, h, w), self._view(box, self._piece)))
            self._known[shape] = found
        return self._known[shape]


class _Streamed(_Banded):
    """The same of a flat file: a band is so short that the nearest large cache keeps it."""

    def __init__(self, cube: RawCube, tiling: Tiling, width: int, reading: FlatReading) -> None:
        super().__init__(cube, tiling, width, reading)
        self._reading = reading
        self._streams: dict[tuple[int, ...], BandReader] = {}

    @property
    def _band_bytes(self) -> int:
        """What is read at once."""
        return STREAMED_BYTES

    def _fill(self, tile: Box, chunks: Volume) -> None:
        """Read all bands of a tile into its chunks; one that the system does not give at once is asked for again."""
        bands = self._bands(tile.shape)
        if tile.shape not in self._streams:
            blocks = [(band.start, band.block) for band in bands]
            self._streams[tile.shape] = BandReader(self._reading, blocks, chunks=chunks)
        stream = self._streams[tile.shape]
        d, h, w = tile.start
        done = stream.read((d, h, w), chunks, first=0)
        while done < len(bands):
            self._read_band(tile, chunks, bands[done])
            done = stream.read((d, h, w), chunks, first=done + 1)


class _Block:
    """A tile as the source stores it."""

    def __init__(self, block: Volume, width: int) -> None:
        self._block, self._width = block, width

    @property
    def nbytes(self) -> int:
        """Bytes of its voxels."""
        return self._block.nbytes

    def voxels(self, cut: Cut, group: int) -> Volume:
        """Return the voxels of a chunk."""
        return self._block[(slice(group * self._width, (group + 1) * self._width), *cut.slices)]


class _Chunks:
    """A tile whose chunks lie one after the other."""

    def __init__(self, chunks: Volume) -> None:
        self._chunks = chunks

    @property
    def nbytes(self) -> int:
        """Bytes of its voxels."""
        return self._chunks.nbytes

    def voxels(self, cut: Cut, group: int) -> Volume:
        """Return the voxels of a chunk."""
        chunk: Volume = self._chunks[(group, *cut.index)]
        return chunk


class HasTile(Protocol):
    """What is wanted of a raw cube."""

    @property
    def tile(self) -> Box:
        """Voxels of the raw cube."""
        ...


W = TypeVar("W", bound=HasTile)


class TileReadAhead(Generic[W]):
    """Reads tiles in a thread of its own, each into a buffer that is free; leave the block to stop it.

    Parameters
    ----------
    staging
        What reads them.
    wanted
        What to read, in this order; asked in the thread that calls, as buffers become free.
    buffers
        How many are in memory at once.
    """

    def __init__(self, staging: Staging, *, wanted: Iterator[W], buffers: int) -> None:
        self._staging, self._wanted, self._left = staging, wanted, buffers
        self._free: deque[Volume] = deque()
        self._lent: deque[Volume] = deque()
        self._coming: deque[tuple[W, Future[HeldTile]]] = deque()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="voxload-read")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.shutdown(wait=True, cancel_futures=True)

    def start(self) -> None:
        """Read into every buffer that is free; called within the block, because whoever is asked may raise."""
        while (self._free or self._left) and (wanted := next(self._wanted, None)) is not None:
            if not self._free:
                self._left -= 1
                self._free.append(self._staging.buffer())
            buffer = self._free.popleft()
            self._lent.append(buffer)
            self._coming.append((wanted, self._reader.submit(self._staging.read, wanted.tile, buffer)))

    @property
    def is_reading(self) -> bool:
        """Whether the next tile is being read, or was; else it is the end, or a buffer must be released first."""
        return bool(self._coming)

    def next(self) -> tuple[W, HeldTile]:
        """Return what was wanted next, and its voxels."""
        wanted, coming = self._coming.popleft()
        return wanted, coming.result()

    def release(self) -> None:
        """Let the oldest tile's buffer be read into again: nobody looks into it any more."""
        self._free.append(self._lent.popleft())
        self.start()
