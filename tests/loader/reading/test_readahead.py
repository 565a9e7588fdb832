"""ReadAhead: nothing but torch's stream, read beyond the ends of epochs, in slots that stay as many as they were."""

from __future__ import annotations

import gc
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data import DataLoader as TorchLoader

import voxload
from tests.support import processes
from voxload.errors import UsageError
from voxload.loader.reading.staging import Slot, StagingRing

SAMPLES = 11
NUMBERS = TensorDataset(torch.arange(SAMPLES))


class Backwards(Sampler[int]):
    """A sampler that nobody knows."""

    def __iter__(self) -> Iterator[int]:
        yield from reversed(range(SAMPLES))


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _shared(seed: int) -> dict[str, Any]:
    """Return arguments of which two draw from one generator."""
    generator = _seeded(seed)
    return {"sampler": RandomSampler(NUMBERS, generator=generator), "generator": generator}


def _distributed(seed: int) -> dict[str, Any]:
    return {"sampler": DistributedSampler(NUMBERS, num_replicas=2, rank=1, seed=seed)}


ARGUMENTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "in order": lambda _: {},
    "list": lambda seed: {"sampler": [(seed + 3 * place) % SAMPLES - 2 for place in range(7)]},
    "sequential": lambda _: {"sampler": SequentialSampler(NUMBERS)},
    "shuffled": lambda _: {"shuffle": True},
    "shuffled by a generator": lambda seed: {"shuffle": True, "generator": _seeded(seed)},
    "random": lambda seed: {"sampler": RandomSampler(NUMBERS, generator=_seeded(seed))},
    "replaced": lambda seed: {
        "sampler": RandomSampler(NUMBERS, replacement=True, num_samples=8, generator=_seeded(seed))
    },
    "subset": lambda seed: {"sampler": SubsetRandomSampler([1, 4, 5, 9, 10], generator=_seeded(seed))},
    "weighted": lambda seed: {"sampler": WeightedRandomSampler(range(1, SAMPLES + 1), 9, generator=_seeded(seed))},
    "shared generator": _shared,
    "distributed": _distributed,
    "unknown": lambda _: {"sampler": Backwards()},
    "batches": lambda _: {"batch_sampler": _Fixed([[3, 1], [0], [7, 8], [2, 2]])},
}


class _Fixed(list[list[int]]):
    """Batches as a list that says how large they are."""

    batch_size = 2


@pytest.fixture
def data(folder: Path) -> Iterator[voxload.VolumeDataset]:
    """Yield samples of which the targets are the indices."""
    made = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC")
    made.read_targets = lambda index: torch.tensor([index % SAMPLES])  # type: ignore[method-assign]
    yield made
    made.close()


@pytest.fixture
def fixed_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that needs a slot beyond those of the ring: one that a thread lets go of this moment comes back."""

    def wait(ring: StagingRing) -> Slot:
        try:
            ring._free.put(ring._free.get(timeout=processes.LIMIT))
        except queue.Empty:
            pytest.fail("a slot beyond the ring")
        return ring._next_free()

    monkeypatch.setattr(StagingRing, "replace", wait)


def _make(kind: type[TorchLoader[Any]], data: Any, name: str, seed: int, **words: Any) -> TorchLoader[Any]:
    arguments = ARGUMENTS[name](seed)
    if "batch_sampler" in arguments:
        words.pop("batch_size", None)
    return kind(data, **arguments, **words)


def _samples(batch: Sequence[torch.Tensor]) -> list[int]:
    return [int(number) for number in batch[-1].flatten()]


def _states(loader: TorchLoader[Any]) -> list[bytes]:
    """Return what decides coming draws of all generators that a loader uses."""
    generators = [torch.default_generator, loader.generator, getattr(loader.sampler, "generator", None)]
    return [each.get_state().numpy().tobytes() for each in generators if each is not None]


def _run(loader: TorchLoader[Any], plan: Sequence[tuple[int, int]]) -> list[Any]:
    """Return all that can be seen of some epochs: how many batches are taken, and which epoch is set (-1: none)."""
    torch.manual_seed(5)
    seen: list[Any] = []
    for most, epoch in plan:
        if epoch >= 0 and isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        iterator = iter(loader)
        for _ in range(most):
            batch = next(iterator, None)
            seen.append(batch if batch is None else _samples(batch))
        seen.append(_states(loader))
    return seen


PLANS = st.lists(st.tuples(st.sampled_from([0, 1, 2, 3, 30]), st.integers(-1, 3)), min_size=1, max_size=5)


@pytest.mark.long
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])  # the data do not change
@given(name=st.sampled_from(sorted(ARGUMENTS)), batch_size=st.integers(1, 4), seed=st.integers(0, 9), plan=PLANS)
@pytest.mark.usefixtures("fixed_ring")
def test_any_epochs_equal_torchs(
    data: voxload.VolumeDataset, name: str, batch_size: int, seed: int, plan: list[tuple[int, int]]
) -> None:
    """Epochs left anywhere give torch's batches, leave replayable samplers' generators as torch does, and no slot more.

    The generator of a sampler that can be replayed is never ahead of torch's, however far is read.
    """
    theirs = _run(_make(TorchLoader, NUMBERS, name, seed, batch_size=batch_size), plan)
    ours = _run(_make(voxload.DataLoader, data, name, seed, batch_size=batch_size), plan)
    assert ours == theirs


@pytest.mark.few_cases(3)
@pytest.mark.parametrize("name", ["shuffled by a generator", "shared generator", "replaced", "unknown", "in order"])
@pytest.mark.parametrize("is_kept", [False, pytest.param(True, marks=pytest.mark.long)])
def test_threads_draw_as_far_ahead_as_torchs_processes(data: voxload.VolumeDataset, name: str, is_kept: bool) -> None:
    """With num_workers, samplers are drawn when torch's loader draws them for its worker processes."""
    plan = [(1, -1), (30, -1), (3, -1), (0, -1), (30, -1)]
    words = {"batch_size": 1, "num_workers": 1, "persistent_workers": is_kept}
    theirs = _run(_make(TorchLoader, NUMBERS, name, 3, **words), plan)
    ours = _run(_make(voxload.DataLoader, data, name, 3, **words), plan)
    assert ours == theirs


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])  # the data do not change
@given(
    name=st.sampled_from(sorted(ARGUMENTS)),
    seed=st.integers(0, 9),
    turns=st.lists(st.tuples(st.sampled_from(["iter", "next"]), st.integers(0, 2)), min_size=3, max_size=25),
)
def test_iterators_at_once_equal_torchs(
    data: voxload.VolumeDataset, name: str, seed: int, turns: list[tuple[str, int]]
) -> None:
    """Iterators of one loader that are used in turns each give what torch's would."""
    seen = []
    for kind, source in ((TorchLoader, NUMBERS), (voxload.DataLoader, data)):
        torch.manual_seed(5)
        loader = _make(kind, source, name, seed, batch_size=3)
        iterators = [iter(loader)] * 3
        found: list[Any] = []
        for act, which in turns:
            if act == "iter":
                iterators[which] = iter(loader)
            else:
                batch = next(iterators[which], None)
                found.append(batch if batch is None else _samples(batch))
        seen.append(found)
    assert seen[1] == seen[0]


class _Watched:
    """Counts reads of samples, and lets wait for them."""

    def __init__(self, data: voxload.VolumeDataset, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads: Counter[int] = Counter()
        self._changed = threading.Condition()
        self._real = data.read_into
        monkeypatch.setattr(data, "read_into", self._read)

    def wait(self, expected: dict[int, int]) -> None:
        """Wait until samples were read as often."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.reads == Counter(expected), 20), self.reads

    def _read(self, index: int, volumes: Any, **words: Any) -> Any:
        cost = self._real(index, volumes, **words)
        with self._changed:
            self.reads[index] += 1
            self._changed.notify_all()
        return cost


@pytest.mark.usefixtures("fixed_ring")
@pytest.mark.parametrize(("workers", "ahead"), [(0, 2), (2, 5)])
def test_the_next_epoch_is_read_before_this_one_ends(
    data: voxload.VolumeDataset, monkeypatch: pytest.MonkeyPatch, workers: int, ahead: int
) -> None:
    """The consumer of the last batch finds the next epoch's first ones read, and none of them is read twice.

    The consumer holds one slot; the others hold what comes.
    """
    watched = _Watched(data, monkeypatch)
    order = [0, 1, 2, 3, 4, 5, 6]
    loader = voxload.DataLoader(data, 1, sampler=order, num_workers=workers)
    for epoch in range(3):
        iterator = iter(loader)
        for index in order:
            batch = next(iterator)
            assert _samples(batch) == [index]
        watched.wait({index: epoch + 1 + (index < ahead) for index in order})
        assert next(iterator, None) is None


@pytest.mark.usefixtures("fixed_ring")
@pytest.mark.parametrize("workers", [0, 2])
def test_without_clairvoyance_nothing_is_read_before_its_epoch(
    data: voxload.VolumeDataset, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """All of the epoch at hand is read ahead, and nothing of the next one, though its order could be foreseen.

    Close waits for what has begun: whatever was read too early would be counted then.
    """
    watched = _Watched(data, monkeypatch)
    order = [0, 1, 2, 3, 4, 5, 6]
    loader = voxload.DataLoader(data, 1, sampler=order, num_workers=workers, clairvoyant=False)
    for epoch in range(3):
        iterator = iter(loader)
        assert [_samples(next(iterator)) for _ in order] == [[index] for index in order]
        watched.wait(dict.fromkeys(order, epoch + 1))
        assert next(iterator, None) is None
    loader.close()
    watched.wait(dict.fromkeys(order, 3))


def test_clairvoyance_of_loader_and_cache_agree(data: voxload.VolumeDataset) -> None:
    """A loader that may not use later orders refuses a cache that does, and what is neither yes nor no."""
    with pytest.raises(UsageError, match=r"say Cache\(clairvoyant=False\) too"):
        voxload.DataLoader(data, clairvoyant=False, cache=voxload.Cache(memory="1MiB"))
    with pytest.raises(UsageError, match="found 'no', expected True or False"):
        voxload.DataLoader(data, clairvoyant="no")  # type: ignore[arg-type]
    loader = voxload.DataLoader(data, clairvoyant=False, cache=voxload.Cache(memory="1MiB", clairvoyant=False))
    with pytest.raises(ValueError, match="clairvoyant attribute should not be set"):
        loader.clairvoyant = True


@pytest.mark.usefixtures("fixed_ring")
def test_what_was_foreseen_wrongly_is_dropped(data: voxload.VolumeDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator that is used between epochs, or a set_epoch, costs what was read in vain, and slots come back."""
    watched = _Watched(data, monkeypatch)
    generator, theirs = _seeded(1), _seeded(1)
    ours = voxload.DataLoader(data, 2, sampler=RandomSampler(NUMBERS, generator=generator))
    reference = TorchLoader(NUMBERS, 2, sampler=RandomSampler(NUMBERS, generator=theirs))
    for _ in range(3):
        for _ in range(2):
            assert [_samples(batch) for batch in ours] == [_samples(batch) for batch in reference]
        torch.rand(1, generator=generator)
        torch.rand(1, generator=theirs)
    assert watched.reads.total() >= 6 * SAMPLES


def test_an_error_of_a_sampler_is_raised_at_its_place(data: voxload.VolumeDataset) -> None:
    """Batches drawn before a sampler fails are delivered, whether it can be foreseen or not."""

    class Failing(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            yield from (4, 2)
            raise KeyError("the end")

    for sampler in (Failing(), [4, 2, 99]):
        iterator = iter(voxload.DataLoader(data, 1, sampler=sampler))
        assert [_samples(next(iterator)) for _ in range(2)] == [[4], [2]]
        with pytest.raises((KeyError, IndexError), match=r"the end|sample 99 of a data set of 11"):
            next(iterator)
        with pytest.raises(StopIteration):
            next(iterator)


def test_a_batch_that_was_late_is_there_when_asked_for_again(
    data: voxload.VolumeDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a time-out the same batch can be had, as of torch's loader."""
    release, real = threading.Event(), data.read_into

    def late(*args: Any, **words: Any) -> Any:
        release.wait(60)
        return real(*args, **words)

    monkeypatch.setattr(data, "read_into", late)
    iterator = iter(voxload.DataLoader(data, 1, num_workers=1, timeout=0.05))
    with pytest.raises(RuntimeError, match="timed out after"):
        next(iterator)
    release.set()
    monkeypatch.setattr(data, "read_into", real)
    found: list[int] = []
    while not found:
        try:
            found = _samples(next(iterator))
        except RuntimeError:  # on a machine that is busy
            continue
    assert found == [0]


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("is_closed", [False, True])
def test_threads_end_with_the_loader(folder: Path, is_closed: bool) -> None:
    """One pool serves all epochs; it ends with close(), after which an epoch begins anew, or when the loader goes."""
    data = voxload.VolumeDataset(f"{folder}/*.h5", fields={"x": "full"}, axes="DHWC")
    loader = voxload.DataLoader(data, 2, num_workers=3)

    def readers() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("voxload-reader")}

    before = readers()
    for _ in range(3):
        assert len(list(loader)) == 6
        assert len(readers() - before) <= 3
    started = readers() - before
    assert started
    if is_closed:
        loader.close()
        for thread in started:
            thread.join(processes.LIMIT)
        assert not readers() & started
        assert len(list(loader)) == 6
    gc.disable()  # no cycle keeps the loader
    try:
        del loader
        for thread in readers() - before:
            thread.join(processes.LIMIT)
        assert not readers() - before
    finally:
        gc.enable()
    data.close()


def test_batches_of_lists_are_read_ahead_too(data: voxload.VolumeDataset) -> None:
    """A batch sampler over a sampler that can be foreseen, and batch_size=None, give torch's batches."""
    for words in (
        {"batch_sampler": BatchSampler(SequentialSampler(NUMBERS), 4, drop_last=True)},
        {"batch_size": None, "sampler": [3, -1, 5]},
    ):
        ours, theirs = voxload.DataLoader(data, **words), TorchLoader(NUMBERS, **words)
        for _ in range(3):
            assert [_samples(batch) for batch in ours] == [_samples(batch) for batch in theirs]
