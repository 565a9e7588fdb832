"""TilesAhead: tiles of a raw cube, read one after the other while those before are encoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from voxload.convert.staging import HeldTile, Staging
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
