"""DeviceBatches: an epoch's batches on the device, the next one copied while the consumer works on this one.

Rules of this file:

1. The host's batches are asked for by the consumer's thread only: whenever it asks for a batch, the next one is fetched
   too, if it is there already. Nothing waits for a batch that the consumer has not asked for.
2. What fetching ahead raises is raised in place of the batch that was fetched.
3. Before the consumer's thread waits for the storage, it waits for the copies under way: they may hold the slots that
   are to be read into. It waits for one after the other, for no longer than the storage needs: reads go on into each
   slot as it comes back, while the device still has the later batches to work on. A copy waits for the consumer's work
   on the batch before, so that this is no wait for storage: `seconds_on_device` has it.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, field
from time import perf_counter

import torch

from voxload.loader.batch import Batch, Batches, Foreseen
from voxload.loader.device.copiers import Event, copier_to
from voxload.loader.device.ring import DeviceRing, Filled
from voxload.loader.reading.staging import BatchLayout


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What came of asking the host for a batch."""

    found: Filled | Exception | None
    """None is the end of the epoch."""
    taken: int
    """Batches that the host had given then."""


@dataclass(slots=True)
class _UnderWay:
    """What an iterator leaves behind when it is dropped."""

    copies: deque[tuple[Event, Batch]] = field(default_factory=deque)
    """The ends of copies, and the host batches that they copy."""
    fetched: deque[_Fetched] = field(default_factory=deque)
    """The batch ahead, if it was fetched."""

    def release(self) -> None:
        """Let go of host batches that have been copied."""
        while self.copies and self.copies[0][0].query():
            self.copies.popleft()

    def land(self) -> float:
        """Wait for the oldest copy; return the seconds that it took."""
        start = perf_counter()
        self.copies[0][0].synchronize()
        self.copies.popleft()
        return perf_counter() - start


class DeviceBatches:
    """See Batches; each batch stays as it is until as many others were asked for as the ring keeps.

    Parameters
    ----------
    host
        The batches in staging slots.
    ring
        Buffers, which no other iterator in use has.
    """

    def __init__(self, host: Batches, ring: DeviceRing) -> None:
        self._host = host
        self._ring = ring
        self._under_way = _UnderWay()
        self.taken = 0
        self.seconds_on_device = 0.0
        self.is_over = False
        # A process that ends may leave copies alone: nobody reads what they write.
        weakref.finalize(self, _abandon, self._under_way, ring).atexit = False

    def ready(self) -> bool:
        """See Batches."""
        return bool(self._under_way.fetched) or self._host.ready()

    def next(self) -> Batch | None:
        """See Batches."""
        under_way = self._under_way
        self._ring.retire()
        under_way.release()
        if not under_way.fetched:
            self._fetch(is_awaited=True)
        fetched = under_way.fetched.popleft()
        self.taken, found = fetched.taken, fetched.found
        if isinstance(found, Exception):
            try:
                raise found
            finally:  # an error that is held by a frame that it holds itself would keep the iterator alive
                del fetched, found
        self.is_over = found is None
        if found is None:
            return None
        batch = self._ring.hand_out(found)
        self._fetch(is_awaited=False)
        return batch

    def foreseen(self) -> Foreseen | None:
        """See Batches."""
        if not self._under_way.fetched:
            return self._host.foreseen()
        found = self._under_way.fetched[0].found
        return None if isinstance(found, Exception) else Foreseen(None if found is None else found.batch.indices)

    def _fetch(self, *, is_awaited: bool) -> None:
        """Fetch the host's next batch and begin to copy it; unless it is awaited, only if it is there."""
        found: Filled | Exception | None
        try:
            if is_awaited:
                self._wait_for_slots()
            elif not self._host.ready():
                return
            found = self._begin_copy()
        except Exception as error:  # noqa: BLE001 - raised when its batch is asked for
            found = error
        self._under_way.fetched.append(_Fetched(found, self._host.taken))

    def _wait_for_slots(self) -> None:
        """Wait until the host's next batch is there, or no slot of it is copied from any more."""
        while self._under_way.copies and not self._host.ready():
            self.seconds_on_device += self._under_way.land()

    def _begin_copy(self) -> Filled | None:
        batch = self._host.next()
        if batch is None:
            return None
        filled = self._ring.fill(batch)
        self._under_way.copies.append((filled.event, batch))
        self._under_way.release()
        return filled


def _abandon(under_way: _UnderWay, ring: DeviceRing) -> None:
    """Give everything back that a dropped iterator had."""
    while under_way.copies:
        under_way.land()
    ring.take_back([one.found for one in under_way.fetched if isinstance(one.found, Filled)])
    under_way.fetched.clear()


class DeviceEpochs:
    """Brings one loader's epochs onto its device; used by one thread.

    Parameters
    ----------
    device
        Where batches go.
    keep
        Batches that stay valid.
    budget
        Most bytes of the buffers of one iterator.
    """

    def __init__(self, device: torch.device, *, keep: int, budget: int) -> None:
        self._device = device
        self._keep = keep
        self._budget = budget
        self._ring: DeviceRing | None = None
        self._user: weakref.ref[DeviceBatches] | None = None

    def batches(self, host: Batches, layout: BatchLayout) -> DeviceBatches:
        """Return an epoch on the device; one that begins while another is in use gets buffers of its own.

        Raises UsageError when the buffers do not fit the budget.
        """
        user = self._user() if self._user is not None else None
        if self._ring is None or (user is not None and not user.is_over):
            self._ring = DeviceRing(copier_to(self._device), layout, keep=self._keep, budget=self._budget)
        found = DeviceBatches(host, self._ring)
        self._user = weakref.ref(found)
        return found

    def close(self) -> None:
        """Give the buffers back; the next epoch makes new ones."""
        self._ring = None
