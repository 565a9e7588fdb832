"""BatchRead: read by threads sample by sample; whole, or the first error, and then nothing is held."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.support import processes
from voxload.data.dataset import VolumeDataset
from voxload.data.known_samples import KnownSample, ReadSample
from voxload.data.layout import FieldLayout
from voxload.loader.batch import Batch
from voxload.loader.reading.batch_read import BatchPlan, BatchRead
from voxload.loader.reading.sample_reads import SpareBytes
from voxload.readers.protocol import ReadCost

LAYOUT = (FieldLayout((1, 2, 2, 2), np.dtype(np.int16)),)
LIMIT = processes.LIMIT


class Samples:
    """A data set whose samples are their number everywhere; some wait to be let through, and some fail."""

    def __init__(
        self, *, gated: tuple[int, ...] = (), failing: tuple[int, ...] = (), error: type[BaseException] = ValueError
    ) -> None:
        self.gates = {index: threading.Event() for index in gated}
        self.begun = {index: threading.Event() for index in gated}
        self.failing, self._error = failing, error

    def layout(self, index: int) -> tuple[FieldLayout, ...]:
        """See VolumeDataset."""
        del index
        return LAYOUT

    def read_into(self, index: int, volumes: Any, *, epoch: int, repeat: int) -> ReadCost:
        """See VolumeDataset."""
        del epoch, repeat
        if index in self.gates:
            self.begun[index].set()
            assert self.gates[index].wait(LIMIT)
        if index in self.failing:
            raise self._error(f"sample {index}")
        volumes[0][...] = index
        return ReadCost(1, 10, 10)

    def read_targets(self, index: int) -> torch.Tensor:
        """See VolumeDataset."""
        return torch.tensor([float(index)])

    def knows(self, indices: tuple[int, ...]) -> bool:
        """See VolumeDataset; each sample is read as if it were new."""
        del indices
        return False

    def read_first(
        self, index: int, room: Callable[[tuple[FieldLayout, ...]], Any], *, epoch: int, repeat: int
    ) -> tuple[tuple[FieldLayout, ...], ReadSample | None]:
        """See VolumeDataset."""
        layout = self.layout(index)
        volumes = room(layout)
        cost = self.read_into(index, volumes, epoch=epoch, repeat=repeat)
        return layout, ReadSample(volumes, cost, self.read_targets(index))


class Known(Samples):
    """Samples that are all known: by one call, or, where they are `stale`, one by one after all."""

    def __init__(self, *, is_stale: bool = False, **how: Any) -> None:
        super().__init__(**how)
        self.calls: list[tuple[int, ...]] = []
        self._is_stale = is_stale

    def knows(self, indices: tuple[int, ...]) -> bool:
        """See VolumeDataset."""
        return len(indices) > 1

    def read_again(
        self, indices: tuple[int, ...], arrays: list[Any], *, epoch: int, repeats: Sequence[int]
    ) -> list[KnownSample] | None:
        """See VolumeDataset."""
        assert (epoch, repeats) == (0, (0,) * len(indices))
        self.calls.append(indices)
        if self._is_stale:
            return None
        for place, index in enumerate(indices):
            self.read_into(index, [array[place] for array in arrays], epoch=0, repeat=0)
        return [
            KnownSample((), (), is_padded=False, cost=ReadCost(1, 10, 10), targets=self.read_targets(index))
            for index in indices
        ]


def _read(samples: Samples, *indices: int, slot: npt.NDArray[np.int16] | None = None) -> BatchRead:
    arrays = [np.zeros((len(indices), *LAYOUT[0].shape), np.int16) if slot is None else slot]
    plan = BatchPlan(indices, 0, (0,) * len(indices))
    source = cast("VolumeDataset", samples)
    return BatchRead(plan, source, cast("Any", arrays), fits=True, layout=LAYOUT, room=SpareBytes(0))


@contextmanager
def _running(read: BatchRead, threads: int = 2) -> Iterator[None]:
    """Have threads run it, and end with them."""
    numbers = queue.SimpleQueue[int]()
    for number in range(len(read.plan.indices)):
        numbers.put(number)

    def run() -> None:
        with suppress(queue.Empty):
            while True:
                read.read(numbers.get_nowait())

    own = [threading.Thread(target=run) for _ in range(threads)]
    for thread in own:
        thread.start()
    yield
    for thread in own:
        thread.join(LIMIT)
        assert not thread.is_alive()


def test_a_batch_is_whole_and_made_by_who_read_last() -> None:
    """Blocks, targets and costs, in the order of its samples."""
    read = _read(Samples(), 3, 1, 2)
    with _running(read):
        assert read.wait(LIMIT)
    batch = read.taken()
    assert isinstance(batch, Batch)
    assert batch.targets is not None
    assert batch.targets.flatten().tolist() == [3, 1, 2]
    (volumes,) = cast("tuple[torch.Tensor]", batch.volumes)
    assert volumes.amax((1, 2, 3, 4)).tolist() == volumes.amin((1, 2, 3, 4)).tolist() == [3, 1, 2]
    assert batch.cost == ReadCost(3, 30, 30)
    assert read.is_quiet


def test_the_first_samples_error_counts() -> None:
    """Not the one that came first, while an earlier sample is on its way; but at once where a later one hangs."""
    samples = Samples(gated=(0,), failing=(0, 1))
    read = _read(samples, 0, 1)
    with _running(read):
        assert samples.begun[0].wait(LIMIT)
        samples.gates[0].set()
    with pytest.raises(ValueError, match="sample 0"):
        read.taken()
    samples = Samples(gated=(1,), failing=(0,))
    read = _read(samples, 0, 1)
    with _running(read):
        assert samples.begun[1].wait(LIMIT)
        assert read.wait(LIMIT)
        with pytest.raises(ValueError, match="sample 0"):
            read.taken()
        assert not read.is_quiet
        read.cancel()
        samples.gates[1].set()
        assert read.wait_quiet(LIMIT)


def test_what_is_cancelled_is_read_no_more() -> None:
    """What is being read is waited for; its slot is quiet then, though samples are left."""
    samples, slot = Samples(gated=(0,)), np.zeros((3, *LAYOUT[0].shape), np.int16)
    read = _read(samples, 0, 1, 2, slot=slot)
    with _running(read, threads=1):
        assert samples.begun[0].wait(LIMIT)
        read.cancel()
        assert not read.is_quiet
        assert not read.wait_quiet(0)
        samples.gates[0].set()
        assert read.wait_quiet(LIMIT)
    assert slot[1:].max() == 0
    assert not read.is_made


def test_a_sample_that_nobody_will_read_fails() -> None:
    """As when the pool's threads end; a batch that is there stays so."""
    read = _read(Samples(), 0)
    read.fail()
    assert read.wait(0)
    with pytest.raises(CancelledError):
        read.taken()
    assert read.is_quiet
    read = _read(Samples(), 0)
    read.read(0)
    read.fail()
    assert isinstance(read.taken(), Batch)


@pytest.mark.parametrize("failing", [(), (1,)])
def test_a_thread_holds_nothing_of_a_batch_that_is_there(failing: tuple[int, ...]) -> None:
    """Neither slot nor data set: what the consumer gives back is free at once, though the thread has not gone on."""
    samples = Samples(failing=failing)
    array = np.zeros((2, *LAYOUT[0].shape), np.int16)
    read = _read(samples, 0, 1, slot=array)
    seen: list[bool] = []
    slot, source = weakref.ref(array), weakref.ref(samples)
    del samples, array
    tell: Callable[[], None] = read._changed.notify_all

    def notified() -> None:
        if read.is_made:
            read._batch = read._error = None
            seen.append(slot() is None and source() is None)
        tell()

    read._changed.notify_all = notified  # type: ignore[method-assign]
    read.read(0)
    read.read(1)
    assert seen == [True]


def test_a_batch_of_nothing_is_there() -> None:
    """It waits for nobody."""
    batch = _read(Samples()).taken()
    assert isinstance(batch, Batch)
    assert batch.indices == ()


def test_known_samples_come_by_one_call() -> None:
    """One task makes the whole batch, whoever does it first; the others find nothing to do."""
    samples = Known()
    read = _read(samples, 3, 1, 2)
    assert read.tasks == 1
    with _running(read):
        assert read.wait(LIMIT)
    read.help()
    assert samples.calls == [(3, 1, 2)]
    batch = read.taken()
    assert isinstance(batch, Batch)
    assert batch.targets is not None
    assert batch.targets.flatten().tolist() == [3, 1, 2]
    assert [int(volume.amax()) for volume in cast("tuple[torch.Tensor]", batch.volumes)[0]] == [3, 1, 2]
    assert batch.cost == ReadCost(3, 30, 30)
    assert read.is_quiet


def test_who_waits_reads_what_nobody_has_begun() -> None:
    """In its own thread; not what is under way, nor what another process has."""
    samples = Known(gated=(1,))
    read = _read(samples, 1, 2)
    with _running(read, threads=1):
        assert samples.begun[1].wait(LIMIT)
        read.help()
        assert not read.is_made
        assert read.hand_over() is None
        samples.gates[1].set()
    assert samples.calls == [(1, 2)]
    assert read.pop() is not None
    read = _read(samples, 1, 2)
    assert read.hand_over() is not None
    read.help()
    assert len(samples.calls) == 1
    assert read.take_back()
    read.help()
    assert len(samples.calls) == 2
    assert read.pop() is not None
    read = _read(Samples(), 1, 2)
    read.help()
    assert not read.is_made


@pytest.mark.parametrize("failing", [(), (2,)])
def test_known_samples_whose_files_changed_are_read_one_by_one(failing: tuple[int, ...]) -> None:
    """By whoever came upon that; an error among them is the batch's."""
    array = np.zeros((3, *LAYOUT[0].shape), np.int16)
    samples = Known(is_stale=True, failing=failing)
    read = _read(samples, 1, 2, 3, slot=array)
    slot, source = weakref.ref(array), weakref.ref(samples)
    del samples, array
    read.read(0)
    assert read.is_made
    assert read.is_quiet
    if failing:
        with pytest.raises(ValueError, match="sample 2"):
            read.taken()
    else:
        batch = read.taken()
        assert isinstance(batch, Batch)
        assert batch.targets is not None
        assert batch.targets.flatten().tolist() == [1, 2, 3]
        del batch
    assert slot() is None
    assert source() is None


def test_who_waits_leaves_to_others_what_it_does_not_read_at_once() -> None:
    """Files that changed are for a thread; an interrupt is the loop's, which may ask again."""
    read = _read(Known(is_stale=True), 1, 2)
    assert not read.help()
    assert read.is_left
    assert read.is_quiet is False
    with _running(read):
        assert read.wait(LIMIT)
    assert isinstance(read.taken(), Batch)
    samples = Known(failing=(2,), error=KeyboardInterrupt)
    read = _read(samples, 1, 2)
    with pytest.raises(KeyboardInterrupt):
        read.help()
    assert read.is_left
    samples.failing = ()
    assert read.help()
    batch = read.pop()
    assert batch is not None
    assert batch.indices == (1, 2)
    samples.failing = (2,)
    read = _read(samples, 1, 2)
    with pytest.raises(KeyboardInterrupt):
        read.help()
    read.cancel()
    assert read.is_quiet


def test_a_large_sample_is_a_threads_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one call too, in which the loop would listen to nobody; several are read one by one."""
    monkeypatch.setattr("voxload.loader.reading.batch_read._AT_ONCE_BYTES", 1)
    monkeypatch.setattr(Known, "knows", lambda *_: True)
    samples = Known()
    read = _read(samples, 3)
    assert not read.help()
    assert not read.is_left
    read.read(0)
    assert samples.calls == [(3,)]
    assert read.pop() is not None
    assert _read(samples, 1, 2).tasks == 2


def test_an_error_of_the_call_is_the_batchs() -> None:
    """Nobody waits for a batch that is never made."""
    samples = Known(failing=(2,))
    read = _read(samples, 1, 2)
    read.read(0)
    with pytest.raises(ValueError, match="sample 2"):
        read.taken()
    assert read.is_quiet


def test_what_is_cancelled_during_the_call_is_no_batch() -> None:
    """Its slot is quiet when the call is over."""
    samples = Known(gated=(1,))
    read = _read(samples, 1, 2)
    with _running(read, threads=1):
        assert samples.begun[1].wait(LIMIT)
        read.cancel()
        assert not read.is_quiet
        samples.gates[1].set()
        assert read.wait_quiet(LIMIT)
    assert read.pop() is None
