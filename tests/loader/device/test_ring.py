"""Batches on a device: valid for as long as promised, in buffers that are used again, in the order that was drawn.

The device is the CPU, through the code that serves CUDA too: buffers, events and copies, of which only the last differ.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import voxload
from tests.support import processes
from voxload.data.layout import FieldLayout
from voxload.errors import DataError, UsageError
from voxload.loader.batch import Batch, Foreseen, stacked
from voxload.loader.device import batches as device_batches
from voxload.loader.device.batches import DeviceBatches
from voxload.loader.device.copiers import Event, HostCopier
from voxload.loader.device.ring import DeviceRing
from voxload.loader.reading.batch_read import BatchRead
from voxload.loader.reading.batch_reads import BatchReads, Pending
from voxload.loader.reading.staging import BatchLayout, StagingRing
from voxload.readers.protocol import ReadCost

LAYOUT = BatchLayout(2, (FieldLayout((3, 4, 4, 4), np.dtype("i2")), FieldLayout((1, 4, 4, 4), np.dtype("u4"))))


class LateEvent:
    """An event that happens when it is told to."""

    def __init__(self) -> None:
        self.has_happened = threading.Event()

    def query(self) -> bool:
        """See Event."""
        return self.has_happened.is_set()

    def synchronize(self) -> None:
        """See Event."""
        assert self.has_happened.wait(processes.LIMIT)


class LateCopier(HostCopier):
    """A device whose copies are made at once and end when they are told to, and whose consumer's work never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[LateEvent] = []
        self.log: list[tuple[str, Any]] = []

    def copy(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], *, after: Event | None) -> Event:
        """See Copier."""
        super().copy(pairs, after=None)
        self.copies.append(LateEvent())
        self.log.append(("copy", after))
        return self.copies[-1]

    def hand_over(self, tensors: Iterable[torch.Tensor], event: Event) -> None:
        """See Copier."""
        super().hand_over(tensors, event)
        self.log.append(("hand over", event))

    def used(self) -> Event:
        """See Copier."""
        self.log.append(("used", event := LateEvent()))
        return event

    def end(self) -> None:
        """Let all copies end that have begun."""
        for event in self.copies:
            event.has_happened.set()


class Host:
    """Batches of slots, some of which are late, and some of which are errors."""

    def __init__(self, given: Iterable[Batch | Exception], *, late: frozenset[int] = frozenset()) -> None:
        self._left = deque(enumerate(given))
        self._late = late
        self.taken = 0
        self.seconds_on_device = 0.0
        self.asked = 0

    def ready(self) -> bool:
        """See Batches."""
        return not self._left or self._left[0][0] not in self._late

    def foreseen(self) -> Foreseen | None:
        """See Batches."""
        found = self._left[0][1] if self._left else None
        return None if isinstance(found, Exception) else Foreseen(found.indices if found else None)

    def next(self) -> Batch | None:
        """See Batches."""
        self.asked += 1
        if not self._left:
            return None
        self.taken += 1
        _, found = self._left.popleft()
        if isinstance(found, Exception):
            raise found
        return found


def _batch(seed: int, count: int = 2, targets: bool = True) -> Batch:
    rng = np.random.default_rng(seed)
    volumes = [rng.integers(0, 999, (count, *field.shape)).astype(field.dtype) for field in LAYOUT.fields]
    values = torch.from_numpy(rng.random((count, 2), np.float32)) if targets else None
    return Batch(tuple(range(count)), tuple(map(torch.from_numpy, volumes)), values, ReadCost())


def _blocks(batch: Batch) -> list[torch.Tensor]:
    return [stacked(volume) for volume in batch.volumes]


def _equal(found: Batch, expected: Batch) -> bool:
    pairs = zip(_blocks(found), _blocks(expected), strict=True)
    same = all(one.dtype == other.dtype and torch.equal(one, other) for one, other in pairs)
    if expected.targets is None or found.targets is None:
        return same and found.targets is expected.targets
    return same and torch.equal(found.targets, expected.targets)


def _ring(keep: int, copier: HostCopier | None = None) -> DeviceRing:
    return DeviceRing(copier or HostCopier(), LAYOUT, keep=keep, budget=2**20)


def _drain(batches: DeviceBatches) -> Iterator[Batch]:
    while (batch := batches.next()) is not None:
        yield batch


@given(
    counts=st.lists(st.integers(1, 2), max_size=9),
    late=st.frozensets(st.integers(0, 8)),
    keep=st.integers(1, 4),
    epochs=st.integers(1, 3),
)
def test_the_last_batches_are_intact(counts: list[int], late: frozenset[int], keep: int, epochs: int) -> None:
    """The last `keep` batches are whole whatever comes late, over the ends of epochs too, in `keep` + 1 buffers."""
    ring, last = _ring(keep), deque[tuple[Batch, Batch]](maxlen=keep)
    addresses = set()
    for epoch in range(epochs):
        given = [_batch(epoch * 10 + place, count, targets=epoch < 2) for place, count in enumerate(counts)]
        host = Host(given, late=late)
        batches = DeviceBatches(host, ring)
        for place, found in enumerate(_drain(batches)):
            last.append((found, given[place]))
            assert all(_equal(*pair) for pair in last)
            assert batches.taken == place + 1
            addresses.add(_blocks(found)[0].data_ptr())
        assert batches.is_over
        assert batches.taken == len(given)
        assert batches.next() is None
    assert len(addresses) <= keep + 1
    if epochs * len(counts) > 2 * keep + 2:
        assert len(addresses) == keep + 1


def test_the_next_batch_is_copied_ahead_if_it_is_there() -> None:
    """With a batch the next one is fetched, unless the host would have to wait for it."""
    host = Host([_batch(seed) for seed in range(4)], late=frozenset({2}))
    batches = DeviceBatches(host, _ring(1))
    asked = [(host.asked, batches.taken) for _ in _drain(batches)]
    assert asked == [(2, 1), (2, 2), (4, 3), (5, 4)]  # the end is fetched ahead as well


def test_copies_and_consumer_wait_for_each_other_by_events() -> None:
    """A batch is handed over behind its copy; a buffer is filled again behind its consumer's work."""
    copier = LateCopier()
    batches = DeviceBatches(Host([_batch(seed) for seed in range(4)]), _ring(1, copier))
    assert sum(1 for _ in _drain(batches)) == 4
    words = [word for word, _ in copier.log]
    # Two buffers are filled at once; from then on one comes back, the other is handed out, and the first is filled.
    assert words == ["copy", "hand over", "copy", *["used", "hand over", "copy"] * 2, "used", "hand over", "used"]
    used = [event for word, event in copier.log if word == "used"]
    assert [after for word, after in copier.log if word == "copy"] == [None, None, used[0], used[1]]
    assert [event for word, event in copier.log if word == "hand over"] == copier.copies
    assert not any(event.query() for event in (*used, *copier.copies))  # the host waited for nothing
    copier.end()


def test_a_host_batch_is_held_until_its_copy_ends() -> None:
    """Slots are not read into while they are copied from, and come back as soon as that is over."""
    copier = LateCopier()
    given = [_batch(seed) for seed in range(3)]
    watched = [[volume.untyped_storage()._cdata for volume in _blocks(batch)] for batch in given]
    held = deque(given)
    host = Host(iter(given))
    del given
    batches = DeviceBatches(host, _ring(1, copier))
    under_way = batches._under_way
    assert batches.next() is not None
    held.clear()
    assert len(under_way.copies) == 2
    assert [_blocks(one)[0].untyped_storage()._cdata for _, one in under_way.copies] == [watched[0][0], watched[1][0]]
    copier.copies[0].has_happened.set()
    assert batches.next() is not None
    assert len(under_way.copies) == 2  # the second and the third
    copier.end()
    assert batches.next() is not None
    assert not under_way.copies


def test_waiting_for_the_device_is_no_wait_for_storage() -> None:
    """The time in which copies behind the consumer's own work are waited for is told apart, and is all that is."""
    copier = LateCopier()
    batches = DeviceBatches(Host([_batch(0), _batch(1)], late=frozenset({1})), _ring(1, copier))
    assert batches.next() is not None
    before = batches.seconds_on_device
    timer = threading.Timer(0.05, copier.end)
    timer.start()
    assert batches.next() is not None
    timer.join()
    assert batches.seconds_on_device > before
    copier.end()


class Lagging(HostCopier):
    """A device that gets to a copy only when it is waited for, and then takes until nothing is read any more."""

    def __init__(self, settle: Callable[[], object]) -> None:
        super().__init__()
        self.under_way = 0
        self._settle = settle

    def copy(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], *, after: Event | None) -> Event:
        """See Copier."""
        super().copy(pairs, after=after)
        self.under_way += 1
        return _Waited(self)

    def reach(self) -> None:
        """Get to a copy."""
        self._settle()
        self.under_way -= 1


class _Waited:
    def __init__(self, device: Lagging) -> None:
        self._device = device

    def query(self) -> bool:
        return False

    def synchronize(self) -> None:
        self._device.reach()


def test_a_consumer_ahead_of_its_device_waits_for_one_copy_at_a_time(
    data: voxload.VolumeDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No slot is made while others are copied from; the device keeps work while what comes back is read into."""
    begun: list[BatchRead] = []
    begin = BatchReads.begin_in

    def noted(reads: BatchReads, *words: Any, **more: Any) -> Pending:
        begun.append((pending := begin(reads, *words, **more)).read)
        return pending

    def settle() -> None:
        """Wait until threads that were told of a slot have looked for it, and all that they began is read."""
        known = -1
        while known != len(begun):
            known = len(begun)
            both = threading.Barrier(2)
            wait([pool.submit(both.wait, processes.LIMIT) for _ in range(2)], processes.LIMIT)
            assert all(read.wait(processes.LIMIT) for read in begun)

    device = Lagging(settle)
    monkeypatch.setattr(BatchReads, "begin_in", noted)
    monkeypatch.setattr(StagingRing, "replace", lambda _: pytest.fail("a slot beyond the ring"))
    monkeypatch.setattr(device_batches, "copier_to", lambda _: device)
    loader = voxload.DataLoader(data, 1, device="cpu", num_workers=2, prefetch_factor=2)
    batches = iter(loader)
    pool = loader._pipeline._ahead.reads._pool  # type: ignore[union-attr]
    under_way = []
    for _ in batches:
        settle()  # storage keeps up with the loop
        under_way.append(device.under_way)
    del batches
    loader.close()
    slots = 6  # two threads read two batches ahead each; one more is consumed and one copied from
    assert max(under_way) == slots
    assert min(under_way[4:]) == slots - 1  # once all are under way


def test_a_dropped_iterator_waits_for_its_copies_and_gives_its_buffers_back() -> None:
    """What an abandoned epoch had fetched ahead is free for the next one, once it is copied."""
    copier = LateCopier()
    ring = _ring(2, copier)
    batches = DeviceBatches(Host([_batch(seed) for seed in range(5)]), ring)
    first = batches.next()
    assert first is not None
    release = threading.Timer(0, copier.end)
    release.start()
    del batches
    gc.collect()
    release.join()
    given = [_batch(10 + seed) for seed in range(5)]
    for place, found in enumerate(_drain(DeviceBatches(Host(given), ring))):
        copier.end()
        assert _equal(found, given[place])
        if place == 0:
            assert _equal(first, _batch(0))


def test_errors_come_in_their_place() -> None:
    """What fetching ahead raises is raised when its batch is asked for, once, and later batches are unharmed."""
    given: list[Batch | Exception] = [
        _batch(0),
        DataError("one"),
        _batch(2),
        DataError("three"),
        DataError("four"),
        _batch(5),
    ]
    batches = DeviceBatches(Host(given, late=frozenset({4})), _ring(1))
    found: list[str] = []
    while True:
        try:
            batch = batches.next()
        except DataError as error:
            found.append(str(error))
            continue
        finally:
            taken = batches.taken
        if batch is None:
            break
        found.append("batch")
        assert taken == len(found)
    assert found == ["batch", "one", "batch", "three", "four", "batch"]


def test_a_batch_that_no_buffer_has_room_for_is_refused() -> None:
    """What is smaller than foreseen fits; what is larger is an error that says so, and the next batch is unharmed."""

    def counts(*shape: int) -> Batch:
        return Batch((0,), (torch.ones(shape, dtype=torch.int16),) * 2, None, ReadCost())

    given = [counts(1, 3, 2, 2, 2), counts(2, 3, 4, 4, 5), counts(1, 2, 4, 4, 4)]
    batches = DeviceBatches(Host(given), _ring(1))
    found = batches.next()
    assert found is not None
    assert _equal(found, given[0])
    with pytest.raises(UsageError, match=r"found a batch of torch.int16 \(2, 3, 4, 4, 5\)"):
        batches.next()
    found = batches.next()
    assert found is not None
    assert _equal(found, given[2])


def test_a_budget_bounds_the_buffers(caplog: pytest.LogCaptureFixture) -> None:
    """The buffers are counted before they are made, and what they take is logged."""
    assert LAYOUT.nbytes == 2 * 3 * 64 * 2 + 2 * 64 * 4
    with caplog.at_level(logging.INFO, "voxload.loader.device"):
        assert DeviceRing(HostCopier(), LAYOUT, keep=2, budget=3 * LAYOUT.nbytes).nbytes == 3 * LAYOUT.nbytes
    assert caplog.messages == ["3 buffers of 1.25 KiB on cpu"]
    with pytest.raises(UsageError, match=r"expected 5 KiB or more for 3 batches that are kept and the next one"):
        DeviceRing(HostCopier(), LAYOUT, keep=3, budget=4 * LAYOUT.nbytes - 1)
