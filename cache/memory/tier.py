"""MemoryTier: blocks in a file in memory that all processes of the node can read; the layout is in layout.py."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from voxload.cache.codec import Codec
from voxload.cache.form import Form, checksum, copy_and_sum, kind_of, store_form
from voxload.cache.memory.arena import GRAIN, Arena, footprint
from voxload.cache.memory.handed import HandedMemory
from voxload.cache.memory.layout import Layout, Table, rows_for
from voxload.cache.memory.sealed import SealedMemory
from voxload.cache.memory.segment import Segment
from voxload.cache.protocol import BlockKey
from voxload.cache.warnonce import WarnOnce
from voxload.errors import InternalError
from voxload.readers.protocol import Volume
from voxload.readers.scratch import Bytes

Pages = Segment | SealedMemory | HandedMemory
"""Memory that one process writes and others read."""


@dataclass(slots=True, eq=False)
class _Entry:
    """A block, as its owner knows it: damage in the shared table does no harm here."""

    row: int
    piece: int
    """Where it begins in the arena."""
    form: Form
    data: Bytes
    users: int = 0
    """Threads that read it."""
    is_dropped: bool = False
    """Whether the last of them frees it."""


@dataclass(slots=True, eq=False)
class Room:
    """Where a block is made that is kept afterwards."""

    volume: Volume
    """To be filled; what it holds before is anything."""
    key: BlockKey | None = None
    """Set by who has filled it: the block's."""


class MemoryTier:
    """A tier in ``/dev/shm``, written by this process alone and read by all that attach to `path` (`AttachedMemory`).

    Or in memory without a name, see `is_named`.

    Safe to use from many threads at once; no lock is held while bytes are copied, summed or packed.

    Parameters
    ----------
    capacity
        Bytes of the file, all allocated at once, which takes some tenths of a second for each GiB: its table (about
        1/1000) and the blocks.
    job, rank
        Parts of the file's name, for people.
    codec
        What is done to blocks: ``none`` or ``bitshuffle-lz4``.
    rows
        Blocks that its table has room for; one for each 64 KiB by default.
    blocks
        How many there may be, where `rows` is not given: of smaller blocks than that the table has more rows.
    make
        Makes its memory: a `Segment`, which is found by its `path`, or `SealedMemory` or `HandedMemory`, which goes to
        others by its `descriptor` alone.

    Raises
    ------
    UsageError
        Where the capacity is too small for a block, or larger than what ``/dev/shm``, the machine or a cgroup allows.
    StorageError
        Where ``/dev/shm`` refuses the file.
    """

    def __init__(
        self,
        capacity: int,
        *,
        job: str = "job",
        rank: int = 0,
        codec: str | Codec = Codec.NONE,
        rows: int | None = None,
        blocks: int = 0,
        make: Callable[..., Pages] = Segment,
    ) -> None:
        self._codec = Codec.parse(codec)
        self._layout = Layout.within(capacity, rows_for(blocks, capacity) if rows is None else rows)
        self._segment: Pages = make(f"{job}-{rank}", size=capacity, head=self._layout.head())
        self._memory = self._segment.memory
        self._table = Table(self._layout, self._memory)
        self._arena = Arena(self._segment.usable - self._layout.data_at)
        self._entries: dict[bytes, _Entry] = {}
        self._pending: set[bytes] = set()
        self._leaving = 0  # blocks that were dropped, and that threads still read
        self._changed = threading.Condition()
        self._warnings = WarnOnce(f"memory tier {self.path}")
        self._is_closed = False

    @property
    def path(self) -> str:
        """The file, for `AttachedMemory`; it is there until `close`."""
        return self._segment.path

    @property
    def descriptor(self) -> int:
        """What `AttachedMemory` takes of a tier without a name; open until `close`. Raises InternalError of others."""
        if isinstance(self._segment, Segment):
            raise InternalError("memory tier", found=f"the file {self.path}", expected="one without a name")
        return self._segment.descriptor

    @property
    def memory(self) -> Bytes:
        """The file's bytes, to lay a window over that others read; nobody else may write there."""
        return self._memory

    @property
    def capacity(self) -> int:
        """Most bytes that it stores."""
        return self._layout.size

    @property
    def room(self) -> int:
        """Bytes of the capacity that blocks can have, in pieces of their `footprint`."""
        return self._arena.size

    @property
    def overhead(self) -> int:
        """Bytes of the capacity that blocks cannot have."""
        return self._layout.data_at

    @property
    def used(self) -> int:
        """Bytes that it stores now, the table included."""
        return self._layout.data_at + self._arena.used

    @staticmethod
    def footprint(nbytes: int) -> int:
        """Return the most that a block of `nbytes` takes of the room."""
        return footprint(nbytes)

    def put(self, key: BlockKey, block: Volume) -> bool:
        """Store a block; False where there is no room. Waits for another thread that stores the same one."""
        return self._entered(key.digest, lambda: self._write(key.digest, block))

    @contextmanager
    def room_for(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Iterator[Room | None]:
        """Give room for a block to a block of code that fills it, in place; None where there is none, or it is packed.

        Waits for threads that still read what was dropped. What is there when the code ends is kept under the key that
        it has set; otherwise, and where a block of that key is there already, the room is given back.
        """
        form = Form(kind_of(dtype, shape), Codec.NONE, nbytes := dtype.itemsize * prod(shape), nbytes)
        with self._changed:
            piece = None if self._codec.suits(dtype) else self._arena.allocate(nbytes)
            while piece is None and self._leaving and not self._codec.suits(dtype):
                self._changed.wait()
                piece = self._arena.allocate(nbytes)
        if piece is None:
            yield None
            return
        target = self._mapped(piece, nbytes)
        room, is_kept = Room(target.view(dtype).reshape(shape)), False
        try:
            yield room
            if room.key is not None:
                is_kept = self._keep(room.key.digest, piece, form, target)
        finally:
            if not is_kept:
                with self._changed:
                    self._arena.free(piece)
                    self._changed.notify_all()

    def _keep(self, digest: bytes, piece: int, form: Form, data: Bytes) -> bool:
        """Keep what lies in a piece; False where it is there already, or the table is full."""
        kept: list[_Entry] = []

        def summed() -> _Entry | None:
            with self._changed:
                row = self._table.take(digest)
            if row is not None:
                crc = checksum(data, form.seed(digest))
                kept.append(_Entry(row, piece, dataclasses.replace(form, crc=crc), data))
            return kept[0] if kept else None

        self._entered(digest, summed)
        return bool(kept)

    def _entered(self, digest: bytes, make: Callable[[], _Entry | None]) -> bool:
        """Enter what `make` returns, unless there is such a block; tell whether there is one now."""
        with self._changed:
            self._changed.wait_for(lambda: digest not in self._pending)
            if digest in self._entries:
                return True
            self._pending.add(digest)
        entry = None
        try:
            entry = make()
        finally:
            with self._changed:
                self._pending.discard(digest)
                if entry is not None:
                    self._entries[digest] = entry
                    self._table.publish(entry.row, digest, self._layout.data_at + entry.piece, entry.form)
                self._changed.notify_all()
        return entry is not None

    def _write(self, digest: bytes, block: Volume) -> _Entry | None:
        form, data = store_form(block, self._codec)
        with self._changed:
            piece = self._arena.allocate(form.stored)
            row = None if piece is None else self._table.take(digest)
            if piece is None or row is None:
                if piece is not None:
                    self._arena.free(piece)
                return None
        target = self._mapped(piece, form.stored)
        crc = copy_and_sum(data, target, form.seed(digest))
        return _Entry(row, piece, dataclasses.replace(form, crc=crc), target)

    def _mapped(self, piece: int, nbytes: int) -> Bytes:
        start = self._layout.data_at + piece
        self._segment.map_to(start + nbytes)
        return self._memory[start : start + nbytes]

    def get_into(self, key: BlockKey, out: Volume) -> bool:
        """Fill `out` with a block of its type and shape; a damaged one is dropped."""
        digest = key.digest
        with self._changed:
            entry = self._entries.get(digest)
            if entry is None or not entry.form.suits(out):
                return False
            entry.users += 1
        is_intact = False
        try:
            is_intact = entry.form.takes(digest, entry.data, out)
        finally:
            with self._changed:
                self._release(entry)
                if not is_intact:
                    self._forget(digest, entry)
        if not is_intact:
            self._warnings.tell(
                "damage",
                f"the block of {key.sample} {key.field} {key.box} does not agree with its checksum",
                remedy="have the memory of this node tested",
            )
        return is_intact

    def content(self, digest: bytes) -> bytes | None:
        """Return a copy of a block's bytes by the digest of its key; None where it is not there, damaged or packed."""
        with self._changed:
            entry = self._entries.get(digest)
            if entry is None or entry.form.codec is not Codec.NONE:
                return None
            entry.users += 1
        try:
            data = entry.data.tobytes()
            is_intact = checksum(np.frombuffer(data, np.uint8), entry.form.seed(digest)) == entry.form.crc
            return data if is_intact else None
        finally:
            with self._changed:
                self._release(entry)

    @contextmanager
    def lent(self, key: BlockKey, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Iterator[Volume | None]:
        """Give a block as it lies here to a block of code that only reads it; None where it has to be copied out.

        It is compared with its checksum first. Nobody but this process writes there, and its room is not given away
        before the code is done. It has to be copied out where it is not there, damaged, packed, or of another form.
        """
        digest = key.digest
        with self._changed:
            entry = self._entries.get(digest)
            is_plain = entry is not None and entry.form.codec is Codec.NONE and entry.form.is_of(dtype, shape)
            if entry is None or not is_plain:
                entry = None
            else:
                entry.users += 1
        if entry is None:
            yield None
            return
        try:
            is_intact = checksum(entry.data, entry.form.seed(digest)) == entry.form.crc
            view = entry.data.view(dtype).reshape(shape)
            view.flags.writeable = False
            yield view if is_intact else None
        finally:
            with self._changed:
                self._release(entry)

    def drop(self, key: BlockKey) -> None:
        """Forget a block; its room is free again when the last thread that reads it is done."""
        digest = key.digest
        with self._changed:
            self._changed.wait_for(lambda: digest not in self._pending)
            entry = self._entries.get(digest)
            if entry is not None:
                self._forget(digest, entry)

    def _forget(self, digest: bytes, entry: _Entry) -> None:
        """Take a block out of the table; called with the lock held."""
        if self._entries.get(digest) is not entry:
            return
        del self._entries[digest]
        self._table.clear(entry.row)
        entry.is_dropped = True
        if entry.users:
            self._leaving += 1
        else:
            self._free(entry)

    def _release(self, entry: _Entry) -> None:
        """Note that a thread has read a block; called with the lock held."""
        entry.users -= 1
        if entry.is_dropped and not entry.users:
            self._leaving -= 1
            self._free(entry)

    def _free(self, entry: _Entry) -> None:
        self._arena.free(entry.piece)
        self._changed.notify_all()

    def resize(self, capacity: int) -> list[bytes]:
        """Use no more than so many bytes of the memory from now on; return the digests of blocks that had to go.

        Waits for threads that read or write where bytes are given up. Raises StorageError, and changes nothing, where
        the system does not give what is to be used beyond what was; InternalError of memory that cannot be resized.
        """
        if not isinstance(self._segment, HandedMemory):
            raise InternalError("memory tier", found=self.path, expected="memory that was handed over")
        end = max(0, min(capacity, self.capacity) - self._layout.data_at) // GRAIN * GRAIN
        self._segment.allocate(self._layout.data_at + end)
        gone: list[bytes] = []
        with self._changed:
            while self._arena.last > end:
                for digest, entry in list(self._entries.items()):
                    if entry.piece + footprint(entry.form.stored) > end:
                        self._forget(digest, entry)
                        gone.append(digest)
                if self._arena.last > end:
                    self._changed.wait()
            self._arena.resize(end)
            self._segment.give_back(self._layout.data_at + end)
        return gone

    def holds(self, key: BlockKey) -> bool:
        """Tell whether a block is there."""
        return key.digest in self._entries

    def wait_for(self, key: BlockKey, seconds: float) -> bool:
        """Wait until a block is there, at most so long; tell whether it is. Ends at once when the tier is closed."""
        digest = key.digest
        with self._changed:
            self._changed.wait_for(lambda: digest in self._entries or self._is_closed, seconds)
            return digest in self._entries

    def close(self) -> None:
        """Remove the file: blocks go with the tier, though processes that are attached can still read theirs."""
        with self._changed:
            self._is_closed = True
            self._entries.clear()
            self._changed.notify_all()
        del self._memory, self._table
        self._segment.close()
