"""Carrier: carries out what the planner says, by a bounded team of threads, and tells what came of it.

Its methods, and `tell`, are called by the loop's thread; only what threads of the team do is not. What lies on disk is
known here by the key under which it was stored: a block that was written anew has another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from voxload.cache.protocol import BlockKey
from voxload.prefetch.execution.threadpool import GRACE, DaemonThreadPool
from voxload.prefetch.sharing.events import Event, Lost, ReadDone, Stored
from voxload.serve.keeping.levels import Fetched, Levels, Source

WRITES = 2
"""Blocks that are written to disk at once: more would wait for the same disk."""


@dataclass(slots=True)
class Totals:
    """What was done since the service began."""

    reads: int = 0
    near: int = 0
    """Of the reads, those from disk."""
    elsewhere: int = 0
    """Of the reads, those from memory of others."""
    failed: int = 0
    """Reads that brought nothing which could be kept."""
    storage_bytes: int = 0
    """That reads asked of the storage."""
    storage_seconds: float = 0.0
    """That reads of the storage took, one after the other."""
    dropped: int = 0
    """Blocks that went from memory."""
    stored: int = 0
    """Blocks that were written to disk."""


class Carrier:
    """Reads, stores and drops blocks by their numbers.

    Parameters
    ----------
    levels
        Where they are; closed with this.
    threads
        Reads of the storage at once.
    tell
        Takes in what happened.
    """

    def __init__(self, levels: Levels, *, threads: int, tell: Callable[[Event], None]) -> None:
        self.levels, self._tell, self._loop = levels, tell, asyncio.get_running_loop()
        self._keys: dict[int, BlockKey] = {}  # of what is in memory
        self._disk_keys: dict[int, BlockKey] = {}  # of what lies on disk
        self._erased: list[BlockKey] = []
        # As many reads from disk as from the storage.
        count = threads if levels.disk is None else 2 * threads + WRITES
        self._team = DaemonThreadPool(count, "voxload-service-reader")
        self._is_closed = False
        self.totals = Totals()

    def read(self, number: int, nbytes: int, *, is_near: bool) -> None:
        """Let a block be read; `ReadDone` follows."""
        self._submit(partial(self._fetch, number, nbytes, is_near=is_near))

    def store(self, number: int) -> None:
        """Let a block be written to disk, once all is removed there that was to be; `Stored` follows."""
        erased, self._erased = self._erased, []
        self._submit(partial(self._write, number, self._keys.get(number), erased))

    def erase(self, number: int) -> None:
        """Have a block removed from disk, before the next one is written there."""
        key = self._disk_keys.pop(number, None)
        if key is not None:
            self._erased.append(key)

    def drop(self, number: int) -> None:
        """Forget a block in memory."""
        key = self._keys.pop(number, None)
        if key is not None:
            self.levels.memory.drop(key)
            self.totals.dropped += 1
            self._has_lost(key)

    def resize(self, memory: int) -> None:
        """Use so many bytes of the memory; `Lost` follows for each block that had to go, before this returns.

        Raises StorageError where the system does not give them.
        """
        gone = set(self.levels.resize(memory))
        for number in [number for number, key in self._keys.items() if key.digest in gone] if gone else ():
            self._has_lost(self._keys.pop(number))
            self.totals.dropped += 1
            self._tell(Lost(time.monotonic(), number))

    def look(self, number: int, then: Callable[[], None]) -> None:
        """Look whether a block in memory is undamaged and what is stored now; `Lost` follows where not, then `then`."""
        self._submit(partial(self._look, number, self._keys.get(number), then))

    def flush(self) -> None:
        """Let all be removed from disk that was to be, though nothing is written there."""
        erased, self._erased = self._erased, []
        if erased:
            self._submit(partial(self._erase, erased))

    def close(self) -> None:
        """Stop, and give all up."""
        self._is_closed = True
        self._team.shutdown(wait=False, cancel_futures=True)
        self._team.join(time.monotonic() + GRACE)
        self.levels.close()

    def _submit(self, work: Callable[[], None]) -> None:
        if not self._is_closed:
            self._team.submit(work)

    def _post(self, act: Callable[[], Any]) -> None:
        """Let the loop's thread do something, unless all of it ends."""
        if not self._is_closed and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)

    # What threads of the team do, and what comes of it.

    def _fetch(self, number: int, nbytes: int, *, is_near: bool) -> None:
        found, begin = Fetched(), time.monotonic()
        try:
            found = self.levels.fetch(number, nbytes)
        finally:
            seconds = time.monotonic() - begin
            self._post(partial(self._has_fetched, number, found, seconds, is_near=is_near))

    def _has_fetched(self, number: int, found: Fetched, seconds: float, *, is_near: bool) -> None:
        totals, is_of_disk = self.totals, found.source is Source.DISK
        totals.reads += 1
        totals.near += is_of_disk
        totals.elsewhere += found.source is Source.ELSEWHERE
        totals.storage_bytes += found.storage_bytes
        totals.storage_seconds += seconds if found.source is Source.STORAGE else 0.0
        if found.key is None:
            totals.failed += 1
        else:
            self._keys[number] = found.key
        if is_of_disk and not is_near and found.key is not None:
            self._disk_keys[number] = found.key  # a service before this one stored it
        elif not is_of_disk:
            self.erase(number)  # it was damaged, or is of what was stored before
        is_there = self._disk_keys.get(number) is not None  # else it was removed while it was read
        self._tell(ReadDone(time.monotonic(), number, is_kept=found.key is not None, is_on_disk=is_there))

    def _has_lost(self, key: BlockKey) -> None:
        if self.levels.elsewhere is not None:
            self.levels.elsewhere.lost(key)

    def _write(self, number: int, key: BlockKey | None, erased: list[BlockKey]) -> None:
        is_kept = False
        try:
            self._erase(erased)
            is_kept = key is not None and self.levels.store(number, key)
        finally:
            self._post(partial(self._has_written, number, key, is_kept=is_kept))

    def _has_written(self, number: int, key: BlockKey | None, *, is_kept: bool) -> None:
        if is_kept and key is not None:
            self._disk_keys[number] = key
            self.totals.stored += 1
        self._tell(Stored(time.monotonic(), number, is_kept=is_kept))

    def _erase(self, keys: list[BlockKey]) -> None:
        for key in keys:
            self.levels.erase(key)

    def _look(self, number: int, key: BlockKey | None, then: Callable[[], None]) -> None:
        is_good = False
        try:
            is_good = key is not None and self.levels.is_good(number, key)
        finally:
            self._post(partial(self._has_looked, number, key, then, is_good=is_good))

    def _has_looked(self, number: int, key: BlockKey | None, then: Callable[[], None], *, is_good: bool) -> None:
        if not is_good and key is not None and self._keys.get(number) == key:
            self.drop(number)
            self._tell(Lost(time.monotonic(), number))
        then()
