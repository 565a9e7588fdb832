"""Loaders of catalogues that grow: an epoch has one generation, and a resumed one goes on with its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch.utils.data import ConcatDataset, DistributedSampler, Subset, random_split

from tests.support import processes
from tests.support.growing import grown, number_of
from voxload import Cache, DataLoader, VolumeDataset
from voxload.errors import DataError, UsageError
from voxload.grid import ProcessGrid
from voxload.loader.sampler import GroupSampler

KINDS: dict[str, Callable[[VolumeDataset], dict[str, Any]]] = {
    "plain": lambda _: {},
    "generator": lambda _: {"shuffle": True, "generator": torch.Generator().manual_seed(3)},
    "workers": lambda _: {
        "shuffle": True,
        "generator": torch.Generator().manual_seed(3),
        "num_workers": 2,
        "persistent_workers": True,
    },
    "cached": lambda _: {
        "shuffle": True,
        "generator": torch.Generator().manual_seed(3),
        "cache": Cache(memory="1MiB"),
    },
    "lru": lambda _: {"shuffle": True, "cache": Cache(memory="1MiB", policy="lru")},
    "process": lambda _: {"shuffle": True, "generator": torch.Generator().manual_seed(3), "readers": "process"},
    "groups": lambda data: {"sampler": GroupSampler(data, ProcessGrid(), shuffle=True, seed=5)},
    "torch's": lambda data: {"sampler": DistributedSampler(data, num_replicas=2, rank=1, seed=5)},
    "torch's, dropping": lambda data: {
        "sampler": DistributedSampler(data, num_replicas=2, rank=1, seed=5, drop_last=True)
    },
}


def _made(place: Path, kind: str) -> DataLoader:
    data = VolumeDataset(place, targets="t", follow=True)
    return DataLoader(data, 2, **KINDS[kind](data))


def _got(batches: Iterator[Any] | DataLoader, most: int = 10**9) -> list[int]:
    """Return the samples of some batches, as their voxels and targets say."""
    found: list[int] = []
    for step, (volumes, targets) in enumerate(batches, 1):
        assert [number_of(volume) for volume in volumes] == targets[:, 0].tolist()
        found += map(int, targets[:, 0].tolist())
        if step == most:
            break
    return found


def _data(loader: DataLoader) -> VolumeDataset:
    return cast("VolumeDataset", loader.dataset)


def _closed(loader: DataLoader) -> None:
    loader.close()
    _data(loader).close()


@pytest.mark.parametrize("kind", KINDS)
def test_epochs_take_up_what_was_appended(tmp_path: Path, kind: str) -> None:
    """An epoch's samples, in their order, are torch's own loader's over all that was there when it began."""
    grown(tmp_path, 50, 51, 52, 53, 54)
    loader = _made(tmp_path, kind)
    other = VolumeDataset(tmp_path, targets="t", follow=True)
    words = {name: value for name, value in KINDS[kind](other).items() if name in {"sampler", "shuffle", "generator"}}
    for epoch in range(4):
        if "sampler" in words:  # which torch divides once
            words["sampler"] = KINDS[kind](other)["sampler"]
            words["sampler"].set_epoch(epoch)
            loader.set_epoch(epoch)
        torch.manual_seed(epoch)
        expected = _got(iter(torch.utils.data.DataLoader(other, 2, **words)))
        torch.manual_seed(epoch)
        appended = _data(loader).generation
        found = _got(loader)
        # torch's workers that persist draw another seed for their order.
        assert found == expected if kind != "workers" else sorted(found) == sorted(expected)
        assert _data(loader).generation == other.generation
        assert len(loader) == -(-len(expected) // 2)
        assert appended is not None
        if epoch in {0, 2}:
            grown(tmp_path, *(10 * epoch + one for one in (1, 2, 3)))
            other.refresh()
            assert _data(loader).generation == appended or epoch
    _closed(loader)
    other.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("behind", [0, 1, 2, 3])
def test_resumed_across_generations(tmp_path: Path, kind: str, behind: int) -> None:
    """A job that stopped in an epoch, of which the catalogue grew since, goes on as one that had not stopped."""
    grown(tmp_path, 50, 51, 52, 53, 54)
    torch.manual_seed(8)
    loader = _made(tmp_path, kind)
    _got(loader)
    grown(tmp_path, 11, 12)
    first = _made(tmp_path, kind)  # it was begun when there were as many, and is at the same place
    torch.manual_seed(9)
    batches = iter(first)
    _got(batches, behind) if behind else None
    state = json.loads(json.dumps(first.state_dict()))
    random = torch.get_rng_state()
    assert state["generation"] == 2
    rest = _got(batches)
    grown(tmp_path, 21, 22, 23)
    torch.manual_seed(2)
    after = _got(first)
    second = _made(tmp_path, kind)
    assert _data(second).generation == 3
    torch.manual_seed(4)
    second.load_state_dict(state)
    assert len(_data(second)) == 7
    if state["position"]:  # else the epoch was over, or had not begun
        torch.set_rng_state(random)
        assert _got(second) == rest
        assert _data(second).generation == 2
    if behind:
        torch.manual_seed(2)
        assert _got(second) == after
        assert _data(second).generation == 3
    for one in (loader, first, second):
        _closed(one)


def test_nothing_changes_under_an_iterator(tmp_path: Path) -> None:
    """While an iterator is held that has more to give, others begin with what it has; not once it has given all."""
    grown(tmp_path, 50, 51, 52, 53)
    for words in ({}, {"cache": Cache(memory="1MiB")}):
        data = VolumeDataset(tmp_path, targets="t", follow=True)
        before = len(data)
        loader = DataLoader(data, 2, **words)  # type: ignore[arg-type]
        held = iter(loader)
        first = _got(held, 1)
        grown(tmp_path, before)
        assert len(_got(loader)) == before
        assert len([*first, *_got(held)]) == before
        assert len(_got(loader)) == before + 1
        counted = iter(loader)
        _got(counted, len(loader))
        grown(tmp_path, before + 1)
        assert len(_got(loader)) == before + 2
        assert _got(counted) == []
        for _ in loader:
            break
        grown(tmp_path, before + 2)
        assert len(_got(loader)) == before + 3
        _closed(loader)


def test_a_state_of_another_generation_waits_for_iterators(tmp_path: Path) -> None:
    """Samples do not go under an iterator: the next one is refused until that is let go of."""
    grown(tmp_path, 50, 51, 52, 53)
    loader = _made(tmp_path, "generator")
    _got(iter(loader), 1)
    half = iter(loader)
    _got(half, 1)
    state = loader.state_dict()
    del half
    grown(tmp_path, 1)
    _got(loader)
    held = iter(loader)
    _got(held, 1)
    loader.load_state_dict(state)
    with pytest.raises(UsageError, match=r"an iterator under way, of generation 2, expected none"):
        iter(loader)
    del held
    loader.load_state_dict(state)
    assert len(_got(loader)) == 2
    _closed(loader)


class _Turnstile:
    """A lock behind which a thread, but the loop's, stops once it has let go of it."""

    def __init__(self) -> None:
        self._lock, self._loop = threading.Lock(), threading.current_thread()
        self.is_shut = False
        self.stopped, self.opened = threading.Event(), threading.Event()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if self.is_shut and threading.current_thread() is not self._loop:
            self.stopped.set()
            assert self.opened.wait(processes.LIMIT)


def test_a_thread_that_begins_a_batch_keeps_no_iterator(tmp_path: Path) -> None:
    """Who has let go of one is not told that it is under way, whatever a thread does at that moment."""
    grown(tmp_path, 50, 51, 52, 53)
    loader = _made(tmp_path, "generator")
    _got(loader, 1)
    ahead = loader._pipeline._ahead  # type: ignore[union-attr]
    assert ahead is not None
    ahead.lock = turnstile = _Turnstile()
    held = iter(loader)
    _got(held, 1)
    assert ahead.has_more
    turnstile.is_shut = True
    ahead.reads.tell_room()
    try:
        assert turnstile.stopped.wait(processes.LIMIT)
        del held
        assert not ahead.has_more
    finally:
        turnstile.opened.set()
    _closed(loader)


def test_tiers_keep_what_they_have(tmp_path: Path) -> None:
    """Each sample comes from the storage once, whatever else comes; in a tier that is too small, voxels stay right."""
    grown(tmp_path, *range(50, 58), settled=True)
    for words, is_large in (
        ({"memory": "1MiB"}, True),
        ({"memory": 2**16, "codec": "bitshuffle-lz4"}, False),
        ({"memory": 2**14, "disk": tmp_path / "tier", "disk_size": "1MiB"}, True),
        ({"memory": 2**14}, False),
    ):
        loader = _made(tmp_path, "plain")
        _closed(loader)
        data = VolumeDataset(tmp_path, targets="t", follow=True)
        loader = DataLoader(data, 3, shuffle=True, cache=Cache(**words))
        for _ in range(3):
            assert len(_got(loader)) == len(_got(loader)) == len(data)
            grown(tmp_path, len(data), settled=True)
        assert len(_got(loader)) == len(data)
        if is_large:
            assert loader.stats().sources["storage"].fetches == len(data)
        _closed(loader)


def test_states_are_those_of_a_generation(tmp_path: Path) -> None:
    """One that the catalogue has not come to, or that is of a fixed data set, is refused, and changes nothing."""
    grown(tmp_path, 50, 51)
    kept = (tmp_path / "catalog.parquet").read_bytes()
    grown(tmp_path, 1)
    loader = _made(tmp_path, "generator")
    state = loader.state_dict()
    fixed = DataLoader(VolumeDataset(tmp_path, targets="t"), 2, **KINDS["generator"](_data(loader)))
    with pytest.raises(UsageError, match=r"data of the loader's state"):
        fixed.load_state_dict(state)
    assert "generation" not in fixed.state_dict()
    for wrong in ("2", 2.5):
        with pytest.raises(UsageError, match=r"generation"):
            loader.load_state_dict(state | {"generation": wrong})
    with pytest.raises(UsageError, match=r"data of the loader's state"):
        loader.load_state_dict(state | {"generation": 1})
    assert (_data(loader).generation, len(_got(loader))) == (2, 3)
    (tmp_path / "catalog.parquet").write_bytes(kept)
    early = _made(tmp_path, "generator")
    with pytest.raises(UsageError, match=r"found generation 1, expected 2"):
        early.load_state_dict(state)
    assert len(_got(early)) == 2
    for one in (loader, fixed, early):
        _closed(one)


def test_a_catalogue_that_cannot_be_read_ends_no_epoch(tmp_path: Path) -> None:
    """It is said when the next one begins; once it is there again, that one goes on."""
    grown(tmp_path, 50, 51, 52)
    loader = _made(tmp_path, "cached")
    batches = iter(loader)
    place = tmp_path / "catalog.parquet"
    kept = place.read_bytes()
    place.write_bytes(kept[:40])
    assert len(_got(batches)) == 3
    with pytest.raises(DataError, match=r"a complete Parquet file"):
        iter(loader)
    place.write_bytes(kept)
    grown(tmp_path, 1)
    assert len(_got(loader)) == 4
    _closed(loader)


class Squared(VolumeDataset):
    """A data set with items of its own, which torch's loader has to load."""

    def __getitem__(self, index: int) -> Any:
        """Return the item's volume, squared."""
        return super().__getitem__(index)[0] ** 2


def test_what_numbers_samples_once_is_refused(tmp_path: Path) -> None:
    """Indices that were given out, and copies of the data set in worker processes, know nothing of new samples."""
    grown(tmp_path, 50, 51, 52)
    data = VolumeDataset(tmp_path, targets="t", follow=True)
    several: list[Any] = [Subset(data, [0, 1]), random_split(data, [2, 1])[0], ConcatDataset([data, data])]
    for wrapped in several:
        with pytest.raises(UsageError, match=r"that follows its catalogue"):
            DataLoader(wrapped, 2)
    with pytest.raises(UsageError, match=r"items of its own, which worker processes have copies of"):
        DataLoader(Squared(tmp_path, follow=True), 2)
