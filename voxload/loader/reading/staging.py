"""StagingRing: a bounded set of reused host buffers, one batch's blocks in each.

Rules of this file:

1. A slot is free, or being filled, or lent. It is lent as tensors, and it comes back by itself when the last
   tensor that looks into it is gone: a batch stays whole for as long as anybody holds it.
2. The ring never waits. When no slot is free, `acquire` says so, and the caller decides.
3. A consumer that keeps batches for good keeps their memory for good, as with any loader. `replace` then makes
   a new slot for the one that will not come back soon; the budget bounds what the loader itself holds.
4. A slot that is copied from asynchronously stays lent until the copy has ended: whoever copies holds its tensors.
"""

from __future__ import annotations

import queue
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from voxload.data.layout import FieldLayout
from voxload.errors import UsageError
from voxload.loader.reading.pinning import PageLock, host_memory, locked_bytes
from voxload.readers.protocol import Volume
from voxload.units import format_bytes

ALIGNMENT = 64
"""Fields start at cache lines: threads that fill neighbouring ones do not share one, and whole lines are streamed."""
Memory = Callable[[int, PageLock | None], npt.NDArray[np.uint8]]
"""Makes so many bytes, page-aligned and pinned by a lock."""
LEAST_SLOTS = 2
"""One to consume and one to fill: with fewer nothing is read ahead."""


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """Shape of one slot: a batch of blocks for each field."""

    batch_size: int
    """Most samples in a batch."""
    fields: tuple[FieldLayout, ...]
    """Each field's block."""
    beside: int | None = None
    """Bytes behind them, an array of their own; None where there is none."""

    @property
    def offsets(self) -> tuple[int, ...]:
        """First byte of each field in the slot, and of what lies behind the last."""
        found = [0]
        for field in self.fields:
            size = self.batch_size * field.nbytes
            found.append(found[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
        return tuple(found)

    @property
    def nbytes(self) -> int:
        """Bytes of a slot."""
        return self.offsets[-1] + (self.beside or 0)

    def cut(self, memory: npt.NDArray[np.uint8]) -> list[Volume]:
        """Return each field's array of a slot's bytes."""
        found = []
        for field, offset in zip(self.fields, self.offsets, strict=False):
            shape = (self.batch_size, *field.shape)
            flat: npt.NDArray[Any] = memory[offset : offset + prod(shape) * field.dtype.itemsize]
            found.append(flat.view(field.dtype).reshape(shape))
        return found if self.beside is None else [*found, memory[self.offsets[-1] : self.nbytes]]


class _Watch(weakref.ref["npt.NDArray[np.uint8]"]):
    """Comes back by itself when the array that it refers to is gone, and brings its slot."""

    __slots__ = ("slot", "told")
    slot: Slot
    told: weakref.ref[npt.NDArray[np.uint8]] | None
    """Tells others of it."""


class Slot:
    """One buffer of the ring, cut into a ``(B, C, d, h, w)`` array per field."""

    def __init__(self, layout: BatchLayout, memory: npt.NDArray[np.uint8], ring: StagingRing) -> None:
        self.layout = layout
        self._ring = weakref.ref(ring)  # which has the slot: their memory goes with the ring, not with a collection
        self._memory = memory

    def arrays(self) -> list[Volume]:
        """Return the fields' arrays and lend the slot out until the last of them is gone.

        Every array, view and tensor made of them keeps `lease` alive: numpy's chain of bases ends at an array
        whose own base is no array, here the memoryview. The end of `lease` is thus the end of all of them.
        """
        lease = np.frombuffer(self._memory.data, np.uint8)
        ring = self._ring()
        if ring is not None:
            ring.lend(lease, self)
        return self.layout.cut(lease)


class StagingRing:
    """Slots of one layout within a budget; owned by the loader and used by the consumer's thread.

    Only the way back is open to all: the last holder of a batch may drop it in any thread.

    Parameters
    ----------
    layout
        Shape of a slot.
    budget
        Most bytes of all slots together.
    most
        Most slots, however large the budget.
    notify
        Called whenever a slot came back, with an object that is not its own: in any thread, be it in the middle of
        this very call in the same thread. It has to be one without Python, in which an interrupt would be raised: what
        a weak reference calls may raise nothing, and the interrupt would be lost.
    lock
        Pins the slots; None leaves them pageable.
    memory
        Makes the bytes of a slot.

    Raises
    ------
    UsageError
        When the budget does not hold two slots; nothing is allocated then.
    StorageError
        When a slot cannot be pinned.
    """

    def __init__(
        self,
        layout: BatchLayout,
        *,
        budget: int,
        most: int,
        notify: Callable[[object], object] | None = None,
        lock: PageLock | None = None,
        memory: Memory = host_memory,
    ) -> None:
        each = locked_bytes(layout.nbytes, lock)
        count = min(most, budget // max(each, 1))
        if count < LEAST_SLOTS:
            large = sorted(layout.fields, key=lambda field: -field.nbytes)[:1]
            what = [f"the largest {one.dtype} {one.shape}" for one in large]
            what += [f"{format_bytes(layout.beside)} for pieces"] if layout.beside else []
            raise UsageError(
                "staging budget",
                found=f"{format_bytes(budget)}",
                expected=f"{format_bytes(LEAST_SLOTS * each)} or more for two batches of {layout.batch_size} "
                f"blocks, {', '.join(what)}",
                remedy="raise staging, or lower batch_size",
            )
        self.layout = layout
        # SimpleQueue: its put may be called by a finaliser in the middle of another put.
        self._free: queue.SimpleQueue[Slot | _Watch] = queue.SimpleQueue()
        self._lent: dict[int, _Watch] = {}  # by identity: a reference has the hash of its array, which has none
        self._notify = notify
        self._surplus = 0
        self._lock = lock
        self._memory = memory
        self.slots = count
        self.spare = budget - count * layout.nbytes
        """Bytes of the budget that the slots leave."""
        # Pinning takes long, and is done before anything is read. Other slots are made when the first batches need
        # them: none of these waits for the others' pages.
        self._unmade = 0 if lock is not None else count
        for _ in range(count - self._unmade):
            self._free.put(self._new())

    def acquire(self) -> Slot | None:
        """Return a free slot, or None when all are in use; slots that were replaced meanwhile are dropped."""
        try:
            while self._surplus:
                self._next_free()
                self._surplus -= 1
            return self._next_free()
        except queue.Empty:
            if not self._unmade:
                return None
            self._unmade -= 1
            return self._new()

    @property
    def has_free(self) -> bool:
        """Whether `acquire` may find one."""
        return self._unmade > 0 or not self._free.empty()

    def replace(self) -> Slot:
        """Return a new slot in place of one whose batch the consumer keeps (rule 3)."""
        self._surplus += 1
        return self._new()

    def _next_free(self) -> Slot:
        """Return a slot that nobody has; raises queue.Empty."""
        found = self._free.get_nowait()
        if isinstance(found, Slot):
            return found
        del self._lent[id(found)]
        return found.slot

    def _new(self) -> Slot:
        return Slot(self.layout, self._memory(self.layout.nbytes, self._lock), self)

    def lend(self, lease: npt.NDArray[np.uint8], slot: Slot) -> None:
        """Lend a slot out until an array is gone; where the ring goes before it, nothing happens then."""
        told = None if self._notify is None else weakref.ref(lease, self._notify)  # called behind the younger one
        watch = _Watch(lease, self._free.put)
        watch.slot, watch.told = slot, told
        self._lent[id(watch)] = watch

    def give_back(self, slots: Sequence[Slot]) -> None:
        """Return slots that were acquired and never lent."""
        for slot in slots:
            self._free.put(slot)
