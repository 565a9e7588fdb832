"""Levels: where a service has blocks, its memory and its disk, and the storage behind them; for a team of threads.

Rules of this file:

1. What is in memory or on disk was read by this process, with its rights, and was not written to while it was read.
2. What lies on disk is taken only for what is stored now: its key is made anew whenever it is read.
3. A disk that fails is done without: what cannot be stored there is read from the storage again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from voxload.cache.disk.tier import DiskTier
from voxload.cache.memory.sealed import SealedMemory
from voxload.cache.memory.tier import MemoryTier, Pages
from voxload.cache.protocol import BlockKey
from voxload.data.layout import FieldLayout
from voxload.errors import VoxloadError
from voxload.readers.protocol import Volume
from voxload.serve.keeping.elsewhere import Elsewhere
from voxload.serve.keeping.storedblocks import StoredBlocks

HEADER = DiskTier.footprint(0)
"""Bytes that a block takes on disk beyond its own."""


class Source(enum.Enum):
    """Where a block was read from."""

    STORAGE = "storage"
    DISK = "disk"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came of reading a block into the memory."""

    key: BlockKey | None = None
    """Under which it is kept; None where nothing is."""
    source: Source = Source.STORAGE
    storage_bytes: int = 0
    """That were asked of the storage."""
    path: str | None = None
    """The one file that it lies in, where others are told that it is here."""


class Levels:
    """Memory, disk and storage of a service; safe to use from many threads at once.

    Parameters
    ----------
    memory
        Bytes of it; set aside at once.
    line
        Gives what is known of a block by its number; see `StoredBlocks`.
    disk
        Folder on a disk of this node, and bytes of all that lies there; None for no disk.
    make
        Makes the memory; see `MemoryTier`.
    elsewhere
        Who else may have a block.

    Raises
    ------
    UsageError
        Where there is not so much memory, or room on disk, or the folder is another user's.
    StorageError
        Where the folder cannot be written to.
    """

    def __init__(
        self,
        memory: int,
        line: Callable[[int], bytes],
        *,
        disk: tuple[Path, int] | None = None,
        make: Callable[..., Pages] = SealedMemory,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.memory = MemoryTier(memory, job="service", make=make)
        try:
            self.disk = None if disk is None else DiskTier(*disk)
        except BaseException:
            self.memory.close()
            raise
        self._line, self._stored = line, StoredBlocks(line)
        self.elsewhere = elsewhere
        """Who else may have a block; set before the first one is read."""
        self._is_resized = make is not SealedMemory
        self._ours: set[bytes] = set()  # digests of what lies on disk, and nobody else removes

    @property
    def disk_room(self) -> int:
        """Bytes on disk that blocks can have, each with a header of `HEADER`."""
        return 0 if self.disk is None else self.disk.room

    def resize(self, memory: int) -> list[bytes]:
        """Use so many bytes of the memory; return the digests of blocks that had to go for it.

        Raises StorageError where the system does not give them.
        """
        return self.memory.resize(memory) if self._is_resized else []

    def fetch(self, number: int, nbytes: int) -> Fetched:
        """Read a block of so many bytes into the memory, from disk where it lies there.

        It is made where it stays: nothing that is decoded is copied once more.
        """
        try:
            return self._made(number, self._stored.layout(number, nbytes))
        # The client reads it itself then, and is told there what is wrong.
        except (VoxloadError, OSError, MemoryError):
            return Fetched()

    def _made(self, number: int, layout: FieldLayout) -> Fetched:
        with self.memory.room_for(layout.dtype, layout.shape) as room:
            if room is None:
                return Fetched()
            found = self._fetched(number, room.volume)
            room.key = found.key
        # It may have been there already, and its table may be full.
        if found.key is None or not self.memory.holds(found.key):
            return Fetched(None, found.source, found.storage_bytes)
        if self.elsewhere is not None and found.path is not None:
            self.elsewhere.has(found.key, found.path)
        return found

    def _fetched(self, number: int, out: Volume) -> Fetched:
        """Fill `out` with a block, wherever it is."""
        is_asked = self.disk is not None or self.elsewhere is not None
        key = self._stored.key(number) if is_asked else None
        if key is not None and self._fetched_near(key, out):
            return Fetched(key, Source.DISK)
        path = self._path(number) if key is not None else None
        if key is not None and self._fetched_elsewhere(number, key, path, out):
            return Fetched(key, Source.ELSEWHERE, path=path)
        found = self._stored.read(number, out)
        return Fetched(found.key, Source.STORAGE, found.cost.stored_bytes, path if found.key == key else None)

    def _path(self, number: int) -> str | None:
        """Return the one file that a block lies in, where somebody wants to know."""
        is_wanted = self.elsewhere is not None and self.elsewhere.wants_files
        return self._stored.whole_file(number) if is_wanted else None

    def _fetched_elsewhere(self, number: int, key: BlockKey, path: str | None, out: Volume) -> bool:
        """Fill `out` with a block of others; False where nobody gives it."""
        if self.elsewhere is None:
            return False
        # Once more: it may have been written anew while it was asked for.
        return self.elsewhere.fetch(self._line(number), key, path, out) and self._stored.key(number) == key

    def _fetched_near(self, key: BlockKey, out: Volume) -> bool:
        """Fill `out` with a block from disk; False where it does not lie there undamaged."""
        if self.disk is None or not self.disk.holds(key):
            return False
        if key.digest not in self._ours and self.disk.inventory([key])[0]:  # it is of a service that has ended
            self._ours.add(key.digest)
        return self.disk.get_into(key, out)

    def store(self, number: int, key: BlockKey) -> bool:
        """Write a block that is in memory to disk; False where that cannot be."""
        with suppress(VoxloadError, OSError, MemoryError):
            layout = self._stored.unit(number).layout[0]
            with self.memory.lent(key, layout.dtype, layout.shape) as found:
                if self.disk is not None and found is not None and self.disk.put(key, found):
                    self._ours.add(key.digest)
                    return True
        return False

    def erase(self, key: BlockKey) -> None:
        """Remove a block from disk."""
        self._ours.discard(key.digest)
        if self.disk is not None:
            self.disk.drop(key)

    def is_good(self, number: int, key: BlockKey) -> bool:
        """Tell whether a block in memory is undamaged, and what is stored now."""
        with suppress(VoxloadError, OSError):
            if self._stored.key(number) == key:
                layout = self._stored.unit(number).layout[0]
                with self.memory.lent(key, layout.dtype, layout.shape) as found:
                    return found is not None
        return False

    def close(self) -> None:
        """Close all files and give the memory up; what lies on disk stays, and clients keep what they have mapped."""
        self._stored.close()
        self.memory.close()
        if self.disk is not None:
            self.disk.close()
