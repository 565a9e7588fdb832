"""TilesAhead: tiles of a raw cube, read one after the other while those before are encoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from voxload.convert.sources.protocol import RawCube, ReadInto, volume_view
from voxload.convert.tiles import Tiling
from voxload.geometry import Box
from voxload.readers.protocol import Volume


class HasTile(Protocol):
    """What is wanted of a raw cube."""

    @property
    def tile(self) -> Box:
        """Voxels of the raw cube."""
        ...


W = TypeVar("W", bound=HasTile)


class TilesAhead(Generic[W]):
    """Reads tiles in a thread of its own, each into a buffer that is free; leave the block to stop it.

    Parameters
    ----------
    cube
        What is read.
    read_into
        What reads it.
    wanted
        What to read, in this order; asked in the thread that calls, as buffers become free.
    tiling
        How large tiles are, and how many are in memory at once.
    """

    def __init__(self, cube: RawCube, read_into: ReadInto, *, wanted: Iterator[W], tiling: Tiling) -> None:
        self._cube, self._read_into, self._wanted = cube, read_into, wanted
        self._largest = tiling.largest_tile * cube.volume_shape[0]
        self._free: deque[Volume] = deque()
        self._left = tiling.buffers
        self._lent: deque[Volume] = deque()
        self._coming: deque[tuple[W, Future[Volume]]] = deque()
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
                self._free.append(np.empty(self._largest, self._cube.dtype))
            buffer = self._free.popleft()
            self._lent.append(buffer)
            self._coming.append((wanted, self._reader.submit(self._read, wanted.tile, buffer)))

    @property
    def is_reading(self) -> bool:
        """Whether the next tile is being read, or was; else it is the end, or a buffer must be released first."""
        return bool(self._coming)

    def next(self) -> tuple[W, Volume]:
        """Return what was wanted next, and its voxels ``(C, *tile.shape)``, laid out as the source is on disk."""
        wanted, coming = self._coming.popleft()
        return wanted, coming.result()

    def release(self) -> None:
        """Let the oldest tile's buffer be read into again: nobody looks into it any more."""
        self._free.append(self._lent.popleft())
        self.start()

    def _read(self, tile: Box, buffer: Volume) -> Volume:
        shape = self._cube.order.to_stored((self._cube.volume_shape[0], *tile.shape))
        block = volume_view(self._cube.order, buffer[: prod(shape)].reshape(shape))
        self._read_into(tile, block)
        return block
