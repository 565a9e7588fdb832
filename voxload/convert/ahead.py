"""TilesAhead: tiles of a raw cube, read one after the other while those before are encoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from types import TracebackType
from typing import Self

import numpy as np

from voxload.convert.sources.protocol import RawCube, ReadInto, volume_view
from voxload.geometry import Box
from voxload.readers.protocol import Volume


class TilesAhead:
    """Reads tiles in a thread of its own, each into a buffer that is free; leave the block to stop it.

    Parameters
    ----------
    cube
        What is read.
    read_into
        What reads it.
    tiles
        What to read, in this order.
    buffers
        How many tiles are in memory at once, at most.
    """

    def __init__(self, cube: RawCube, read_into: ReadInto, *, tiles: Sequence[Box], buffers: int) -> None:
        self._cube, self._read_into = cube, read_into
        self._left = deque(tiles)
        largest = max(tile.size for tile in tiles) * cube.volume_shape[0]
        self._free = deque(np.empty(largest, cube.dtype) for _ in range(min(buffers, len(tiles))))
        self._lent: deque[Volume] = deque()
        self._coming: deque[Future[Volume]] = deque()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="voxload-read")
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.shutdown(wait=True, cancel_futures=True)

    @property
    def is_reading(self) -> bool:
        """Whether the next tile is being read, or was; else a buffer must be released first."""
        return bool(self._coming)

    def next(self) -> Volume:
        """Return the next tile, ``(C, *tile.shape)``, laid out in memory as the source is on disk."""
        return self._coming.popleft().result()

    def release(self) -> None:
        """Let the oldest tile's buffer be read into again: nobody looks into it any more."""
        self._free.append(self._lent.popleft())
        self._start()

    def _start(self) -> None:
        while self._left and self._free:
            buffer = self._free.popleft()
            self._lent.append(buffer)
            self._coming.append(self._reader.submit(self._read, self._left.popleft(), buffer))

    def _read(self, tile: Box, buffer: Volume) -> Volume:
        shape = self._cube.order.to_stored((self._cube.volume_shape[0], *tile.shape))
        block = volume_view(self._cube.order, buffer[: prod(shape)].reshape(shape))
        self._read_into(tile, block)
        return block
