"""Batches on a device: valid for as long as promised, in buffers that are used again, in the order that was drawn.

The device is the CPU, through the code that serves CUDA too: buffers, events and copies, of which only the last differ.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader as TorchLoader

import voxload
from voxload.dataset import FieldLayout
from voxload.errors import DataError, UsageError
from voxload.loader.batch import Batch, stacked
from voxload.loader.boarding import DeviceBatches
from voxload.loader.device import DeviceRing
from voxload.loader.staging import BatchLayout
from voxload.loader.streams import Event, HostCopier, parse_device
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
        assert self.has_happened.wait(30)


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
        self.asked = 0

    def ready(self) -> bool:
        """See Batches."""
        return not self._left or self._left[0][0] not in self._late

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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)  # the data set does not change
@given(
    batch_size=st.one_of(st.none(), st.integers(1, 5)),
    workers=st.integers(0, 2),
    keep=st.integers(1, 3),
    seed=st.integers(0, 9),
)
def test_a_loader_delivers_torchs_batches(
    data: voxload.VolumeDataset, batch_size: int | None, workers: int, keep: int, seed: int
) -> None:
    """On a device, order, values, types and containers are torch's, and the last `keep` batches stay."""
    ours = voxload.DataLoader(
        data,
        batch_size,
        shuffle=True,
        num_workers=workers,
        device="cpu",
        keep=keep,
        generator=torch.Generator().manual_seed(seed),
    )
    theirs: TorchLoader[Any] = TorchLoader(
        data, batch_size, shuffle=True, generator=torch.Generator().manual_seed(seed)
    )
    last = deque[tuple[Any, Any]](maxlen=keep)
    addresses = set()
    for _ in range(2):
        for pair in zip(ours, theirs, strict=True):
            last.append(pair)
            for found, expected in last:
                assert type(found) is type(expected)
                assert all(map(torch.equal, found, expected))
            addresses.add(pair[0][0].data_ptr())
    assert len(addresses) <= keep + 1


def test_transforms_and_collate_functions_act_on_the_device(data: voxload.VolumeDataset) -> None:
    """Transforms see what is on the device, results are the consumer's own; a collate_fn sees the same samples."""
    log = voxload.transforms.Compose(voxload.transforms.Log1p(), voxload.transforms.Cast(torch.bfloat16))
    found = [x for x, _ in voxload.DataLoader(data, 2, device="cpu", transform=log)]
    expected = [x.float().log1p().to(torch.bfloat16) for x, _ in TorchLoader(data, 2)]
    assert all(map(torch.equal, found, expected))
    sums = list(voxload.DataLoader(data, 3, device="cpu", collate_fn=_sums))
    assert sums == list(TorchLoader(data, 3, collate_fn=_sums))


def _sums(samples: list[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    return [float(x.sum() + y.sum()) for x, y in samples]


def test_iterators_side_by_side_have_buffers_of_their_own(data: voxload.VolumeDataset) -> None:
    """Two epochs of one loader under way at once do not overwrite each other's batches."""
    loader = voxload.DataLoader(data, 2, device="cpu")
    whole = [x for x, _ in TorchLoader(data, 2)]
    for place, ((first, _), (second, _)) in enumerate(zip(loader, loader, strict=True)):
        assert torch.equal(first, whole[place])
        assert torch.equal(second, whole[place])


def test_a_cache_delivers_on_a_device_too(data: voxload.VolumeDataset) -> None:
    """Batches that are fetched ahead by a plan come through the same buffers."""
    loader = voxload.DataLoader(data, 2, device="cpu", cache=voxload.Cache(memory="1MiB"))
    for _ in range(2):
        for (found, _), (expected, _) in zip(loader, TorchLoader(data, 2), strict=True):
            assert torch.equal(found, expected)
    loader.close()


def test_an_unreadable_sample_is_an_error_in_its_place(folder: Path, tmp_path: Path) -> None:
    """The error of a broken sample surfaces when its batch is asked for, and later batches are unharmed."""
    for index in range(3):
        (tmp_path / f"u{index}.h5").write_bytes((folder / f"u{index:02}.h5").read_bytes())
    with h5py.File(tmp_path / "u1.h5", "r+") as file:
        del file["full"]
        file.create_dataset("full", (8, 8, 8, 4), "<i2", chunks=(4, 4, 4, 4))  # of which no chunk was ever written
    data = voxload.VolumeDataset(f"{tmp_path}/*.h5", fields={"x": "full"}, axes="DHWC")
    batches = iter(voxload.DataLoader(data, 1, device="cpu"))
    assert torch.equal(next(batches)[0][0], data[0][0])
    with pytest.raises(DataError, match=r"u1\.h5"):
        next(batches)
    assert torch.equal(next(batches)[0][0], data[2][0])
    with pytest.raises(StopIteration):
        next(batches)
    data.close()


@pytest.mark.usefixtures("no_leaks")
def test_an_abandoned_epoch_leaves_nothing(folder: Path) -> None:
    """Leaving a loop half-way stops its threads and files, and the next epoch is whole."""
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC")
    loader = voxload.DataLoader(data, 2, device="cpu")
    for _ in loader:
        break
    for (found,), (expected,) in zip(loader, TorchLoader(data, 2), strict=True):
        assert torch.equal(found, expected)
    del loader
    gc.collect()
    data.close()


def test_arguments_are_checked(data: voxload.VolumeDataset) -> None:
    """Devices that are not there, numbers that make no sense and other data sets are refused, with what to do."""
    assert parse_device(None) is None
    assert parse_device("cpu") == torch.device("cpu")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"device": "meta"}, "expected None, 'cpu' or a CUDA device"),
        ({"device": "no such thing"}, "expected None, 'cpu' or a CUDA device"),
        ({"device": f"cuda:{torch.cuda.device_count()}"}, "device: found cuda:"),
        ({"device": torch.cuda.device_count()}, "device: found cuda:"),
        ({"device": "cpu", "keep": 0}, "keep: found 0"),
    ]
    for arguments, message in cases:
        with pytest.raises(UsageError, match=message):
            voxload.DataLoader(data, **arguments)
    with pytest.raises(UsageError, match="data set of another kind"):
        voxload.DataLoader([1, 2], device="cpu")
    with pytest.raises(UsageError, match="raise staging, or lower keep"):
        next(iter(voxload.DataLoader(data, device="cpu", keep=9, staging=3 * 4 * 8**3 * 2)))
    loader = voxload.DataLoader(data, device="cpu", keep=2)
    assert (loader.device, loader.keep) == ("cpu", 2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_cuda_device(data: voxload.VolumeDataset) -> None:
    """Batches are torch's on a GPU too, from pinned slots, the last ones whole while the next are copied."""
    loader = voxload.DataLoader(data, 2, device="cuda", keep=2)
    last = deque[tuple[torch.Tensor, torch.Tensor]](maxlen=2)
    for _ in range(3):
        for (x, y), (a, b) in zip(loader, TorchLoader(data, 2), strict=True):
            assert x.is_cuda
            assert torch.equal(y.cpu(), b)
            last.append((x, a))
            assert all(torch.equal(found.cpu(), expected) for found, expected in last)
